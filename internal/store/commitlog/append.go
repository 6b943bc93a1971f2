package commitlog

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/config"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/producer"
	"runnel/internal/store/segment"
)

// Appended is where a batch went, or where its first copy is.
type Appended struct {
	BaseOffset, LastOffset, LogStart int64
	MaxTimestamp                     int64
	Duplicate                        bool
}

// Append is the leader's append: the sequence is checked, offset and epoch stamped.
func (l *Log) Append(c record.Checked, leaderEpoch int32, now time.Time) (Appended, error) {
	return l.AppendUnder(producer.Rules{}, c, leaderEpoch, now)
}

// AppendUnder is Append with the rules that transaction versions add.
func (l *Log) AppendUnder(rules producer.Rules, c record.Checked, leaderEpoch int32, now time.Time) (Appended, error) {
	l.mu.Lock()
	a, rolled, err := l.appendLocked(rules, c, leaderEpoch, now)
	due := err == nil && !a.Duplicate && l.flushDueLocked(now)
	l.mu.Unlock()
	l.after(rolled)
	if due {
		if err := l.Flush(); err != nil {
			return a, err
		}
	}
	return a, err
}

func (l *Log) after(rolled bool) {
	if rolled && l.o.Rolled != nil {
		l.o.Rolled(l)
	}
}

func (l *Log) appendLocked(rules producer.Rules, c record.Checked, leaderEpoch int32, now time.Time) (a Appended, rolled bool, err error) {
	if err := l.usableLocked(); err != nil {
		return a, false, err
	}
	b, cfg := c.Batch, l.config.Load()
	if len(b) > int(cfg.SegmentBytes) {
		return a, false, fmt.Errorf("record batch of %d bytes is larger than segment.bytes=%d: %w", len(b), cfg.SegmentBytes, kerr.RecordListTooLarge)
	}
	dup, isDup, err := l.mu.producers.Check(b, rules)
	if err != nil {
		return a, false, err
	}
	if isDup {
		return Appended{dup.BaseOffset, dup.LastOffset, l.mu.LogStart, dup.Timestamp, true}, false, nil
	}
	base := l.mu.End
	b.SetBaseOffset(base)
	b.SetLeaderEpoch(leaderEpoch)
	last := b.LastOffset()
	if rolled, err = l.maybeRollLocked(cfg, len(b), base, last, c.MaxTimestamp, now); err != nil {
		return a, rolled, err
	}
	if err := l.writeLocked(cfg, b); err != nil {
		return a, rolled, err
	}
	l.takeInLocked(b, now)
	l.finishAppendLocked(last + 1)
	return Appended{base, last, l.mu.LogStart, c.MaxTimestamp, false}, rolled, nil
}

func (l *Log) writeLocked(cfg *config.Log, b []byte) error {
	if err := l.activeLocked().Append(b, int64(cfg.IndexIntervalBytes)); err != nil {
		return l.diskErr(err)
	}
	return nil
}

// takeInLocked lets the epochs and the producer state follow a written batch.
func (l *Log) takeInLocked(b record.Batch, now time.Time) {
	if e := b.LeaderEpoch(); e > l.epochs.Latest() {
		l.epochs.Assign(e, b.BaseOffset())
	}
	ended, ok := l.mu.producers.Apply(b, record.Millis(now))
	if !ok || !ended.Aborted {
		return
	}
	err := l.activeLocked().AddAborted(abortedOf(ended))
	if err != nil && !vfs.IsFull(err) { // kept in memory and written later if full
		l.Fail(err)
	}
}

func abortedOf(e producer.Ended) segment.AbortedTxn {
	return segment.AbortedTxn{ProducerID: e.ProducerID, First: e.First, Last: e.Last, LastStable: e.LastStable}
}

func (l *Log) finishAppendLocked(end int64) {
	l.mu.End = end
	l.mu.tail = l.activeLocked().Size()
	l.publishLocked()
}

