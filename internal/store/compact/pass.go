package compact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runnel/internal/kit/record"
	"runnel/internal/store/commitlog"
	"runnel/internal/store/producer"
	"runnel/internal/store/segment"
)

// Options bound a pass.
type Options struct {
	MapBytes int64 // log.cleaner.dedupe.buffer.size for this pass
	// MaxDecompressed bounds what one batch may decompress to.
	MaxDecompressed int
	// Pace, if set, is told the bytes read and written, and may wait.
	Pace func(bytes int)
}

// Result of a pass.
type Result struct {
	EndOffset                int64 // where the next pass begins
	BytesBefore, BytesAfter  int64
	RecordsRead, RecordsKept int64
	SegmentsBefore, Segments int
}

// ErrDamaged says that a batch fails its checksum or does not decode: the log must not be
// rewritten.
var ErrDamaged = errors.New("damaged batch")

// Pass cleans the log as planned.
func Pass(ctx context.Context, p Plan, o Options, now time.Time) (Result, error) {
	c := &pass{Plan: p, o: o, now: record.Millis(now), keys: newKeyMap(o.MapBytes), keepers: p.Log.Keepers(), ctx: ctx}
	if c.o.MaxDecompressed == 0 {
		c.o.MaxDecompressed = 256 << 20
	}
	if c.o.Pace == nil {
		c.o.Pace = func(int) {}
	}
	c.tracker = newTxnTracker(func(a commitlog.AbortedTxn) error { return c.out.AddAborted(a) })
	if err := c.mapKeys(); err != nil {
		return c.r, fmt.Errorf("clean %s: %w", p.Log.Dir(), err)
	}
	c.r.EndOffset = max(c.keys.latest+1, p.FirstDirty)
	cfg := p.Log.Config()
	for _, g := range groups(p.work, c.r.EndOffset, int64(cfg.SegmentBytes), int64(cfg.SegmentIndexBytes)) {
		if err := c.cleanGroup(g); err != nil {
			return c.r, fmt.Errorf("clean %s: %w", p.Log.Dir(), err)
		}
	}
	return c.r, nil
}

type pass struct {
	Plan
	ctx     context.Context
	o       Options
	now     int64
	keys    *keyMap
	keepers map[int64]producer.Entry
	tracker *txnTracker
	out     *segment.Segment
	pending []byte // batches to be written to out
	r       Result
}

// batches walks the whole, valid batches of a segment.
func (c *pass) batches(s *segment.Segment, from int64, see func(b record.Batch) (bool, error)) error {
	return s.Batches(from, s.Size(), func(_ int64, b record.Batch) (bool, error) {
		if err := c.ctx.Err(); err != nil {
			return false, err
		}
		if !b.ValidCRC() {
			return false, fmt.Errorf("%w: batch at offset %d fails its checksum", ErrDamaged, b.BaseOffset())
		}
		c.o.Pace(len(b))
		return see(b)
	})
}

// records decodes a batch's records.
func (c *pass) records(b record.Batch, see func(r record.Record, raw []byte) error) error {
	payload := b.Payload()
	if b.Codec() != record.None {
		var err error
		if payload, err = record.Decompress(nil, b.Codec(), payload, c.o.MaxDecompressed); err != nil {
			return fmt.Errorf("%w: batch at offset %d: %w", ErrDamaged, b.BaseOffset(), err)
		}
	}
	for range b.Count() {
		r, err := record.ReadRecord(payload, true)
		if err != nil {
			return fmt.Errorf("%w: batch at offset %d: %w", ErrDamaged, b.BaseOffset(), err)
		}
		if err := see(r, payload[:r.Size]); err != nil {
			return err
		}
		payload = payload[r.Size:]
	}
	return nil
}

var errFull = errors.New("key map is full")

