package partition

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/meta/image"
	"runnel/internal/store/commitlog"
)

// Role is what this replica is now.
type Role int8

const (
	Opening  Role = iota // its log is not there yet
	Leader               // takes appends
	Follower             // copies from a leader
	Offline              // its log or directory failed; Err says how
	Deleted              // removed from this broker
)

var roleNames = [...]string{"opening", "leader", "follower", "offline", "deleted"}

func (r Role) String() string { return roleNames[r] }

// State is an immutable snapshot of the role and what belongs to it.
type State struct {
	Role           Role
	Leader         int32 // node id, image.NoLeader if none
	LeaderEpoch    int32
	PartitionEpoch int32
	EpochStart     int64 // log end when this replica became leader of LeaderEpoch
	Replicas, ISR  []int32
	Log            *commitlog.Log // nil while opening, offline or deleted
	Err            error
	MinISR         int32 // min.insync.replicas, at most the number of replicas
}

// Options make a Partition.
type Options struct {
	TP              ids.TopicPartition
	TopicID         ids.UUID
	NodeID          int32
	Config          *config.Log
	MaxDecompressed int // bytes one batch may decompress to
	// Admit is asked before every append: nil, or why the directory takes none now.
	Admit func(log *commitlog.Log) error
}

// Partition is one replica.
type Partition struct {
	opts    Options
	state   atomic.Pointer[State]
	rules   atomic.Pointer[record.Rules]
	trusted atomic.Pointer[record.Rules] // for the broker's own batches
	conf    atomic.Pointer[config.Log]

	mu struct {
		sync.Mutex
		// progress is what each follower has, by node id; kept only while leading.
		progress map[int32]int64
	}
	watch watchers
	stats Stats
}

// Stats are a partition's counters; all fields may be read at any time.
type Stats struct {
	MessagesIn, BytesIn, BytesOut                 atomic.Int64
	ProduceRequests, FailedProduce, BytesRejected atomic.Int64
	FetchRequests, FailedFetch                    atomic.Int64
}

// Stats are the counters since this replica was made.
func (p *Partition) Stats() *Stats { return &p.stats }

// New makes a replica whose log is not open yet.
func New(o Options) *Partition {
	p := &Partition{opts: o}
	p.SetConfig(o.Config)
	p.state.Store(&State{Role: Opening, Leader: image.NoLeader, LeaderEpoch: -1, PartitionEpoch: -1, MinISR: 1})
	return p
}

// TP and TopicID name the partition; State is its current snapshot.
func (p *Partition) TP() ids.TopicPartition { return p.opts.TP }
func (p *Partition) TopicID() ids.UUID      { return p.opts.TopicID }
func (p *Partition) State() *State          { return p.state.Load() }
func (p *Partition) Config() *config.Log    { return p.conf.Load() }

// SetConfig puts a topic's changed configuration in force.
func (p *Partition) SetConfig(c *config.Log) {
	p.conf.Store(c)
	rules := c.Rules(p.opts.MaxDecompressed)
	p.rules.Store(&rules)
	own := rules
	own.Internal, own.KeyRequired = true, false
	p.trusted.Store(&own)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.state.Load(); s != nil {
		next := *s
		next.MinISR = minISR(c, len(s.Replicas))
		p.state.Store(&next)
		if s.Log != nil {
			s.Log.SetConfig(c)
		}
	}
}

func minISR(c *config.Log, replicas int) int32 {
	if replicas == 0 {
		return c.MinInsyncReplicas
	}
	return min(c.MinInsyncReplicas, int32(replicas))
}

// Apply takes the role that the image gives this replica. log is its open log. Older
// partition epochs are ignored.
func (p *Partition) Apply(log *commitlog.Log, want *image.Partition) error {
	p.mu.Lock()
	err := p.applyLocked(log, want)
	p.mu.Unlock()
	p.watch.fire()
	if err != nil {
		p.Fail(err)
	}
	return err
}

func (p *Partition) applyLocked(log *commitlog.Log, want *image.Partition) error {
	old := p.state.Load()
	if old.Role == Deleted || old.Log != nil && want.PartitionEpoch < old.PartitionEpoch {
		return nil
	}
	next := &State{
		Role: Follower, Leader: want.Leader, LeaderEpoch: want.LeaderEpoch, PartitionEpoch: want.PartitionEpoch,
		Replicas: want.Replicas, ISR: want.ISR, Log: log, EpochStart: old.EpochStart,
		MinISR: minISR(p.conf.Load(), len(want.Replicas)),
	}
	if want.Leader == p.opts.NodeID {
		next.Role = Leader
		if old.Role != Leader || old.LeaderEpoch != want.LeaderEpoch {
			// The epoch starts here even if nothing is ever written in it (R5).
			next.EpochStart = log.Offsets().End
			if err := log.AssignEpoch(want.LeaderEpoch, next.EpochStart); err != nil {
				return fmt.Errorf("starting leader epoch %d: %w", want.LeaderEpoch, err)
			}
			p.mu.progress = map[int32]int64{}
		}
	} else {
		p.mu.progress = nil
	}
	p.state.Store(next)
	if next.Role == Leader {
		p.advanceLocked(next)
	}
	return nil
}

