package quorum

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
	"runnel/internal/meta/metarec"
)

// ErrNotLeader refuses or fails an append: this node does not lead the epoch.
var ErrNotLeader = fmt.Errorf("this node does not lead the metadata quorum: %w", kerr.NotLeaderForPartition)

var errClosed = fmt.Errorf("the metadata quorum is stopped: %w", kerr.NotLeaderForPartition)

// View is what others may know of the quorum, as of the last turn.
type View struct {
	Role          Role
	Leader        int32 // -1 unknown
	Epoch         int32
	HighWatermark int64 // -1 unknown
	KRaftVersion  int16
	Voters        VoterSet
	LeaderAt      []Endpoint
}

// Quorum is one replica of the metadata log.
type Quorum struct {
	opt  Options
	feed *feed
	view atomic.Pointer[View]
	wake chan struct{}
	done chan struct{}
	self ReplicaKey

	mail struct {
		sync.Mutex
		jobs    []func()
		started bool
		closed  bool
	}
	acc struct {
		sync.Mutex
		epoch   int32 // -1 while not leading
		next    int64
		bytes   []byte // batches in order, waiting to be written
		pending []notice
	}

	// The rest belongs to the loop.
	m     machine
	hist  history
	snaps []SnapshotID
	shown struct { // what the last settle acted on
		turns int
		hw    int64
		end   int64
	}
	flushing bool
	stopping bool
	failed   error
	parked   []*parked
	peers    peers
	download *download
}

// Open reads the node's state; nothing runs before Start.
func Open(opt Options) (*Quorum, error) {
	opt = opt.withDefaults()
	q := &Quorum{opt: opt, wake: make(chan struct{}, 1), done: make(chan struct{}), self: ReplicaKey{opt.NodeID, opt.DirectoryID}}
	q.feed = newFeed(q)
	q.acc.epoch = -1
	q.hist.static = opt.Voters
	q.peers.init()
	st, err := readState(opt.FS, opt.Dir)
	if err != nil {
		return nil, err
	}
	if err := q.openSnapshots(); err != nil {
		return nil, err
	}
	if err := q.replayControls(); err != nil {
		return nil, err
	}
	q.m = machine{self: q.self, timing: opt.Timing, random: opt.Random, voters: q.hist.voters()}
	q.m.begin(st, q.logEnd().epoch, opt.Now())
	q.shown.turns, q.shown.hw, q.shown.end = -1, -1, opt.Log.Offsets().End
	q.publish()
	return q, nil
}

// openSnapshots settles log and snapshots with each other after whatever ended the last run.
func (q *Quorum) openSnapshots() error {
	snaps, bootstrap, err := listSnapshots(q.opt.FS, q.opt.Dir)
	if err != nil {
		return err
	}
	log := q.opt.Log
	o := log.Offsets()
	if n := len(snaps); n > 0 {
		newest := snaps[n-1]
		if newest.Epoch > log.LatestEpoch() || newest.Epoch == log.LatestEpoch() && newest.EndOffset > o.End {
			if err := log.TruncateFully(newest.EndOffset); err != nil {
				return err
			}
			o = log.Offsets()
		}
	}
	for len(snaps) > 0 && snaps[0].EndOffset < o.LogStart {
		if err := q.opt.FS.Remove(path.Join(q.opt.Dir, snaps[0].fileName())); err != nil {
			return err
		}
		snaps = snaps[1:]
	}
	if o.LogStart > 0 && len(snaps) == 0 {
		return fmt.Errorf("the metadata log in %s begins at offset %d and no snapshot reaches that", q.opt.Dir, o.LogStart)
	}
	q.snaps = snaps
	if bootstrap {
		return q.loadHead(SnapshotID{}, bootstrapOffset)
	}
	return nil
}

