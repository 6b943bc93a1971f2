package commitlog

import (
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/epoch"
	"runnel/internal/store/producer"
	"runnel/internal/store/segment"
)

// Options says which log to open and how.
type Options struct {
	FS  vfs.FS
	Dir string
	TP  ids.TopicPartition
	// TopicID is written to a new directory; an existing one must carry it, unless it is
	// zero, which takes whatever is there.
	TopicID ids.UUID
	Config  *config.Log
	Now     func() time.Time
	Random  func() uint64 // draws the jitter of segment.ms
	// LogStart and RecoveryPoint are the checkpointed values, 0 without one.
	LogStart, RecoveryPoint int64
	// CleanedTo is where the cleaner's last pass ended: below it batches may be missing.
	CleanedTo int64
	// HighWatermark is the checkpointed one; it is clamped to the log.
	HighWatermark int64
	// Clean says that the directory was stopped cleanly: nothing needs to be scanned.
	Clean bool
	// ProducerExpiryMs is producer.id.expiration.ms.
	ProducerExpiryMs int64
	// MetadataLog is __cluster_metadata: no partition.metadata, its checkpoints are kept.
	MetadataLog bool
	// New promises that the directory does not exist yet.
	New bool
	// Rolled is called, without a lock, after a segment was closed and wants FlushInactive.
	Rolled func(*Log)
	// Lowered is called, without the writer's lock, before the log is cut below what a
	// checkpoint of the recovery point may say: it must make a lower one durable.
	Lowered func(l *Log, recoveryPoint int64) error
	// Broken is called once, without a lock held by the log's users, when the log fails.
	Broken func(*Log, error)
}

// Log is one open log.
type Log struct {
	o      Options
	pub    published
	epochs epoch.Cache
	failed atomic.Pointer[error]
	cuts   atomic.Int64 // truncations: a reader that met one half-way looks again
	ended  atomic.Bool  // closed or abandoned: errors of its files are nobody's concern
	config atomic.Pointer[config.Log]
	dir    atomic.Pointer[string]

	lastFlush atomic.Int64 // ms
	flush     sync.Mutex   // taken before mu; held while syncing
	mu        struct {
		sync.Mutex
		view
		list       *[]*segment.Segment
		producers  producer.State
		topicID    ids.UUID
		jitter     int64
		snapshot   int64 // end offset of the newest snapshot file
		namesDirty bool  // files were made or renamed since the last directory sync
		identified bool  // partition.metadata is durable
		rooted     bool  // the first segment's name is durable
		parented   bool  // so is the directory's own name
		changes    int64 // counts truncations, for those who rewrite segments
		cutTo      int64 // lowest truncation since a flush began
		doomed     []doomed
		closed     bool
	}
}

// doomed is a renamed file that is removed when it is due.
type doomed struct {
	name string
	due  time.Time
}

// ErrClosed answers calls after Close.
var ErrClosed = errors.New("log is closed")

// TP names the partition, Dir its directory, TopicID the topic (zero for the metadata log).
func (l *Log) TP() ids.TopicPartition { return l.o.TP }
func (l *Log) Dir() string            { return *l.dir.Load() }
func (l *Log) TopicID() ids.UUID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.topicID
}

// Identify ties a log that nobody named yet (its partition.metadata was lost before
// anything was durable) to its topic.
func (l *Log) Identify(id ids.UUID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.topicID == id {
		return nil
	}
	if !l.mu.topicID.IsZero() {
		return fmt.Errorf("log %s belongs to topic id %s, not %s: %w", l.Dir(), l.mu.topicID, id, kerr.InconsistentTopicID)
	}
	if err := checkpoint.WritePartitionMetadata(l.o.FS, l.Dir(), id); err != nil {
		return l.diskErr(err)
	}
	l.mu.topicID, l.mu.identified = id, false
	return nil
}

// Config and SetConfig are the topic's current configuration.
func (l *Log) Config() *config.Log     { return l.config.Load() }
func (l *Log) SetConfig(c *config.Log) { l.config.Store(c) }

// Offsets is a consistent snapshot, without a lock.
func (l *Log) Offsets() Offsets { return l.pub.load().Offsets }

// Size is the bytes of all segments.
func (l *Log) Size() int64 {
	v := l.pub.load()
	sum := int64(0)
	for i := range v.segments {
		sum += v.limit(i)
	}
	return sum
}

// Segments is the number of segments.
func (l *Log) Segments() int { return len(l.pub.load().segments) }