// advanceLocked moves the high watermark to the smallest end offset of the in-sync set.
func (p *Partition) advanceLocked(s *State) (moved bool) {
	if int32(len(s.ISR)) < s.MinISR {
		return false
	}
	hw := s.Log.Offsets().End
	for _, id := range s.ISR {
		if id == p.opts.NodeID {
			continue
		}
		end, known := p.mu.progress[id]
		if !known {
			return false
		}
		hw = min(hw, end)
	}
	return s.Log.AdvanceHighWatermark(hw)
}

// FollowerFetched notes that a replica has everything below offset, which is what its
// fetch at offset says, and moves the high watermark if that is news.
func (p *Partition) FollowerFetched(node int32, offset int64) {
	p.mu.Lock()
	moved := false
	if s := p.state.Load(); s.Role == Leader {
		p.mu.progress[node] = offset
		moved = p.advanceLocked(s)
	}
	p.mu.Unlock()
	if moved {
		p.watch.fire()
	}
}

// Fail takes the replica offline after an I/O error. Whoever waits learns of it.
func (p *Partition) Fail(err error) {
	p.mu.Lock()
	if s := p.state.Load(); s.Role != Offline && s.Role != Deleted {
		next := *s
		next.Role, next.Log, next.Err = Offline, nil, err
		p.state.Store(&next)
	}
	p.mu.Unlock()
	p.watch.fire()
}

// Delete ends the replica; its log is the caller's to remove.
func (p *Partition) Delete() {
	p.mu.Lock()
	next := *p.state.Load()
	next.Role, next.Log = Deleted, nil
	p.state.Store(&next)
	p.mu.Unlock()
	p.watch.fire()
}

// Swap puts another copy of the log in its place. swap runs while nothing can be
// appended; nil keeps the log.
func (p *Partition) Swap(swap func() (*commitlog.Log, error)) error {
	p.mu.Lock()
	old := p.state.Load()
	if old.Log == nil {
		p.mu.Unlock()
		return fmt.Errorf("%s has no log to replace: %w", p.opts.TP, kerr.ReplicaNotAvailable)
	}
	log, err := swap()
	if err == nil && log != nil {
		next := *old
		next.Log = log
		p.state.Store(&next)
	}
	p.mu.Unlock()
	p.watch.fire()
	return err
}

// Leading gives the snapshot if this replica leads, at the epoch the caller knows of: -1
// skips that check. Spec: semantics.md 6.2.
func (p *Partition) Leading(epoch int32) (*State, error) {
	s := p.state.Load()
	if err := p.usable(s); err != nil {
		return s, err
	}
	if err := checkEpoch(s, epoch); err != nil {
		return s, err
	}
	if s.Role != Leader {
		return s, kerr.NotLeaderForPartition
	}
	return s, nil
}

// Readable is Leading for what a follower may answer too.
func (p *Partition) Readable(epoch int32) (*State, error) {
	s := p.state.Load()
	if err := p.usable(s); err != nil {
		return s, err
	}
	return s, checkEpoch(s, epoch)
}

func (p *Partition) usable(s *State) error {
	switch s.Role {
	case Offline:
		return fmt.Errorf("%s is offline: %v: %w", p.opts.TP, s.Err, kerr.KafkaStorageError)
	case Deleted:
		return kerr.UnknownTopicOrPartition
	case Opening:
		return kerr.NotLeaderForPartition
	}
	return nil
}

func checkEpoch(s *State, epoch int32) error {
	switch {
	case epoch == -1 || epoch == s.LeaderEpoch:
		return nil
	case epoch < s.LeaderEpoch:
		return kerr.FencedLeaderEpoch
	}
	return kerr.UnknownLeaderEpoch
}

// AtRisk reports what an operator watches.
type AtRisk struct{ UnderReplicated, UnderMinISR, AtMinISR, Offline bool }

