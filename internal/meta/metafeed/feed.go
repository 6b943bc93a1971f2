package metafeed

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
	"runnel/internal/meta/quorum"
)

// Subscriber is told of a new image and of what changed since the one before. A snapshot
// comes as the difference to what was known.
type Subscriber func(delta *image.Delta, img *image.Image)

// Controller is who decides while this node leads.
type Controller interface {
	Lead(epoch int32, committed *image.Image, endOffset int64)
	Resign(epoch int32)
}

// Options configures a Feed.
type Options struct {
	// Subscribers are called in this order.
	Subscribers []Subscriber
	Controller  Controller // nil on a node without the controller role
	// NotLeading is told who leads instead, -1 if that is not known. May be nil.
	NotLeading func(epoch, leader int32)
	Now        func() time.Time
	Logger     *slog.Logger
	// Fatal is called once, when a record cannot be replayed.
	Fatal func(error)

	// WriteSnapshot is the quorum's; nil makes none.
	WriteSnapshot func(id quorum.SnapshotID, ts int64, values iter.Seq[[]byte]) error
	SnapshotBytes int64         // metadata.log.max.record.bytes.between.snapshots, 0 is Kafka's default
	SnapshotEvery time.Duration // metadata.log.max.snapshot.interval.ms, 0 off
}

// Feed holds the current image.
type Feed struct {
	opt     Options
	current atomic.Pointer[image.Image]

	// Of the quorum's listener goroutine.
	led        int32 // epoch led, -1
	failed     bool
	sinceBytes int64
	sinceTime  time.Time

	writing sync.WaitGroup
	busy    atomic.Bool // a snapshot is being written

	mu struct {
		sync.Mutex
		waiters map[chan struct{}]int64
	}
}

// New makes a feed with an empty image.
func New(opt Options) *Feed {
	if opt.SnapshotBytes == 0 {
		opt.SnapshotBytes = 20 << 20
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Fatal == nil {
		opt.Fatal = func(error) {}
	}
	f := &Feed{opt: opt, led: -1, sinceTime: opt.Now()}
	f.mu.waiters = map[chan struct{}]int64{}
	f.current.Store(image.Empty())
	return f
}

// SetSnapshotWriter names the quorum's WriteSnapshot where the quorum is made after the
// feed. It must be called before the quorum starts.
func (f *Feed) SetSnapshotWriter(w func(id quorum.SnapshotID, ts int64, values iter.Seq[[]byte]) error) {
	f.opt.WriteSnapshot = w
}

// SetController names the controller where it is made after the feed. It must be called
// before the quorum starts.
func (f *Feed) SetController(c Controller) { f.opt.Controller = c }

// Image is the newest image that all subscribers have seen.
func (f *Feed) Image() *image.Image { return f.current.Load() }

// Await returns when the image has reached offset, or with ctx's error.
func (f *Feed) Await(ctx context.Context, offset int64) error {
	if f.Image().Offset() >= offset {
		return nil
	}
	reached := make(chan struct{})
	f.mu.Lock()
	f.mu.waiters[reached] = offset
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.mu.waiters, reached)
		f.mu.Unlock()
	}()
	if f.Image().Offset() >= offset { // published between the look and the entry
		return nil
	}
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Committed replays one batch.
func (f *Feed) Committed(values [][]byte, lastOffset int64, epoch int32, timestamp int64) {
	if f.failed {
		return
	}
	records := make([]metarec.Record, len(values))
	for i, v := range values {
		r, _, err := metarec.Decode(v)
		if err != nil {
			f.fail(fmt.Errorf("metadata record at offset %d: %w", lastOffset-int64(len(values)-1-i), err))
			return
		}
		records[i] = r
		f.sinceBytes += int64(len(v))
	}
	img, delta, err := f.Image().Apply(records, lastOffset, epoch)
	if err != nil {
		f.fail(fmt.Errorf("metadata records up to offset %d cannot be replayed: %w", lastOffset, err))
		return
	}
	f.publish(delta, img)
	f.maybeSnapshot(img, timestamp)
}

// Snapshot replaces the image.
func (f *Feed) Snapshot(values iter.Seq2[[]byte, error], id quorum.SnapshotID) {
	if f.failed {
		return
	}
	var bad error
	records := func(yield func(metarec.Record) bool) {
		for v, err := range values {
			if err != nil {
				bad = err
				return
			}
			r, _, err := metarec.Decode(v)
			if err != nil {
				bad = err
				return
			}
			if !yield(r) {
				return
			}
		}
	}
	img, err := image.Load(records, id.EndOffset-1, id.Epoch)
	if bad != nil {
		err = bad
	}
	if err != nil {
		f.fail(fmt.Errorf("metadata snapshot at offset %d of epoch %d: %w", id.EndOffset, id.Epoch, err))
		return
	}
	f.sinceBytes, f.sinceTime = 0, f.opt.Now()
	f.publish(image.FromSnapshot(f.Image(), img), img)
}

func (f *Feed) publish(delta *image.Delta, img *image.Image) {
	if !delta.IsEmpty() {
		for _, s := range f.opt.Subscribers {
			s(delta, img)
		}
	}
	f.current.Store(img)
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch, offset := range f.mu.waiters {
		if offset <= img.Offset() {
			close(ch)
			delete(f.mu.waiters, ch)
		}
	}
}

// Leading starts the controller on the image that holds everything before the epoch.
func (f *Feed) Leading(epoch int32, endOffset int64) {
	if f.failed || f.opt.Controller == nil {
		return
	}
	f.led = epoch
	f.opt.Controller.Lead(epoch, f.Image(), endOffset)
}

// NotLeading stops it.
func (f *Feed) NotLeading(epoch, leader int32) {
	if f.led >= 0 {
		f.opt.Controller.Resign(f.led)
		f.led = -1
	}
	if f.opt.NotLeading != nil {
		f.opt.NotLeading(epoch, leader)
	}
}

func (f *Feed) fail(err error) {
	f.failed = true
	f.opt.Logger.Error("metadata cannot be replayed", "error", err)
	f.opt.Fatal(err)
}

// maybeSnapshot starts writing a snapshot if one is due. An idle log makes none: there is
// nothing new in it.
func (f *Feed) maybeSnapshot(img *image.Image, timestamp int64) {
	now := f.opt.Now()
	due := f.sinceBytes >= f.opt.SnapshotBytes || f.opt.SnapshotEvery > 0 && now.Sub(f.sinceTime) >= f.opt.SnapshotEvery && f.sinceBytes > 0
	if !due || img.InTransaction() || f.opt.WriteSnapshot == nil || !f.busy.CompareAndSwap(false, true) {
		return
	}
	f.sinceBytes, f.sinceTime = 0, now
	id := quorum.SnapshotID{EndOffset: img.Offset() + 1, Epoch: img.Epoch()}
	f.writing.Go(func() {
		defer f.busy.Store(false)
		level := img.MetadataVersion()
		err := f.opt.WriteSnapshot(id, timestamp, func(yield func([]byte) bool) {
			for r := range img.Snapshot() {
				if !yield(metarec.Encode(r, metarec.VersionFor(r, level))) {
					return
				}
			}
		})
		if err != nil {
			f.opt.Logger.Warn("metadata snapshot not written", "offset", id.EndOffset, "error", err)
		}
	})
}

// Close waits for a snapshot that is being written.
func (f *Feed) Close() { f.writing.Wait() }