// mapKeys reads the dirty part into the map, up to where the map is full.
func (c *pass) mapKeys() error {
	txns, err := c.Log.AbortedTxns(c.FirstDirty, c.FirstUncleanable)
	if err != nil {
		return err
	}
	tracker := newTxnTracker(func(commitlog.AbortedTxn) error { return nil })
	tracker.expect(txns)
	for i, s := range c.work.Segments {
		if c.work.Ends[i] <= c.FirstDirty {
			continue
		}
		if s.Base() >= c.FirstUncleanable {
			break
		}
		from := int64(0)
		if c.FirstDirty > s.Base() {
			at, found, err := s.Locate(c.FirstDirty, s.Size())
			if err != nil {
				return err
			}
			if !found {
				continue
			}
			from = at.Position
		}
		err := c.batches(s, from, func(b record.Batch) (bool, error) { return c.mapBatch(tracker, b) })
		if errors.Is(err, errFull) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *pass) mapBatch(tracker *txnTracker, b record.Batch) (more bool, err error) {
	if b.BaseOffset() >= c.FirstUncleanable {
		return false, nil
	}
	drop, err := tracker.see(b)
	if err != nil {
		return false, err
	}
	if !drop && !b.IsControl() {
		err := c.records(b, func(r record.Record, _ []byte) error {
			off := b.BaseOffset() + int64(r.OffsetDelta)
			if off < c.FirstDirty || r.Key == nil {
				return nil
			}
			if !c.keys.put(r.Key, off) {
				return errFull
			}
			c.keys.latest = off
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	c.keys.latest = max(c.keys.latest, b.LastOffset())
	return true, nil
}

// cleanGroup writes one segment in place of several.
func (c *pass) cleanGroup(g []*segment.Segment) error {
	c.out = segment.OpenCleaned(c.Log.FS(), c.Log.Dir(), g[0].Base())
	err := c.fillGroup(g)
	if err == nil {
		err = c.Log.Replace(c.work, g, c.out)
	}
	c.out.Release()
	if err != nil {
		c.out.Remove() // if that fails too, the next start removes it
		return err
	}
	c.r.SegmentsBefore += len(g)
	c.r.Segments++
	c.r.BytesAfter += c.out.Size()
	return nil
}

func (c *pass) fillGroup(g []*segment.Segment) error {
	if err := c.out.Create(time.UnixMilli(c.now)); err != nil {
		return err
	}
	for _, s := range g {
		// With those that end in later segments: their first data may be here.
		txns, err := c.Log.AbortedTxns(s.Base(), c.endOf(s))
		if err != nil {
			return err
		}
		c.tracker.expect(txns)
		c.r.BytesBefore += s.Size()
		if err := c.batches(s, 0, c.cleanBatch); err != nil {
			return err
		}
	}
	if err := c.flush(); err != nil {
		return err
	}
	if err := c.out.Sync(); err != nil {
		return err
	}
	if err := c.out.FinishIndexes(true); err != nil {
		return err
	}
	last := g[len(g)-1]
	return c.out.SetModTime(time.UnixMilli(last.ModTime()))
}

func (c *pass) endOf(s *segment.Segment) int64 {
	for i := range c.work.Segments {
		if c.work.Segments[i] == s {
			return c.work.Ends[i]
		}
	}
	return c.work.Offsets.End
}

// cleanBatch decides on one batch and writes what stays of it.
func (c *pass) cleanBatch(b record.Batch) (bool, error) {
	canDrop, err := c.tracker.see(b)
	if err != nil {
		return false, err
	}
	dropRecords := canDrop
	if b.IsControl() {
		dropRecords = canDrop && b.HasDeleteHorizon() && b.BaseTimestamp() <= c.now
	}
	var kept []record.Record
	tombstones := false
	all := true
	err = c.records(b, func(r record.Record, _ []byte) error {
		c.r.RecordsRead++
		if dropRecords || !b.IsControl() && !c.keeps(b, r) {
			all = false
			return nil
		}
		c.r.RecordsKept++
		kept = append(kept, r)
		tombstones = tombstones || r.Value == nil
		return nil
	})
	if err != nil {
		return false, err
	}
	setHorizon := !b.HasDeleteHorizon() && len(kept) > 0 && (tombstones && !b.IsControl() || canDrop && b.IsControl())
	switch {
	case len(kept) == 0:
		if c.keepsEmpty(b) {
			return true, c.write(emptied(b))
		}
		return true, nil
	case all && !setHorizon:
		return true, c.write(b)
	}
	horizon := int64(-1)
	if b.HasDeleteHorizon() {
		horizon = b.BaseTimestamp()
	} else if setHorizon {
		horizon = c.now + c.Log.Config().DeleteRetentionMs
	}
	nb, err := rebuild(b, kept, horizon, c.Log.Config().CodecLevel(b.Codec()))
	if err != nil {
		return false, err
	}
	return true, c.write(nb)
}

// keeps decides on one data record.
func (c *pass) keeps(b record.Batch, r record.Record) bool {
	off := b.BaseOffset() + int64(r.OffsetDelta)
	if off > c.keys.latest {
		return true
	}
	if r.Key == nil || off < c.keys.get(r.Key) {
		return false
	}
	return r.Value != nil || !b.HasDeleteHorizon() || c.now < b.BaseTimestamp()
}

// keepsEmpty decides whether a batch without records stays as a header: it carries an
// active producer's last sequence, or the end of the log.
func (c *pass) keepsEmpty(b record.Batch) bool {
	if b.NextOffset() == c.work.Offsets.HighWatermark {
		return true
	}
	if b.ProducerID() < 0 {
		return false
	}
	e, ok := c.keepers[b.ProducerID()]
	if !ok {
		return false
	}
	if e.LastOffset != producer.None {
		return e.LastOffset == b.LastOffset()
	}
	return b.IsControl() && b.ProducerEpoch() == e.Epoch
}

const writeAt = 256 << 10

func (c *pass) write(b record.Batch) error {
	c.pending = append(c.pending, b...)
	if len(c.pending) >= writeAt {
		return c.flush()
	}
	return nil
}

func (c *pass) flush() error {
	if len(c.pending) == 0 {
		return nil
	}
	c.o.Pace(len(c.pending))
	err := c.out.Append(c.pending, int64(c.Log.Config().IndexIntervalBytes))
	c.pending = c.pending[:0]
	return err
}

// emptied is the batch without records: a header that keeps offsets and producer.
func emptied(b record.Batch) record.Batch {
	nb := append(record.Batch(nil), b[:record.HeaderSize]...)
	setLength(nb)
	nb.SetAttributes(b.Attributes() &^ (record.CodecMask | record.DeleteHorizonBit))
	nb.SetBaseTimestamp(record.NoTimestamp)
	setCount(nb, 0)
	nb.StampCRC()
	return nb
}

// rebuild encodes the kept records in a batch with the offsets, sequence and codec of the
// old one. horizon, if not negative, becomes the base timestamp.
func rebuild(b record.Batch, kept []record.Record, horizon int64, level int) (record.Batch, error) {
	oldBase := b.BaseTimestamp()
	stamp := func(r record.Record) int64 {
		if b.IsLogAppendTime() {
			return b.MaxTimestamp()
		}
		return oldBase + r.TimestampDelta
	}
	base, largest := stamp(kept[0]), record.NoTimestamp
	if horizon >= 0 {
		base = horizon
	}
	var payload []byte
	for _, r := range kept {
		ts := stamp(r)
		largest = max(largest, ts)
		r.TimestampDelta = ts - base
		payload = record.AppendRecord(payload, r)
	}
	if b.IsLogAppendTime() {
		largest = b.MaxTimestamp()
	}
	if b.Codec() != record.None {
		var err error
		if payload, err = record.Compress(nil, b.Codec(), level, payload); err != nil {
			return nil, err
		}
	}
	nb := append(append(make(record.Batch, 0, record.HeaderSize+len(payload)), b[:record.HeaderSize]...), payload...)
	setLength(nb)
	attrs := b.Attributes()
	if horizon >= 0 {
		attrs |= record.DeleteHorizonBit
	}
	nb.SetAttributes(attrs)
	nb.SetBaseTimestamp(base)
	nb.SetMaxTimestamp(largest)
	setCount(nb, int32(len(kept)))
	nb.StampCRC()
	return nb, nil
}