// ErrOffsets refuses batches whose offsets do not follow the log's end.
var ErrOffsets = errors.New("batches do not continue the log")

// AppendAsIs appends batches that already carry offsets and epochs: a follower's fetch, or
// the quorum's own. A batch cut off at the end of the bytes is left out. It gives the last
// offset appended, or the log's last offset if there was nothing.
func (l *Log) AppendAsIs(batches []byte) (last int64, err error) {
	now := l.o.Now()
	l.mu.Lock()
	last, rolled, err := l.appendAsIsLocked(batches, now)
	due := err == nil && l.flushDueLocked(now)
	l.mu.Unlock()
	l.after(rolled)
	if due {
		if err := l.Flush(); err != nil {
			return last, err
		}
	}
	return last, err
}

func (l *Log) appendAsIsLocked(batches []byte, now time.Time) (last int64, rolled bool, err error) {
	last = l.mu.End - 1
	if err := l.usableLocked(); err != nil {
		return last, false, err
	}
	whole, err := l.checkAsIsLocked(batches)
	if err != nil {
		return last, false, err
	}
	cfg := l.config.Load()
	for len(whole) > 0 {
		first := record.Batch(whole)
		did, err := l.maybeRollLocked(cfg, first.Size(), first.BaseOffset(), first.LastOffset(), first.MaxTimestamp(), now)
		rolled = rolled || did
		if err != nil {
			return last, rolled, err
		}
		// One write takes all that fits this segment.
		active := l.activeLocked()
		n, end := 0, last+1
		for n < len(whole) {
			b := record.Batch(whole[n:])
			if n > 0 && (active.Size()+int64(n+b.Size()) > int64(cfg.SegmentBytes) || b.LastOffset()-active.Base() > math.MaxInt32) {
				break
			}
			n, end = n+b.Size(), b.NextOffset()
		}
		if err := l.writeLocked(cfg, whole[:n]); err != nil {
			return last, rolled, err
		}
		for chunk := whole[:n]; len(chunk) > 0; {
			b := record.Batch(chunk)
			b = b[:b.Size()]
			l.takeInLocked(b, now)
			chunk = chunk[len(b):]
		}
		whole, last = whole[n:], end-1
		l.finishAppendLocked(end)
	}
	return last, rolled, nil
}

// checkAsIsLocked checks checksums and order and gives the whole batches.
func (l *Log) checkAsIsLocked(batches []byte) ([]byte, error) {
	end, n := l.mu.End, 0
	for rest := batches; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if errors.Is(err, record.ErrShort) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", kerr.CorruptMessage, err)
		}
		if !b.ValidCRC() {
			return nil, fmt.Errorf("batch at offset %d fails its checksum: %w", b.BaseOffset(), kerr.CorruptMessage)
		}
		if b.BaseOffset() < end || b.LastOffsetDelta() < 0 {
			return nil, fmt.Errorf("%w: batch at offset %d, the log ends at %d", ErrOffsets, b.BaseOffset(), end)
		}
		end = b.NextOffset()
		n += len(b)
		rest = after
	}
	return batches[:n], nil
}

// maybeRollLocked closes the active segment if the next batch does not belong into it
// (ondisk.md part 14).
func (l *Log) maybeRollLocked(cfg *config.Log, size int, base, last, maxTS int64, now time.Time) (bool, error) {
	s := l.activeLocked()
	roll := s.Size() > int64(cfg.SegmentBytes)-int64(size) || last-s.Base() > math.MaxInt32
	if !roll && s.Size() > 0 {
		old, err := l.oldLocked(s, cfg, maxTS, now)
		if err != nil {
			return false, l.diskErr(err)
		}
		roll = old || s.Full(cfg.SegmentIndexBytes)
	}
	if !roll {
		return false, nil
	}
	return true, l.rollLocked(l.rollBaseLocked(s, last), now)
}

