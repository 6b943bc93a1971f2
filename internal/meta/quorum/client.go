package quorum

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
)

const fetchWaitMs = 500

// peers is what the loop knows of its own requests.
type peers struct {
	answers  []answer // of requests to this node, leaving when the loop has settled
	busy     map[int32]bool
	after    map[int32]time.Time // back-off by destination
	fetching bool                // one fetch at a time, over all destinations
	turn     int                 // answers to requests of an earlier turn are dropped
	detour   bool                // the leader did not answer: ask a bootstrap server once
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func (p *peers) init() {
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.reset()
}

// reset forgets requests in flight; their answers will not be read.
func (p *peers) reset() {
	p.busy, p.after, p.fetching, p.detour = map[int32]bool{}, map[int32]time.Time{}, false, false
	p.turn++
}

func (p *peers) stop() {
	p.cancel()
	p.running.Wait()
}

// send asks a node; took gets the answer in the loop, unless the state changed meanwhile.
func (q *Quorum) send(to Destination, rq kmsg.Request, took func(resp kmsg.Response, err error, now time.Time)) {
	p := &q.peers
	turn := p.turn
	p.busy[to.ID] = true
	p.running.Add(1)
	go func() {
		defer p.running.Done()
		ctx, cancel := context.WithTimeout(p.ctx, q.opt.Timing.Request)
		defer cancel()
		resp, err := q.opt.Send(ctx, to, rq)
		q.post(func() {
			if p.turn != turn || q.failed != nil {
				return
			}
			now := q.opt.Now()
			delete(p.busy, to.ID)
			if err != nil {
				p.after[to.ID] = now.Add(q.opt.Timing.Retry)
			}
			took(resp, err, now)
		})
	}()
}

func (q *Quorum) ready(id int32, now time.Time) bool {
	return !q.peers.busy[id] && !now.Before(q.peers.after[id])
}

func (q *Quorum) backOff(id int32, now time.Time) { q.peers.after[id] = now.Add(q.opt.Timing.Retry) }

func (q *Quorum) destination(v Voter) (Destination, bool) {
	e, ok := endpointOn(v.Endpoints, q.opt.Listener)
	return Destination{v.VoterID, e.Host, e.Port}, ok
}

// others are the voters but this node that can be asked now.
func (q *Quorum) others(now time.Time, each func(v Voter, to Destination)) {
	for _, v := range q.m.voters {
		if v.VoterID == q.self.ID {
			continue
		}
		if to, ok := q.destination(v); ok && q.ready(v.VoterID, now) {
			each(v, to)
		}
	}
}

// sendDue sends what the state asks for.
func (q *Quorum) sendDue(now time.Time) {
	m := &q.m
	if q.opt.Send == nil {
		return
	}
	switch m.role {
	case Prospective, Candidate:
		q.others(now, func(v Voter, to Destination) {
			if _, answered := m.votes[v.VoterID]; !answered {
				q.sendVote(v, to)
			}
		})
	case Leader:
		if !m.heartbeat.IsZero() && !now.Before(m.heartbeat) {
			q.sendBegin(now)
			m.heartbeat = now.Add(m.timing.Fetch / 2)
		}
	case Resigned:
		q.others(now, func(v Voter, to Destination) {
			if !m.ended[v.VoterID] {
				q.sendEnd(v, to)
			}
		})
	case Follower:
		if to, ok := q.fetchFrom(now); ok && !q.peers.fetching && q.onDisk() {
			if q.download != nil && to.ID == m.leader {
				q.sendFetchSnapshot(to)
			} else {
				q.sendFetch(to)
			}
		}
	case Unattached:
		if to, ok := q.someBootstrap(now); ok && !q.peers.fetching && q.onDisk() {
			q.sendFetch(to)
		}
	}
}

// sendWake is when something to send becomes due that no event will announce.
func (q *Quorum) sendWake() time.Time {
	if q.opt.Send == nil || q.m.alone() {
		return time.Time{}
	}
	next := q.m.heartbeat
	now := q.opt.Now()
	for _, t := range q.peers.after {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// onDisk holds a fetch back until what it acknowledges is durable.
func (q *Quorum) onDisk() bool {
	o := q.opt.Log.Offsets()
	return !q.opt.Controller && !q.m.voter() || o.Durable >= o.End
}

func (q *Quorum) fetchFrom(now time.Time) (Destination, bool) {
	e, ok := endpointOn(q.m.endpoints, q.opt.Listener)
	if ok && !q.peers.detour && q.ready(q.m.leader, now) {
		return Destination{q.m.leader, e.Host, e.Port}, true
	}
	if q.peers.detour || !ok {
		q.peers.detour = false
		return q.someBootstrap(now)
	}
	return Destination{}, false
}

func (q *Quorum) someBootstrap(now time.Time) (Destination, bool) {
	var all []Destination
	for i, e := range q.opt.Bootstrap {
		all = append(all, Destination{int32(-2 - i), e.Host, e.Port})
	}
	if len(all) == 0 {
		for _, v := range q.opt.Voters {
			if to, ok := q.destination(v); ok && v.VoterID != q.self.ID {
				all = append(all, to)
			}
		}
	}
	all = slices.DeleteFunc(all, func(d Destination) bool { return !q.ready(d.ID, now) })
	if len(all) == 0 {
		return Destination{}, false
	}
	return all[q.opt.Random()%uint64(len(all))], true
}

// common treats what all answers share (kraft.md 3.1): true means that there is nothing
// more in it.
func (q *Quorum) common(from int32, code int16, epoch, leader int32, at *Endpoint, now time.Time) (handled bool) {
	m := &q.m
	if epoch < m.epoch || code == kerr.UnknownLeaderEpoch.Code {
		if code == kerr.UnknownLeaderEpoch.Code {
			q.backOff(from, now)
		}
		return true
	}
	var endpoints []Endpoint
	if at != nil {
		endpoints = []Endpoint{{Name: q.opt.Listener, Host: at.Host, Port: at.Port}}
	}
	if leader == q.self.ID && (m.role != Leader || epoch != m.epoch) && (m.role != Resigned || epoch != m.epoch) {
		leader = -1 // this node's past, or a mistake: never follow oneself
	}
	changes := epoch > m.epoch || code == kerr.FencedLeaderEpoch.Code || code == kerr.NotLeaderForPartition.Code || leader >= 0 && m.leader < 0
	if changes {
		turn := m.turns
		if err := m.follow(epoch, leader, endpoints, now); err != nil {
			q.opt.Logger.Error("an answer breaks the quorum's protocol", "from", from, "error", err)
			q.backOff(from, now)
			return true
		}
		if m.turns == turn && code != 0 {
			q.backOff(from, now)
		}
		return code != 0 || m.turns != turn
	}
	if code != 0 && code != kerr.InvalidVoterKey.Code {
		q.backOff(from, now)
	}
	return code != 0
}

func (q *Quorum) cluster() *string { return kmsg.StringPtr(q.opt.ClusterID) }

func (q *Quorum) sendVote(v Voter, to Destination) {
	m := &q.m
	own := q.logEnd()
	p := kmsg.NewVoteRequestTopicPartition()
	p.CandidateEpoch, p.CandidateID, p.CandidateDirectoryID = m.epoch, q.self.ID, q.self.Dir
	p.VoterDirectoryID, p.LastOffsetEpoch, p.LastOffset = v.VoterDirectoryID, own.epoch, own.offset
	p.PreVote = m.role == Prospective
	t := kmsg.NewVoteRequestTopic()
	t.Topic, t.Partitions = ids.MetadataTopic, []kmsg.VoteRequestTopicPartition{p}
	rq := kmsg.NewPtrVoteRequest()
	rq.Version, rq.ClusterID, rq.VoterID, rq.Topics = 2, q.cluster(), v.VoterID, []kmsg.VoteRequestTopic{t}
	q.send(to, rq, func(r kmsg.Response, err error, now time.Time) {
		if errors.Is(err, kerr.UnsupportedVersion) {
			m.skipPreVote(now)
			return
		}
		resp, ok := r.(*kmsg.VoteResponse)
		if err != nil || !ok || resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			q.backOff(to.ID, now)
			return
		}
		p := resp.Topics[0].Partitions[0]
		var at *Endpoint
		for _, n := range resp.NodeEndpoints {
			if n.NodeID == p.LeaderID {
				at = &Endpoint{Host: n.Host, Port: n.Port}
			}
		}
		if !q.common(to.ID, p.ErrorCode, p.LeaderEpoch, p.LeaderID, at, now) {
			m.voteAnswer(v.VoterID, p.VoteGranted, now)
		}
	})
}

func (q *Quorum) sendBegin(now time.Time) {
	m := &q.m
	q.others(now, func(v Voter, to Destination) {
		for r, p := range m.replicas {
			if r.ID == v.VoterID && now.Sub(p.fetchedAt) < m.timing.Fetch/2 {
				return
			}
		}
		p := kmsg.NewBeginQuorumEpochRequestTopicPartition()
		p.LeaderID, p.LeaderEpoch, p.VoterDirectoryID = q.self.ID, m.epoch, v.VoterDirectoryID
		t := kmsg.NewBeginQuorumEpochRequestTopic()
		t.Topic, t.Partitions = ids.MetadataTopic, []kmsg.BeginQuorumEpochRequestTopicPartition{p}
		rq := kmsg.NewPtrBeginQuorumEpochRequest()
		rq.Version, rq.ClusterID, rq.VoterID, rq.Topics = 1, q.cluster(), v.VoterID, []kmsg.BeginQuorumEpochRequestTopic{t}
		for _, e := range q.opt.Endpoints {
			l := kmsg.NewBeginQuorumEpochRequestLeaderEndpoint()
			l.Name, l.Host, l.Port = strings.ToUpper(e.Name), e.Host, e.Port
			rq.LeaderEndpoints = append(rq.LeaderEndpoints, l)
		}
		q.send(to, rq, func(r kmsg.Response, err error, now time.Time) {
			resp, ok := r.(*kmsg.BeginQuorumEpochResponse)
			if err == nil && ok && resp.ErrorCode == 0 && len(resp.Topics) == 1 && len(resp.Topics[0].Partitions) == 1 {
				p := resp.Topics[0].Partitions[0]
				q.common(to.ID, p.ErrorCode, p.LeaderEpoch, p.LeaderID, nil, now)
			}
		})
	})
}

func (q *Quorum) endRequest() *kmsg.EndQuorumEpochRequest {
	p := kmsg.NewEndQuorumEpochRequestTopicPartition()
	p.LeaderID, p.LeaderEpoch = q.self.ID, q.m.epoch
	for _, k := range q.m.preferred {
		c := kmsg.NewEndQuorumEpochRequestTopicPartitionPreferredCandidate()
		c.CandidateID, c.CandidateDirectoryID = k.ID, k.Dir
		p.PreferredCandidates = append(p.PreferredCandidates, c)
	}
	t := kmsg.NewEndQuorumEpochRequestTopic()
	t.Topic, t.Partitions = ids.MetadataTopic, []kmsg.EndQuorumEpochRequestTopicPartition{p}
	rq := kmsg.NewPtrEndQuorumEpochRequest()
	rq.Version, rq.ClusterID, rq.Topics = 1, q.cluster(), []kmsg.EndQuorumEpochRequestTopic{t}
	return rq
}

func (q *Quorum) sendEnd(v Voter, to Destination) {
	q.send(to, q.endRequest(), func(r kmsg.Response, err error, now time.Time) {
		resp, ok := r.(*kmsg.EndQuorumEpochResponse)
		if err != nil || !ok || resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			q.backOff(to.ID, now)
			return
		}
		p := resp.Topics[0].Partitions[0]
		if !q.common(to.ID, p.ErrorCode, p.LeaderEpoch, p.LeaderID, nil, now) && q.m.role == Resigned {
			q.m.ended[v.VoterID] = true
		}
	})
}

// sayGoodbye tells the other voters, once and side by side, that the leader stops, so that
// they need not wait for their timers.
func (q *Quorum) sayGoodbye() {
	if q.opt.Send == nil {
		return
	}
	q.m.resign(q.opt.Now())
	var asked sync.WaitGroup
	for _, v := range q.m.voters {
		to, ok := q.destination(v)
		if !ok || v.VoterID == q.self.ID {
			continue
		}
		rq := q.endRequest()
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), q.opt.Timing.Request)
			defer cancel()
			if _, err := q.opt.Send(ctx, to, rq); err != nil {
				q.opt.Logger.Info("a voter was not told that the leader stops", "voter", to.ID, "error", err)
			}
		})
	}
	asked.Wait()
}