// Risk judges the replica as its leader sees it.
func (p *Partition) Risk() AtRisk {
	s := p.state.Load()
	if s.Role == Offline {
		return AtRisk{Offline: true}
	}
	if s.Role != Leader {
		return AtRisk{}
	}
	n := int32(len(s.ISR))
	return AtRisk{UnderReplicated: len(s.ISR) < len(s.Replicas), UnderMinISR: n < s.MinISR, AtMinISR: n == s.MinISR && len(s.Replicas) > 1}
}

// InISR reports whether a node is in the in-sync set.
func (s *State) InISR(node int32) bool { return slices.Contains(s.ISR, node) }

// Appended is a produced batch's place.
type Appended = commitlog.Appended

// Produce checks a client's batch and appends it. The offsets in the answer are fixed;
// whether it is committed is for Committed to say.
func (p *Partition) Produce(b record.Batch, acksAll bool, now time.Time) (Appended, *State, error) {
	size := int64(len(b))
	a, s, err := p.produce(b, acksAll, now)
	p.stats.ProduceRequests.Add(1)
	switch {
	case err == nil && !a.Duplicate:
		p.stats.MessagesIn.Add(a.LastOffset - a.BaseOffset + 1)
		p.stats.BytesIn.Add(size)
	case errors.Is(err, kerr.MessageTooLarge):
		p.stats.BytesRejected.Add(size)
	case err != nil && !errors.Is(err, kerr.NotLeaderForPartition):
		p.stats.FailedProduce.Add(1)
	}
	return a, s, err
}

func (p *Partition) produce(b record.Batch, acksAll bool, now time.Time) (Appended, *State, error) {
	s, err := p.Leading(-1)
	if err != nil {
		return Appended{}, s, err
	}
	if acksAll && int32(len(s.ISR)) < s.MinISR {
		return Appended{}, s, fmt.Errorf("%d replicas are in sync, min.insync.replicas=%d: %w", len(s.ISR), s.MinISR, kerr.NotEnoughReplicas)
	}
	if err := p.opts.Admit(s.Log); err != nil {
		return Appended{}, s, err
	}
	checked, err := record.Check(b, p.rules.Load(), now.UnixMilli())
	if err != nil {
		return Appended{}, s, err
	}
	return p.append(checked, s.LeaderEpoch, now)
}

// Append appends a batch that the broker itself made, as leader at leaderEpoch and with
// the durability of acks=all (coord/runtime's Log).
func (p *Partition) Append(b record.Batch, leaderEpoch int32) (lastOffset int64, err error) {
	now := time.Now()
	s, err := p.Leading(leaderEpoch)
	if err != nil {
		return 0, err
	}
	if int32(len(s.ISR)) < s.MinISR {
		return 0, fmt.Errorf("%d replicas are in sync, min.insync.replicas=%d: %w", len(s.ISR), s.MinISR, kerr.NotEnoughReplicas)
	}
	if err := p.opts.Admit(s.Log); err != nil {
		return 0, err
	}
	checked, err := record.Check(b, p.trusted.Load(), now.UnixMilli())
	if err != nil {
		return 0, err
	}
	a, _, err := p.append(checked, leaderEpoch, now)
	return a.LastOffset, err
}

// append writes under the lock that orders appends with role changes.
func (p *Partition) append(c record.Checked, epoch int32, now time.Time) (Appended, *State, error) {
	p.mu.Lock()
	s, err := p.Leading(epoch)
	if err != nil {
		p.mu.Unlock()
		if err == kerr.FencedLeaderEpoch {
			err = kerr.NotLeaderForPartition // led at the check, not any more
		}
		return Appended{}, s, err
	}
	a, err := s.Log.Append(c, s.LeaderEpoch, now)
	if err == nil && !a.Duplicate {
		p.advanceLocked(s)
	}
	p.mu.Unlock()
	if err != nil {
		if failed := s.Log.Failed(); failed != nil {
			p.Fail(failed)
		}
		return a, s, err
	}
	if !a.Duplicate {
		p.watch.fire()
	}
	return a, s, nil
}

// Committed says whether everything below next is committed: done, or the error that
// ended the wait. acks=all waits for it with Watch.
func (p *Partition) Committed(next int64, epoch int32) (done bool, err error) {
	s := p.state.Load()
	if err := p.usable(s); err != nil {
		return true, err
	}
	if s.Role != Leader || s.LeaderEpoch != epoch {
		return true, kerr.NotLeaderForPartition
	}
	if s.Log.Offsets().HighWatermark < next {
		return false, nil
	}
	if int32(len(s.ISR)) < s.MinISR {
		return true, kerr.NotEnoughReplicasAfterAppend
	}
	return true, nil
}