func (q *Quorum) loadHead(id SnapshotID, at int64) error {
	head, err := snapshotHead(q.opt.FS, path.Join(q.opt.Dir, id.fileName()))
	if err != nil {
		return err
	}
	for _, c := range head {
		if err := q.hist.add(at, c); err != nil {
			return err
		}
	}
	return nil
}

// replayControls finds voters and kraft.version in the newest snapshot and the log after it.
func (q *Quorum) replayControls() error {
	log := q.opt.Log
	from := log.Offsets().LogStart
	if id := q.newest(); id != noSnapshot {
		if err := q.loadHead(id, id.EndOffset-1); err != nil {
			return err
		}
		from = id.EndOffset
	}
	for end := log.Offsets().End; from < end; {
		read, err := log.Read(from, end, feedBytes, true)
		if err != nil {
			return err
		}
		buf, err := read.Region.ReadAll()
		read.Region.Done()
		if err != nil {
			return err
		}
		next, err := q.noteControls(buf)
		if err != nil {
			return err
		}
		if next <= from {
			return fmt.Errorf("nothing readable at offset %d of the metadata log, which ends at %d", from, end)
		}
		from = next
	}
	return nil
}

// noteControls takes voters and kraft.version from batches that are in the log now.
func (q *Quorum) noteControls(buf []byte) (next int64, err error) {
	for len(buf) > 0 {
		b, rest, err := record.Next(buf)
		if errors.Is(err, record.ErrShort) {
			break
		}
		if err != nil {
			return next, err
		}
		buf, next = rest, b.NextOffset()
		if !b.IsControl() {
			continue
		}
		controls, err := controlsOf(b)
		if err != nil {
			return next, fmt.Errorf("control batch at offset %d: %w", b.BaseOffset(), err)
		}
		for i, c := range controls {
			if err := q.hist.add(b.BaseOffset()+int64(i), c); err != nil {
				return next, err
			}
		}
	}
	return next, nil
}

func (q *Quorum) newest() SnapshotID {
	if len(q.snaps) == 0 {
		return noSnapshot
	}
	return q.snaps[len(q.snaps)-1]
}

func (q *Quorum) logEnd() logEnd {
	e := q.opt.Log.LatestEpoch()
	if id := q.newest(); e < 0 && id != noSnapshot {
		e = id.Epoch
	}
	return logEnd{max(e, 0), q.opt.Log.Offsets().End}
}

// Start begins to take part.
func (q *Quorum) Start() {
	q.mail.Lock()
	q.mail.started = true
	q.mail.Unlock()
	go q.run()
}

// post hands a job to the loop; false once it has stopped.
func (q *Quorum) post(job func()) bool {
	q.mail.Lock()
	if q.mail.closed {
		q.mail.Unlock()
		return false
	}
	q.mail.jobs = append(q.mail.jobs, job)
	q.mail.Unlock()
	q.nudge()
	return true
}

func (q *Quorum) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Quorum) run() {
	defer close(q.done)
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		q.mail.Lock()
		jobs := q.mail.jobs
		q.mail.jobs = nil
		closed := q.mail.closed
		q.mail.Unlock()
		if closed {
			q.shutDown()
			return
		}
		for _, job := range jobs {
			job()
			q.settle() // what a job changed is on disk before its answer leaves
		}
		now := q.opt.Now()
		if q.failed == nil {
			q.m.tick(now)
			q.expireParked(now)
			q.settle()
			q.sendDue(now)
			q.settle()
		}
		q.publish()
		timer.Stop()
		if next := q.nextWake(); !next.IsZero() && q.failed == nil {
			timer.Reset(max(0, next.Sub(q.opt.Now())))
		}
		select {
		case <-q.wake:
		case <-timer.C:
		}
	}
}

func (q *Quorum) nextWake() time.Time {
	next := q.m.deadline
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, p := range q.parked {
		earlier(p.until)
	}
	earlier(q.sendWake())
	return next
}