func (q *Quorum) sendFetch(to Destination) {
	m := &q.m
	own := q.logEnd()
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch = m.epoch, own.offset, own.epoch
	p.ReplicaDirectoryID, p.HighWatermark = q.self.Dir, m.hw
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = ids.MetadataTopic, ids.MetadataTopicID, []kmsg.FetchRequestTopicPartition{p}
	rq := kmsg.NewPtrFetchRequest()
	rq.Version, rq.ClusterID, rq.ReplicaState.ID, rq.Topics = 18, q.cluster(), q.self.ID, []kmsg.FetchRequestTopic{t}
	rq.MaxWaitMillis, rq.MaxBytes, rq.SessionEpoch = fetchWaitMs, q.opt.FetchMaxBytes, -1
	q.peers.fetching = true
	q.send(to, rq, func(r kmsg.Response, err error, now time.Time) {
		q.peers.fetching = false
		resp, ok := r.(*kmsg.FetchResponse)
		if err != nil || !ok || resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			q.backOff(to.ID, now)
			q.peers.detour = to.ID == m.leader
			return
		}
		p := &resp.Topics[0].Partitions[0]
		var at *Endpoint
		for _, n := range resp.Brokers {
			if n.NodeID == p.CurrentLeader.LeaderID {
				at = &Endpoint{Host: n.Host, Port: uint16(n.Port)}
			}
		}
		if !q.common(to.ID, p.ErrorCode, p.CurrentLeader.LeaderEpoch, p.CurrentLeader.LeaderID, at, now) && m.role == Follower {
			q.fetchAnswer(to, p, now)
		}
	})
}

