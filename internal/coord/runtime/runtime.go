package runtime

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
)

// Log is the led partition as a shard needs it. repl/partition implements it.
type Log interface {
	// Append stamps and appends as the leader of the epoch, for acks=all.
	Append(b record.Batch, leaderEpoch int32) (lastOffset int64, err error)
	HighWatermark() int64
	// OnHighWatermark calls back, with no lock held, whenever the high watermark moved.
	OnHighWatermark(func(hw int64)) (cancel func())
	// Read gives whole batches below the high watermark, from the one that holds offset on.
	Read(from int64, maxBytes int) (b []byte, err error)
	LogStart() int64
}

// Ended is a Log that knows its end. A shard is loaded up to where the log ended when
// leading began, once that is committed; without it, up to the high watermark.
type Ended interface{ End() int64 }

// Record is one record; a nil Value is a tombstone.
type Record struct{ Key, Value []byte }

// Result is what an operation decided. The shard's state has already taken it in.
type Result struct {
	// Records go into the log as part of one batch.
	Records []Record
	// Undo takes the state back, if the records could not be appended.
	Undo func()
	// Done is called in the loop once the records, or with none everything that was
	// appended before, are committed, or with why that is not known. It may decide more.
	Done func(now time.Time, err error) []Result
	// Now calls Done at once: the answer rests on nothing that must be durable.
	Now bool
}

// Source is where a replayed record stands.
type Source struct {
	Offset        int64
	Timestamp     int64
	ProducerID    int64 // record.NoProducer unless part of a transaction
	ProducerEpoch int16
}

// Shard is a replicated state machine. All calls come from one goroutine at a time.
type Shard interface {
	// Replay takes in a record of the log.
	Replay(s Source, r Record) error
	// EndTransaction settles what a producer's transaction wrote.
	EndTransaction(producerID int64, producerEpoch int16, commit bool) error
	// Loaded ends the loading: from here on operations come.
	Loaded(now time.Time) []Result
	// Next is when Tick wants to be called, zero for never.
	Next() time.Time
	Tick(now time.Time) []Result
	// Unload ends the shard; whoever waits in it is answered with err.
	Unload(err error)
}

// Options configures a Runtime.
type Options struct {
	Topic string
	// New makes an empty shard.
	New func(partition int32) Shard
	Now func() time.Time
	// CommitTimeout bounds the wait for a commit: offsets.commit.timeout.ms.
	CommitTimeout time.Duration
	LoadBuffer    int // read at once while loading: offsets.load.buffer.size
	MaxQueue      int // operations that may wait for one shard
	MaxBatch      int // bytes of one append
	Codec         func() (record.Codec, int)
	Logger        *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.CommitTimeout == 0 {
		o.CommitTimeout = 5 * time.Second
	}
	if o.LoadBuffer == 0 {
		o.LoadBuffer = 5 << 20
	}
	if o.MaxQueue == 0 {
		o.MaxQueue = 10000
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 1 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Runtime holds the shards of the partitions that this node leads.
type Runtime struct {
	opt Options
	mu  struct {
		sync.Mutex
		parts   map[int32]*part
		closed  bool
		running sync.WaitGroup
	}
}

// New makes a runtime that leads nothing.
func New(opt Options) *Runtime {
	r := &Runtime{opt: opt.withDefaults()}
	r.mu.parts = map[int32]*part{}
	return r
}

// Lead starts to load a partition's shard for a leader epoch. A call for the epoch that is
// led already, or an older one, changes nothing; a newer one starts over.
func (r *Runtime) Lead(partition, epoch int32, log Log) {
	p := newPart(r, partition, epoch, log)
	r.mu.Lock()
	old := r.mu.parts[partition]
	if r.mu.closed || old != nil && old.epoch >= epoch {
		r.mu.Unlock()
		return
	}
	r.mu.parts[partition] = p
	r.mu.running.Add(1)
	r.mu.Unlock()
	if old != nil {
		old.stop()
	}
	go p.load()
}

// Resign ends a partition's shard: another broker leads it.
func (r *Runtime) Resign(partition int32) {
	r.mu.Lock()
	p := r.mu.parts[partition]
	delete(r.mu.parts, partition)
	r.mu.Unlock()
	if p != nil {
		p.stop()
	}
}

// Led lists the partitions that are led, loaded or not.
func (r *Runtime) Led() []int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]int32, 0, len(r.mu.parts))
	for id := range r.mu.parts {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// Do queues an operation for a partition's shard. An error is the coordinator error to
// answer with; then op will not run. If the shard ends before op ran, lost is called.
func (r *Runtime) Do(partition int32, op func(s Shard, now time.Time) []Result, lost func(error)) error {
	r.mu.Lock()
	p, closed := r.mu.parts[partition], r.mu.closed
	r.mu.Unlock()
	if closed {
		return fmt.Errorf("the coordinator is stopping: %w", kerr.CoordinatorNotAvailable)
	}
	if p == nil {
		return fmt.Errorf("%s-%d is not led here: %w", r.opt.Topic, partition, kerr.NotCoordinator)
	}
	return p.do(op, lost)
}

// Close ends all shards and waits for their goroutines.
func (r *Runtime) Close() {
	r.mu.Lock()
	r.mu.closed = true
	parts := r.mu.parts
	r.mu.parts = map[int32]*part{}
	r.mu.Unlock()
	for _, p := range parts {
		p.stop()
	}
	r.mu.running.Wait()
}

// ClientError is the coordinator error for what an append or a commit failed with.
func ClientError(err error) *kerr.Error {
	var k *kerr.Error
	if !errors.As(err, &k) {
		return kerr.UnknownServerError
	}
	switch k {
	case kerr.UnknownTopicOrPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut:
		return kerr.CoordinatorNotAvailable
	case kerr.NotLeaderForPartition, kerr.KafkaStorageError, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch:
		return kerr.NotCoordinator
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidFetchSize:
		return kerr.UnknownServerError
	case kerr.NetworkException:
		return kerr.CoordinatorLoadInProgress
	}
	return k
}
