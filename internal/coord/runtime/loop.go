package runtime

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
)

type state int8

const (
	loading state = iota
	active
	failed
	stopped
)

// part is one shard and its loop.
type part struct {
	r     *Runtime
	id    int32
	epoch int32
	log   Log

	hw     atomic.Int64
	cancel atomic.Pointer[func()]

	mu struct {
		sync.Mutex
		state   state
		queue   []queued
		running bool // the loop
		wake    bool // something happened beside the queue
		ended   bool // the shard has been unloaded
		err     error
	}

	// The loop's alone.
	shard   Shard
	parked  []parked // by offset
	end     int64    // next offset after what was appended or loaded
	batch   batch
	timer   *time.Timer
	timerAt time.Time
}

type queued struct {
	op   func(s Shard, now time.Time) []Result
	lost func(error)
}

// parked waits for the high watermark to reach upTo.
type parked struct {
	upTo  int64
	until time.Time
	done  func(time.Time, error) []Result
}

// batch collects the records of operations until they are appended together.
type batch struct {
	records []Record
	size    int
	results []Result // in order; those without records wait for the batch too
}

func newPart(r *Runtime, id, epoch int32, log Log) *part {
	p := &part{r: r, id: id, epoch: epoch, log: log}
	p.mu.running = true // load is the loop's first work
	return p
}

func (p *part) name() string { return fmt.Sprintf("%s-%d", p.r.opt.Topic, p.id) }

var errResigned = fmt.Errorf("this broker does not coordinate the group any more: %w", kerr.NotCoordinator)

// load replays the log and opens the shard for operations.
func (p *part) load() {
	began := p.r.opt.Now()
	shard := p.r.opt.New(p.id)
	end, err := p.replay(shard)
	if err == nil && p.isStopped() {
		err = errResigned
	}
	p.mu.Lock()
	if err == nil && p.mu.state == loading {
		p.shard, p.end = shard, end
		p.mu.state, p.mu.wake = active, true
		p.mu.Unlock()
		p.r.opt.Logger.Debug("coordinator loaded", "partition", p.name(), "epoch", p.epoch, "offset", end, "took", p.r.opt.Now().Sub(began))
		p.take(shard.Loaded(p.r.opt.Now()))
		p.run()
		return
	}
	if p.mu.state == loading {
		p.mu.state, p.mu.err = failed, err
	}
	p.mu.ended, p.mu.running = true, false
	p.mu.Unlock()
	p.stopWatching()
	if !errors.Is(err, errResigned) {
		p.r.opt.Logger.Error("coordinator cannot load", "partition", p.name(), "epoch", p.epoch, "error", err)
	}
	p.r.mu.running.Done()
}

func (p *part) isStopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.state == stopped
}

// replay feeds the committed log to the shard, up to where it ended when leading began.
func (p *part) replay(shard Shard) (end int64, err error) {
	changed := make(chan struct{}, 1)
	cancel := p.log.OnHighWatermark(func(hw int64) {
		p.hw.Store(hw)
		select {
		case changed <- struct{}{}:
		default:
		}
		p.woken()
	})
	p.cancel.Store(&cancel)
	if p.isStopped() {
		p.stopWatching()
		return 0, errResigned
	}
	p.hw.Store(max(p.hw.Load(), p.log.HighWatermark()))
	target := p.log.HighWatermark()
	if e, ok := p.log.(Ended); ok {
		target = max(target, e.End())
	}
	at := p.log.LogStart()
	for at < target {
		if p.isStopped() {
			return 0, errResigned
		}
		if at >= p.log.HighWatermark() {
			select { // the rest will be committed by this leader, or leading ends
			case <-changed:
			case <-time.After(time.Second):
			}
			continue
		}
		buf, err := p.log.Read(at, p.r.opt.LoadBuffer)
		if errors.Is(err, kerr.OffsetOutOfRange) && p.log.LogStart() > at {
			at = p.log.LogStart()
			continue
		}
		if err != nil {
			return 0, err
		}
		next, err := Replay(shard, buf, at, func(offset int64, err error) {
			p.r.opt.Logger.Warn("record skipped while loading", "partition", p.name(), "offset", offset, "error", err)
		})
		if err != nil {
			return 0, err
		}
		if next <= at {
			return 0, fmt.Errorf("%s: nothing readable at offset %d below the high watermark %d: %w", p.name(), at, p.log.HighWatermark(), kerr.KafkaStorageError)
		}
		at = next
	}
	return at, nil
}