// fetchAnswer takes in an answer of the leader. Spec: kraft.md 5.2.
func (q *Quorum) fetchAnswer(to Destination, p *kmsg.FetchResponseTopicPartition, now time.Time) {
	m, log := &q.m, q.opt.Log
	o := log.Offsets()
	switch {
	case p.DivergingEpoch.Epoch >= 0:
		end := p.DivergingEpoch.EndOffset
		if end < m.hw || end < 0 {
			q.fail(fmt.Errorf("the leader %d lacks committed records: its log of epoch %d ends at %d, the high watermark is %d", m.leader, p.DivergingEpoch.Epoch, end, m.hw))
			return
		}
		cut := min(end, o.End)
		if e := p.DivergingEpoch.Epoch; e > 0 {
			_, ownEnd := q.epochEnd(e, o.End)
			cut = min(cut, ownEnd)
		}
		if err := q.truncate(cut); err != nil {
			q.fail(err)
			return
		}
	case p.SnapshotID.EndOffset >= 0 && p.SnapshotID.Epoch >= 0:
		id := SnapshotID{p.SnapshotID.EndOffset, p.SnapshotID.Epoch}
		if !slices.Contains(q.snaps, id) {
			if err := q.beginDownload(id); err != nil {
				q.opt.Logger.Error("snapshot download", "snapshot", id.fileName(), "error", err)
				q.backOff(to.ID, now)
			}
		}
	default:
		if err := q.appendFetched(p.RecordBatches); err != nil {
			q.opt.Logger.Error("fetched metadata records dropped", "leader", m.leader, "error", err)
			if broken := log.Failed(); broken != nil {
				q.fail(broken)
				return
			}
			q.backOff(to.ID, now)
		}
		if p.HighWatermark >= 0 {
			m.setHW(min(p.HighWatermark, log.Offsets().End))
		}
	}
	m.fetchSucceeded(now)
}