// settle makes the world follow the machine: disk first, then log, listener and peers.
func (q *Quorum) settle() {
	for range 100 {
		if q.failed != nil || !q.settleOnce() {
			break
		}
	}
	q.finishAnswers()
}

func (q *Quorum) settleOnce() (again bool) {
	if q.m.dirty {
		if err := writeState(q.opt.FS, q.opt.Dir, q.m.state(), q.hist.version(), q.hist.voters()); err != nil {
			q.fail(fmt.Errorf("%s cannot be written: %w", stateFile, err))
			return false
		}
		q.m.dirty = false
	}
	if q.m.turns != q.shown.turns {
		q.shown.turns = q.m.turns
		q.turned()
		return true
	}
	if q.m.role == Leader {
		q.drain()
		if q.m.turns != q.shown.turns {
			return true
		}
	}
	q.flush()
	o := q.opt.Log.Offsets()
	if q.m.advance(o.Durable) || q.m.hw != q.shown.hw {
		q.shown.hw = q.m.hw
		if q.m.hw >= 0 {
			q.opt.Log.AdvanceHighWatermark(q.m.hw)
			q.publish() // who hears of a commit may look at once
			q.feed.committed(q.m.hw, q.newest())
		}
		q.releaseParked(func(*parked) bool { return true })
		q.maybeLeaveAfterRemoval()
	}
	if o.End != q.shown.end {
		q.shown.end = o.End
		q.releaseParked(func(p *parked) bool { return p.offset <= o.End })
	}
	return q.m.hw != q.shown.hw || q.m.turns != q.shown.turns || q.m.dirty
}

// turned acts on a change of state.
func (q *Quorum) turned() {
	q.peers.reset()
	q.dropDownload()
	m := &q.m
	q.opt.Logger.Info("metadata quorum", "role", m.role.String(), "epoch", m.epoch, "leader", m.leader)
	if m.role == Leader {
		q.lead()
		return
	}
	q.acc.Lock()
	was := q.acc.epoch
	lost := q.acc.pending
	q.acc.epoch, q.acc.bytes, q.acc.pending = -1, nil, nil
	q.acc.Unlock()
	if was >= 0 {
		q.feed.lost(ErrNotLeader)
		for _, n := range lost {
			n.at, n.err = 0, ErrNotLeader
			q.feed.add(n)
		}
	}
	if m.role == Follower || m.role == Resigned || m.role == Unattached && was >= 0 {
		q.releaseParked(func(*parked) bool { return true })
	}
	if m.role == Follower || was >= 0 {
		epoch, leader := m.epoch, m.leader
		if leader == m.self.ID {
			leader = -1
		}
		q.feed.add(notice{run: func(error) { q.opt.State.NotLeading(epoch, leader) }})
	}
}

// lead begins the epoch in the log.
func (q *Quorum) lead() {
	m, log := &q.m, q.opt.Log
	start := log.Offsets().End
	err := log.AssignEpoch(m.epoch, start)
	if err == nil {
		b := &record.Builder{BaseOffset: start, LeaderEpoch: m.epoch, Attributes: record.ControlBit, Timestamp: record.Millis(q.opt.Now())}
		for _, c := range q.firstControls() {
			k, v := metarec.EncodeControl(c)
			b.Add(k, v)
		}
		err = q.write(b.Build())
	}
	if err != nil {
		q.refused(err)
		return
	}
	m.start = start
	end := log.Offsets().End
	q.acc.Lock()
	q.acc.epoch, q.acc.next = m.epoch, end
	q.acc.Unlock()
	epoch := m.epoch
	q.feed.add(notice{at: end, fallible: true, run: func(err error) {
		if err == nil {
			q.opt.State.Leading(epoch, end)
		}
	}})
}