const maxDecompressed = 64 << 20

// Replay feeds whole batches to a shard, skipping records below from, and gives the
// offset after them. Records that the shard cannot read are reported and skipped.
func Replay(shard Shard, buf []byte, from int64, skipped func(offset int64, err error)) (next int64, err error) {
	next = from
	for len(buf) > 0 {
		b, rest, err := record.Next(buf)
		if errors.Is(err, record.ErrShort) {
			return next, nil
		}
		if err != nil {
			return next, fmt.Errorf("%w: %w", kerr.CorruptMessage, err)
		}
		buf = rest
		if b.LastOffset() < from {
			continue
		}
		if err := replayBatch(shard, b, from, skipped); err != nil {
			return next, fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
		}
		next = b.NextOffset()
	}
	return next, nil
}

func replayBatch(shard Shard, b record.Batch, from int64, skipped func(int64, error)) error {
	p := b.Payload()
	if c := b.Codec(); c != record.None {
		var err error
		if p, err = record.Decompress(nil, c, p, maxDecompressed); err != nil {
			return err
		}
	}
	for range b.Count() {
		r, err := record.ReadRecord(p, false)
		if err != nil {
			return err
		}
		p = p[r.Size:]
		offset := b.BaseOffset() + int64(r.OffsetDelta)
		if offset < from {
			continue
		}
		if b.IsControl() {
			if commit, ok := marker(r.Key); ok {
				if err := shard.EndTransaction(b.ProducerID(), b.ProducerEpoch(), commit); err != nil {
					skipped(offset, err)
				}
			}
			continue
		}
		s := Source{Offset: offset, Timestamp: b.BaseTimestamp() + r.TimestampDelta, ProducerID: record.NoProducer, ProducerEpoch: record.NoEpoch}
		if b.IsTransactional() {
			s.ProducerID, s.ProducerEpoch = b.ProducerID(), b.ProducerEpoch()
		}
		if err := shard.Replay(s, Record{r.Key, r.Value}); err != nil {
			skipped(offset, err)
		}
	}
	return nil
}

// marker reads the key of a transaction marker: int16 version, int16 type.
func marker(key []byte) (commit, ok bool) {
	if len(key) < 4 || key[2] != 0 || key[3] > 1 {
		return false, false
	}
	return key[3] == 1, true
}

func (p *part) do(op func(s Shard, now time.Time) []Result, lost func(error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.mu.state {
	case loading:
		return fmt.Errorf("%s is loading: %w", p.name(), kerr.CoordinatorLoadInProgress)
	case failed:
		return fmt.Errorf("%s could not be loaded (%v): %w", p.name(), p.mu.err, kerr.CoordinatorNotAvailable)
	case stopped:
		return errResigned
	}
	if len(p.mu.queue) >= p.r.opt.MaxQueue {
		return fmt.Errorf("%d operations wait for %s: %w", len(p.mu.queue), p.name(), kerr.CoordinatorLoadInProgress)
	}
	p.mu.queue = append(p.mu.queue, queued{op, lost})
	p.startLocked()
	return nil
}

// startLocked runs the loop if it rests.
func (p *part) startLocked() {
	if !p.mu.running && !p.mu.ended && p.mu.state != loading {
		p.mu.running = true
		go p.run()
	}
}

// woken makes the loop look at high watermark, timer and state.
func (p *part) woken() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.wake = true
	p.startLocked()
}

func (p *part) stop() {
	p.mu.Lock()
	if p.mu.state == stopped {
		p.mu.Unlock()
		return
	}
	p.mu.state, p.mu.wake = stopped, true
	p.startLocked()
	p.mu.Unlock()
	p.stopWatching()
}

func (p *part) stopWatching() {
	if cancel := p.cancel.Swap(nil); cancel != nil {
		(*cancel)()
	}
}