func (q *Quorum) truncate(to int64) error {
	if err := q.opt.Log.TruncateTo(to); err != nil {
		return err
	}
	q.hist.truncate(to)
	q.m.voters = q.hist.voters()
	return nil
}

// appendFetched appends what is whole, valid and of an epoch that may be there.
func (q *Quorum) appendFetched(buf []byte) error {
	good := 0
	end := q.opt.Log.Offsets().End
	for rest := buf; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err != nil || !b.ValidCRC() || b.LeaderEpoch() > q.m.epoch || b.BaseOffset() < end {
			break
		}
		end = b.NextOffset()
		good += len(b)
		rest = after
	}
	if good > 0 {
		if err := q.write(buf[:good]); err != nil {
			return err
		}
	}
	if good < len(buf) {
		if _, _, err := record.Next(buf[good:]); !errors.Is(err, record.ErrShort) {
			return fmt.Errorf("%d of %d bytes are no batches for offset %d and epoch %d", len(buf)-good, len(buf), end, q.m.epoch)
		}
	}
	return nil
}

// download is a snapshot on its way from the leader.
type download struct {
	id   SnapshotID
	part string
	file vfs.File
	at   int64
}

func (q *Quorum) beginDownload(id SnapshotID) error {
	q.dropDownload()
	if id.Epoch < q.logEnd().epoch || id.Epoch == q.logEnd().epoch && id.EndOffset <= q.logEnd().offset && q.logEnd().offset > 0 {
		return fmt.Errorf("it is older than the log, which ends at offset %d of epoch %d", q.logEnd().offset, q.logEnd().epoch)
	}
	part := path.Join(q.opt.Dir, fmt.Sprintf("%s-%016x%s%s", strings.TrimSuffix(id.fileName(), checkpointSuffix), q.opt.Random(), checkpointSuffix, partSuffix))
	file, err := q.opt.FS.OpenFile(part, vfs.ReadWrite|vfs.Create|vfs.Trunc)
	if err != nil {
		return err
	}
	q.download = &download{id: id, part: part, file: file}
	return nil
}