// rollBaseLocked is the base of the next segment: the log's end, even if a follower's next
// batch begins later. So segments that no cleaner touched join without a hole, and recovery
// can tell a lost tail from a gap. Only a batch too far away forces a later base.
func (l *Log) rollBaseLocked(s *segment.Segment, last int64) int64 {
	if last-l.mu.End > math.MaxInt32 {
		return last - math.MaxInt32/2
	}
	return l.mu.End
}

func (l *Log) oldLocked(s *segment.Segment, cfg *config.Log, maxTS int64, now time.Time) (bool, error) {
	first, ok, err := s.FirstTimestamp()
	if err != nil || !ok {
		return false, err
	}
	waited := record.Millis(now) - s.Created()
	if first >= 0 && maxTS >= 0 {
		waited = maxTS - first
	}
	return waited > segmentMs(cfg)-l.mu.jitter, nil
}

func segmentMs(cfg *config.Log) int64 {
	if cfg.Compact && cfg.MaxCompactionLagMs > 0 {
		return min(cfg.SegmentMs, cfg.MaxCompactionLagMs)
	}
	return cfg.SegmentMs
}

// drawJitterLocked draws the roll jitter of a new active segment.
func (l *Log) drawJitterLocked() {
	l.mu.jitter = 0
	cfg := l.config.Load()
	if j := min(cfg.SegmentJitterMs, cfg.SegmentMs); j > 0 && l.o.Random != nil {
		l.mu.jitter = int64(l.o.Random() % uint64(j))
	}
}

// rollLocked closes the active segment and begins one at base. Where the active one is
// empty and begins there already, it stays.
func (l *Log) rollLocked(base int64, now time.Time) error {
	old := l.activeLocked()
	if old.Size() == 0 && old.Base() == base {
		return nil
	}
	// The first segment's name is durable before a second one exists: a log that lost only
	// its beginning would look like one whose retention came by.
	if !l.mu.rooted {
		if err := l.o.FS.SyncDir(l.Dir()); err != nil {
			return l.Fail(err)
		}
		l.mu.rooted = true
	}
	next := segment.Open(l.o.FS, l.Dir(), base, 0, now)
	if err := next.Create(now); err != nil {
		next.Remove()
		return l.diskErr(err)
	}
	l.mu.namesDirty = true
	if err := old.FinishIndexes(false); err != nil && !vfs.IsFull(err) {
		return l.Fail(err)
	}
	if err := l.writeSnapshotLocked(); err != nil && !vfs.IsFull(err) {
		return l.Fail(err)
	}
	old.Release()
	segs := l.mu.segments
	if old.Size() == 0 {
		segs = segs[:len(segs)-1]
		l.doomLocked(old, now)
	}
	l.setSegmentsLocked(append(segs[:len(segs):len(segs)], next))
	l.mu.tail = 0
	l.drawJitterLocked()
	l.publishLocked()
	return nil
}

// Roll closes the active segment if it holds anything.
func (l *Log) Roll(now time.Time) error {
	l.mu.Lock()
	err := l.usableLocked()
	if err == nil {
		err = l.rollLocked(l.mu.End, now)
	}
	l.mu.Unlock()
	if err == nil {
		l.after(true)
	}
	return err
}

// writeSnapshotLocked writes the producer state at the log's end, if it moved since the
// last one. It is not synced: a torn snapshot fails its checksum, and the log tells the
// same.
func (l *Log) writeSnapshotLocked() error {
	end := l.mu.End
	if end <= max(l.mu.snapshot, l.mu.LogStart) {
		return nil
	}
	name := l.snapshotName(end)
	if err := checkpoint.Write(l.o.FS, name, l.mu.producers.Snapshot(), false); err != nil {
		l.o.FS.Remove(name)
		return err
	}
	l.mu.snapshot = end
	l.mu.namesDirty = true
	return nil
}