// run works until nothing is left to do.
func (p *part) run() {
	for {
		p.mu.Lock()
		queue, woken, st := p.mu.queue, p.mu.wake, p.mu.state
		p.mu.queue, p.mu.wake = nil, false
		if st != active {
			p.mu.ended, p.mu.running = true, false
			p.mu.Unlock()
			p.unload(queue)
			return
		}
		if len(queue) == 0 && !woken {
			p.mu.running = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		for _, q := range queue {
			p.take(q.op(p.shard, p.r.opt.Now()))
		}
		now := p.r.opt.Now()
		if next := p.shard.Next(); !next.IsZero() && !now.Before(next) {
			p.take(p.shard.Tick(now))
		}
		p.flush()
		for p.release(now); len(p.batch.results) > 0; p.release(now) {
			p.flush()
		}
		p.arm()
	}
}

// take puts results into the batch, or finishes those that need not wait.
func (p *part) take(results []Result) {
	for _, res := range results {
		if res.Now && len(res.Records) == 0 {
			if res.Done != nil {
				p.take(res.Done(p.r.opt.Now(), nil))
			}
			continue
		}
		size := 0
		for _, r := range res.Records {
			size += len(r.Key) + len(r.Value) + 32
		}
		if len(p.batch.records) > 0 && p.batch.size+size > p.r.opt.MaxBatch {
			p.flush()
		}
		p.batch.records = append(p.batch.records, res.Records...)
		p.batch.size += size
		p.batch.results = append(p.batch.results, res)
	}
}

// flush appends what was collected.
func (p *part) flush() {
	for len(p.batch.results) > 0 {
		b := p.batch
		p.batch = batch{}
		now := p.r.opt.Now()
		err := p.append(b.records, now)
		if err != nil {
			p.r.opt.Logger.Warn("coordinator append failed", "partition", p.name(), "epoch", p.epoch, "error", err)
			// First all of them are undone, newest first, then anyone is told.
			for i := len(b.results) - 1; i >= 0; i-- {
				if undo := b.results[i].Undo; undo != nil {
					undo()
				}
			}
		}
		for _, res := range b.results {
			switch {
			case res.Done == nil:
			case err != nil:
				p.take(res.Done(now, err))
			default:
				p.parked = append(p.parked, parked{p.end, now.Add(p.r.opt.CommitTimeout), res.Done})
			}
		}
	}
}

func (p *part) append(records []Record, now time.Time) error {
	if len(records) == 0 {
		return nil
	}
	b := record.Builder{Timestamp: record.Millis(now), LeaderEpoch: p.epoch}
	if p.r.opt.Codec != nil {
		b.Codec, b.Level = p.r.opt.Codec()
	}
	for _, r := range records {
		b.Add(r.Key, r.Value)
	}
	last, err := p.log.Append(b.Build(), p.epoch)
	if err == nil {
		p.end = last + 1
	}
	return err
}

// release answers those whose records are committed, or who waited too long for it.
func (p *part) release(now time.Time) {
	hw := max(p.hw.Load(), p.log.HighWatermark())
	for len(p.parked) > 0 {
		first := p.parked[0]
		var err error
		if first.upTo > hw {
			if now.Before(first.until) {
				return
			}
			err = fmt.Errorf("not replicated within offsets.commit.timeout.ms=%d: %w", p.r.opt.CommitTimeout.Milliseconds(), kerr.RequestTimedOut)
		}
		p.parked = p.parked[1:]
		p.take(first.done(now, err))
	}
	p.parked = nil
}

// arm sets the one timer for what comes next.
func (p *part) arm() {
	next := p.shard.Next()
	if len(p.parked) > 0 && (next.IsZero() || p.parked[0].until.Before(next)) {
		next = p.parked[0].until
	}
	if next.Equal(p.timerAt) && p.timer != nil && next.After(p.r.opt.Now()) {
		return
	}
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.timerAt = next
	if !next.IsZero() {
		p.timer = time.AfterFunc(max(0, next.Sub(p.r.opt.Now())), p.woken)
	}
}

// unload answers everyone that this broker does not coordinate any more.
func (p *part) unload(queue []queued) {
	if p.timer != nil {
		p.timer.Stop()
	}
	for _, q := range queue {
		q.lost(errResigned)
	}
	now := p.r.opt.Now()
	for _, w := range p.parked {
		w.done(now, errResigned)
	}
	for _, res := range p.batch.results {
		if res.Done != nil {
			res.Done(now, errResigned)
		}
	}
	p.parked, p.batch = nil, batch{}
	if p.shard != nil {
		p.shard.Unload(errResigned)
	}
	p.stopWatching()
	p.r.mu.running.Done()
}