// firstControls are the records that open an epoch.
func (q *Quorum) firstControls() []metarec.Control {
	change := &metarec.LeaderChange{LeaderID: q.self.ID}
	voters := q.hist.voters()
	for _, v := range voters {
		change.Voters = append(change.Voters, metarec.ChangeVoter{VoterID: v.VoterID})
	}
	for _, id := range q.m.granting {
		change.GrantingVoters = append(change.GrantingVoters, metarec.ChangeVoter{VoterID: id})
	}
	out := []metarec.Control{change}
	if q.hist.version() < 1 {
		return out
	}
	own := voters.find(q.self.ID)
	moved := own != nil && len(q.opt.Endpoints) > 0 && (!slices.Equal(own.Endpoints, q.opt.Endpoints) || own.MinSupportedVersion != 0 || own.MaxSupportedVersion != 1)
	if !q.hist.fromBootstrap() && !moved {
		return out
	}
	if moved {
		voters = slices.Clone(voters)
		own = voters.find(q.self.ID)
		own.Endpoints, own.MinSupportedVersion, own.MaxSupportedVersion = q.opt.Endpoints, 0, 1
	}
	return append(out, headOf(q.hist.version(), voters)...)
}

// write appends batches to the log and takes in their control records.
func (q *Quorum) write(batches []byte) error {
	if _, err := q.opt.Log.AppendAsIs(batches); err != nil {
		return err
	}
	return q.tookIn(batches)
}

func (q *Quorum) tookIn(batches []byte) error {
	if _, err := q.noteControls(batches); err != nil {
		return err
	}
	q.m.voters = q.hist.voters()
	return nil
}

// refused handles an append that the log did not take: without it there is no leading.
func (q *Quorum) refused(err error) {
	if broken := q.opt.Log.Failed(); broken != nil {
		q.fail(fmt.Errorf("metadata log: %w", broken))
		return
	}
	q.opt.Logger.Error("the metadata log refuses appends, resigning", "epoch", q.m.epoch, "error", err)
	q.m.resign(q.opt.Now())
}

// drain writes what was appended since the last turn.
func (q *Quorum) drain() {
	q.acc.Lock()
	bytes, pending := q.acc.bytes, q.acc.pending
	q.acc.bytes, q.acc.pending = nil, nil
	q.acc.Unlock()
	if len(bytes) == 0 {
		return
	}
	for _, n := range pending {
		q.feed.add(n)
	}
	if err := q.write(bytes); err != nil {
		q.refused(err)
	}
}

// flush starts an fsync if there is something to make durable and none runs. Everything
// appended while it runs shares the next one.
func (q *Quorum) flush() {
	o := q.opt.Log.Offsets()
	if q.flushing || o.Durable >= o.End || !q.opt.Controller && !q.m.voter() {
		return
	}
	q.flushing = true
	q.peers.running.Add(1)
	go func() {
		defer q.peers.running.Done()
		err := q.opt.Log.Flush()
		q.post(func() {
			q.flushing = false
			if err != nil {
				q.fail(fmt.Errorf("metadata log: %w", err))
			}
		})
	}()
}

// maybeLeaveAfterRemoval ends the leadership of a node that is no voter any more, once its
// removal is committed.
func (q *Quorum) maybeLeaveAfterRemoval() {
	if q.m.role != Leader || q.m.voter() || len(q.hist.sets) == 0 {
		return
	}
	if q.hist.sets[len(q.hist.sets)-1].offset < q.m.hw {
		q.m.resign(q.opt.Now())
	}
}

// fail stops everything: the node cannot keep its promises.
func (q *Quorum) fail(err error) {
	if q.failed != nil {
		return
	}
	q.failed = err
	q.acc.Lock()
	lost := q.acc.pending
	q.acc.epoch, q.acc.bytes, q.acc.pending = -1, nil, nil
	q.acc.Unlock()
	q.feed.lost(errClosed)
	for _, n := range lost {
		n.at, n.err = 0, errClosed
		q.feed.add(n)
	}
	q.m.role, q.m.leader = Unattached, -1
	for _, p := range q.parked {
		p.giveUp(errClosed)
	}
	q.parked = nil
	q.publish()
	q.opt.Fatal(err)
}