// FirstBase is the base offset of the first segment.
func (l *Log) FirstBase() int64 { return l.pub.load().segments[0].Base() }

// DirectorySynced tells the log that its directory's own name is durable.
func (l *Log) DirectorySynced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.parented = true
}

// Failed is the error that ended the log, or nil.
func (l *Log) Failed() error {
	if p := l.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Fail ends the log: its disk cannot be trusted. Readers of Regions report read errors
// here.
func (l *Log) Fail(err error) error {
	if l.ended.Load() {
		return fmt.Errorf("log %s: %w: %w", l.Dir(), ErrClosed, err)
	}
	err = fmt.Errorf("log %s: %w: %w", l.Dir(), kerr.KafkaStorageError, err)
	if l.failed.CompareAndSwap(nil, &err) && l.o.Broken != nil {
		go l.o.Broken(l, err)
	}
	return *l.failed.Load()
}

// diskErr turns an error of a write into what callers see: a refusal when the disk is
// full, else the end of the log.
func (l *Log) diskErr(err error) error {
	var torn *segment.Torn
	if vfs.IsFull(err) && !errors.As(err, &torn) {
		return fmt.Errorf("log %s: disk is full: %w: %w", l.Dir(), kerr.KafkaStorageError, err)
	}
	return l.Fail(err)
}

func (l *Log) usableLocked() error {
	if err := l.Failed(); err != nil {
		return err
	}
	if l.mu.closed {
		return fmt.Errorf("log %s: %w", l.Dir(), ErrClosed)
	}
	return nil
}

func (l *Log) publishLocked() { l.pub.store(&l.mu.view, l.mu.list) }

// setSegmentsLocked replaces the segment list.
func (l *Log) setSegmentsLocked(segs []*segment.Segment) {
	l.mu.segments = segs
	l.mu.list = &segs
}

func (l *Log) activeLocked() *segment.Segment { return l.mu.segments[len(l.mu.segments)-1] }

// stableLocked moves the last stable offset after the high watermark or a transaction
// changed.
func (l *Log) stableLocked() {
	l.mu.LastStable = l.mu.HighWatermark
	if first := l.mu.producers.FirstUnstable(l.mu.HighWatermark); first != producer.None && first < l.mu.LastStable {
		l.mu.LastStable = max(first, l.mu.LogStart)
	}
}

// AdvanceHighWatermark raises the high watermark, at most to the end, and with it the last
// stable offset. It reports whether it moved.
func (l *Log) AdvanceHighWatermark(hw int64) (moved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hw = min(hw, l.mu.End)
	if hw <= l.mu.HighWatermark {
		return false
	}
	l.mu.HighWatermark = hw
	l.stableLocked()
	l.publishLocked()
	return true
}

// EpochEnd answers OffsetForLeaderEpoch from this log: the largest epoch not above the
// requested one and its end offset; (-1, -1) if unknown.
func (l *Log) EpochEnd(e int32) (int32, int64) { return l.epochs.EndOffset(e, l.Offsets().End) }

// LatestEpoch is the newest leader epoch, EarliestEpoch that of the first offset; -1
// without one. EpochFor is the epoch of the batch at offset, and EpochEntries the list.
func (l *Log) LatestEpoch() int32 { return l.epochs.Latest() }
func (l *Log) EarliestEpoch() int32 {
	if e, ok := l.epochs.Earliest(); ok {
		return e.Epoch
	}
	return epoch.Undefined
}
func (l *Log) EpochFor(offset int64) int32 { return l.epochs.For(offset) }
func (l *Log) EpochEntries() []epoch.Entry { return l.epochs.Entries() }

// AssignEpoch notes that a leader epoch begins at start.
func (l *Log) AssignEpoch(e int32, start int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	l.epochs.Assign(e, start)
	return nil
}

// Producers lists the known producers; ProducerOf one of them.
func (l *Log) Producers() []producer.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.Entries()
}

func (l *Log) ProducerOf(id int64) (producer.Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.Get(id)
}

// ExpireProducers drops producers that were idle for producer.id.expiration.ms.
func (l *Log) ExpireProducers(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.Expire(record.Millis(now), l.o.ProducerExpiryMs)
}

func (l *Log) file(name string) string { return path.Join(l.Dir(), name) }

func (l *Log) snapshotName(offset int64) string {
	return l.file(segment.Stem(offset) + segment.SnapshotSuffix)
}