func (q *Quorum) dropDownload() {
	if d := q.download; d != nil {
		d.file.Close()
		q.opt.FS.Remove(d.part)
		q.download = nil
	}
}

func (q *Quorum) sendFetchSnapshot(to Destination) {
	d := q.download
	p := kmsg.NewFetchSnapshotRequestTopicPartition()
	p.CurrentLeaderEpoch, p.Position, p.ReplicaDirectoryID = q.m.epoch, d.at, q.self.Dir
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = d.id.EndOffset, d.id.Epoch
	t := kmsg.NewFetchSnapshotRequestTopic()
	t.Topic, t.Partitions = ids.MetadataTopic, []kmsg.FetchSnapshotRequestTopicPartition{p}
	rq := kmsg.NewPtrFetchSnapshotRequest()
	rq.Version, rq.ClusterID, rq.ReplicaID, rq.MaxBytes, rq.Topics = 1, q.cluster(), q.self.ID, q.opt.SnapshotMaxBytes, []kmsg.FetchSnapshotRequestTopic{t}
	q.peers.fetching = true
	q.send(to, rq, func(r kmsg.Response, err error, now time.Time) {
		q.peers.fetching = false
		resp, ok := r.(*kmsg.FetchSnapshotResponse)
		if err != nil || !ok {
			q.backOff(to.ID, now)
			q.peers.detour = true
			return
		}
		if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			// Kafka's leader answers so when it does not have the snapshot any more.
			q.dropDownload()
			q.backOff(to.ID, now)
			return
		}
		p := &resp.Topics[0].Partitions[0]
		if p.ErrorCode == kerr.SnapshotNotFound.Code {
			q.dropDownload()
			q.m.fetchSucceeded(now)
			return
		}
		if !q.common(to.ID, p.ErrorCode, p.CurrentLeader.LeaderEpoch, p.CurrentLeader.LeaderID, nil, now) && q.download == d {
			q.tookPart(p, now)
		}
	})
}

func (q *Quorum) tookPart(p *kmsg.FetchSnapshotResponseTopicPartition, now time.Time) {
	d := q.download
	if p.Position != d.at || p.SnapshotID.EndOffset != d.id.EndOffset || p.SnapshotID.Epoch != d.id.Epoch || d.at+int64(len(p.Bytes)) > p.Size {
		q.opt.Logger.Error("a snapshot download does not fit together", "snapshot", d.id.fileName(), "position", p.Position, "expected", d.at)
		q.dropDownload()
		return
	}
	_, err := d.file.WriteAt(p.Bytes, d.at)
	d.at += int64(len(p.Bytes))
	if err == nil && d.at == p.Size {
		err = q.install(d)
	}
	if err != nil {
		q.opt.Logger.Error("snapshot download", "snapshot", d.id.fileName(), "error", err)
		q.dropDownload()
		q.backOff(q.m.leader, now)
		return
	}
	q.m.fetchSucceeded(now)
}

// install puts a downloaded snapshot in the place of the log.
func (q *Quorum) install(d *download) error {
	if err := d.file.Sync(); err != nil {
		return err
	}
	for _, err := range snapshotBatches(q.opt.FS, d.part) {
		if err != nil {
			return err
		}
	}
	if err := d.file.Close(); err != nil {
		return err
	}
	q.download = nil
	if err := freeze(q.opt.FS, q.opt.Dir, d.part, d.id); err != nil {
		return err
	}
	// From here on a crash is finished by the next start.
	if err := q.opt.Log.TruncateFully(d.id.EndOffset); err != nil {
		q.fail(err)
		return nil
	}
	for _, old := range q.snaps {
		q.opt.FS.Remove(path.Join(q.opt.Dir, old.fileName()))
	}
	q.snaps = []SnapshotID{d.id}
	q.hist.dropAll()
	if err := q.loadHead(d.id, d.id.EndOffset-1); err != nil {
		q.fail(err)
		return nil
	}
	q.m.voters = q.hist.voters()
	q.m.setHW(d.id.EndOffset)
	return nil
}