// fatal is fail from outside the loop.
func (q *Quorum) fatal(err error) { q.post(func() { q.fail(err) }) }

// Append adds records as one batch if this node leads epoch. done is called in order of
// the appends: with nil once they are committed and the listener has seen them, else with
// what lost them (they may be committed all the same).
func (q *Quorum) Append(epoch int32, records [][]byte, done func(error)) (lastOffset int64, err error) {
	if len(records) == 0 {
		return 0, fmt.Errorf("an append without records: %w", kerr.InvalidRequest)
	}
	size := record.HeaderSize
	for _, r := range records {
		size += len(r) + 24
	}
	if size > maxBatchBytes {
		return 0, fmt.Errorf("%d bytes of metadata records in one batch, the limit is %d: %w", size, maxBatchBytes, kerr.RecordListTooLarge)
	}
	now := record.Millis(q.opt.Now())
	q.acc.Lock()
	if q.acc.epoch != epoch {
		leading := q.acc.epoch
		q.acc.Unlock()
		if leading >= 0 && epoch > leading {
			return 0, fmt.Errorf("append in epoch %d, the quorum is in %d: %w", epoch, leading, kerr.InvalidRequest)
		}
		return 0, ErrNotLeader
	}
	b := record.Builder{BaseOffset: q.acc.next, LeaderEpoch: epoch, Timestamp: now}
	for _, r := range records {
		b.Add(nil, r)
	}
	q.acc.bytes = append(q.acc.bytes, b.Build()...)
	q.acc.next += int64(len(records))
	last := q.acc.next - 1
	q.acc.pending = append(q.acc.pending, notice{at: last + 1, fallible: true, run: done})
	q.acc.Unlock()
	q.nudge()
	return last, nil
}

func (q *Quorum) publish() {
	m := &q.m
	v := &View{Role: m.role, Leader: m.leader, Epoch: m.epoch, HighWatermark: m.hw, KRaftVersion: q.hist.version(), Voters: m.voters, LeaderAt: m.endpoints}
	if m.role == Leader {
		v.LeaderAt = q.opt.Endpoints
	} else if m.leader == m.self.ID {
		v.Leader = -1
	}
	q.view.Store(v)
}

// View is the quorum as of its last turn.
func (q *Quorum) View() View { return *q.view.Load() }

// Leader is the known leader, -1 if there is none, and the epoch.
func (q *Quorum) Leader() (id, epoch int32) {
	v := q.view.Load()
	return v.Leader, v.Epoch
}

// Resign gives up the leadership of an epoch, if it is still led.
func (q *Quorum) Resign(epoch int32) {
	q.post(func() {
		if q.m.epoch == epoch {
			q.m.resign(q.opt.Now())
		}
	})
}

// Close ends the loop. Appends that are not committed yet fail.
func (q *Quorum) Close() {
	q.mail.Lock()
	started, was := q.mail.started, q.mail.closed
	q.mail.closed = true
	q.mail.Unlock()
	if was {
		<-q.done
		return
	}
	q.nudge()
	if !started {
		close(q.done)
		return
	}
	<-q.done
	q.feed.close()
}

func (q *Quorum) shutDown() {
	q.acc.Lock()
	lost := q.acc.pending
	q.acc.epoch, q.acc.bytes, q.acc.pending = -1, nil, nil
	q.acc.Unlock()
	for _, n := range lost {
		q.feed.add(n)
	}
	for _, p := range q.parked {
		p.giveUp(errClosed)
	}
	q.parked = nil
	if q.m.role == Leader && !q.m.alone() && q.failed == nil {
		q.sayGoodbye()
	}
	q.peers.stop()
	q.dropDownload()
	q.m.role, q.m.leader = Unattached, -1
	q.publish()
}
