package commitlog

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/vfs"
	"runnel/internal/store/producer"
	"runnel/internal/store/segment"
)

// TruncateTo drops the batches from the one that holds offset on. Segments after it are
// gone durably before the one that holds it is cut, so that no crash leaves a hole with old
// batches behind it. It does nothing to data if the log ends at or before offset; leader
// epochs that begin there are dropped in any case.
func (l *Log) TruncateTo(offset int64) error {
	if o := l.Offsets(); offset < o.LogStart {
		return l.TruncateFully(offset)
	}
	l.flush.Lock()
	defer l.flush.Unlock()
	end, err := l.cutPoint(offset)
	if err != nil {
		return l.readErr(err)
	}
	if err := l.lower(end); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if offset < l.mu.LogStart {
		return fmt.Errorf("truncate to %d below the log start %d: %w", offset, l.mu.LogStart, kerr.OffsetOutOfRange)
	}
	if offset < l.mu.End {
		if err := l.cutLocked(offset); err != nil {
			return l.diskErr(err)
		}
	}
	l.epochs.TruncateFromEnd(l.mu.End)
	return nil
}

// cutPoint is where a truncation to offset leaves the end: not inside a batch.
func (l *Log) cutPoint(offset int64) (int64, error) {
	v := l.pub.load()
	if offset >= v.End {
		return v.End, nil
	}
	i := v.floor(offset)
	at, found, err := v.segments[i].Locate(offset, v.limit(i))
	if err != nil || !found {
		return offset, err
	}
	return min(offset, at.Base), nil
}

// lower has a checkpointed recovery point above offset lowered first: recovery trusts
// what lies below it.
func (l *Log) lower(offset int64) error {
	l.mu.Lock()
	needed := l.mu.Durable > offset
	l.mu.Durable = min(l.mu.Durable, max(offset, 0)) // before anyone writes a checkpoint again
	l.publishLocked()
	l.mu.Unlock()
	if l.o.Lowered == nil || !needed {
		return nil
	}
	if err := l.o.Lowered(l, offset); err != nil {
		return l.diskErr(err)
	}
	return nil
}

func (l *Log) cutLocked(offset int64) error {
	now := l.o.Now()
	i := l.mu.floor(offset)
	s := l.mu.segments[i]
	at, found, err := s.Locate(offset, l.mu.limit(i))
	if err != nil {
		return err
	}
	cut, end := s.Size(), offset
	if found {
		cut, end = at.Position, min(offset, at.Base)
	}
	for later := len(l.mu.segments) - 1; later > i; later-- {
		if err := l.doomLocked(l.mu.segments[later], now); err != nil {
			return err
		}
	}
	if err := l.dropSnapshotsLocked(end); err != nil {
		return err
	}
	if err := l.o.FS.SyncDir(l.Dir()); err != nil {
		return err
	}
	l.setSegmentsLocked(l.mu.segments[: i+1 : i+1])
	l.setEndLocked(end, cut)
	if err := s.Truncate(cut, end); err != nil {
		return err
	}
	// Durable before anything follows: a roll may put the next batch into another file.
	if err := s.Sync(); err != nil {
		return l.Fail(err)
	}
	return l.reloadProducersLocked()
}

// setEndLocked moves end, tail and everything bounded by them, and publishes before the
// bytes change.
func (l *Log) setEndLocked(end, tail int64) {
	v := &l.mu.view
	v.End, v.tail = end, tail
	v.HighWatermark = min(v.HighWatermark, end)
	v.LastStable = min(v.LastStable, end)
	v.Durable = min(v.Durable, end)
	l.mu.cutTo = min(l.mu.cutTo, end)
	l.mu.changes++
	l.cuts.Add(1)
	l.publishLocked()
}

// dropSnapshotsLocked removes the producer snapshots above end.
func (l *Log) dropSnapshotsLocked(end int64) error {
	infos, err := l.o.FS.ReadDir(l.Dir())
	if err != nil {
		return err
	}
	for _, i := range infos {
		off, suffix, ok := segment.ParseName(i.Name)
		if ok && suffix == segment.SnapshotSuffix && off > end {
			if err := l.o.FS.Remove(l.file(i.Name)); err != nil && !isNotExist(err) {
				return err
			}
		}
	}
	return nil
}

func (l *Log) reloadProducersLocked() error {
	infos, err := l.o.FS.ReadDir(l.Dir())
	if err != nil {
		return err
	}
	var snapshots []int64
	for _, i := range infos {
		if off, suffix, ok := segment.ParseName(i.Name); ok && suffix == segment.SnapshotSuffix {
			snapshots = append(snapshots, off)
		}
	}
	st, from, _, err := l.restore(l.mu.segments, snapshots, l.mu.LogStart, l.mu.End)
	if err != nil {
		return err
	}
	st.SetEnd(l.mu.End)
	l.mu.producers, l.mu.snapshot = st, from
	l.stableLocked()
	l.publishLocked()
	return nil
}

// TruncateFully deletes everything; the log goes on at startAt. Start, high watermark and
// end move together.
func (l *Log) TruncateFully(startAt int64) error {
	l.flush.Lock()
	defer l.flush.Unlock()
	if err := l.lower(0); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if err := l.restartLocked(startAt, l.o.Now()); err != nil {
		return l.diskErr(err)
	}
	return nil
}

func (l *Log) restartLocked(startAt int64, now time.Time) error {
	if err := l.dropSnapshotsLocked(-1); err != nil {
		return err
	}
	for i := len(l.mu.segments) - 1; i >= 0; i-- {
		if err := l.doomLocked(l.mu.segments[i], now); err != nil {
			return err
		}
	}
	fresh := segment.Open(l.o.FS, l.Dir(), startAt, 0, now)
	if err := fresh.Create(now); err != nil {
		return err
	}
	if err := l.o.FS.SyncDir(l.Dir()); err != nil {
		return err
	}
	l.setSegmentsLocked([]*segment.Segment{fresh})
	v := &l.mu.view
	v.LogStart, v.HighWatermark, v.LastStable = startAt, startAt, startAt
	l.mu.producers.Reset(startAt)
	l.mu.snapshot = 0
	l.epochs.Clear()
	l.setEndLocked(startAt, 0)
	v.Durable = startAt
	l.publishLocked()
	return nil
}

// RaiseLogStart forgets records below offset (DeleteRecords, or a leader that did). It
// may not pass the high watermark. Whole segments below it go with the next DeleteOld.
func (l *Log) RaiseLogStart(offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if offset > l.mu.HighWatermark {
		return fmt.Errorf("log start %d would pass the high watermark %d: %w", offset, l.mu.HighWatermark, kerr.OffsetOutOfRange)
	}
	if offset > l.mu.LogStart {
		l.raiseLocked(offset)
	}
	return nil
}

func (l *Log) raiseLocked(offset int64) {
	l.mu.LogStart = offset
	l.mu.HighWatermark = max(l.mu.HighWatermark, offset)
	l.epochs.TruncateFromStart(offset)
	l.mu.producers.TruncateHead(offset)
	l.stableLocked()
	l.publishLocked()
}

// ErrChanged refuses to put rewritten segments in place: the log was truncated, or they
// were deleted, since.
var ErrChanged = fmt.Errorf("segments changed while they were rewritten")

// Rewriting is what a cleaner works on: closed segments as they are now.
type Rewriting struct {
	Segments []*segment.Segment
	// Bounds are the segments' ends: the base of the next.
	Ends    []int64
	Offsets Offsets
	changes int64
}

// Closed gives the segments below the active one, to be rewritten.
func (l *Log) Closed() Rewriting {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.mu.segments) - 1
	w := Rewriting{Segments: l.mu.segments[:n:n], Offsets: l.mu.Offsets, changes: l.mu.changes}
	for i := range n {
		w.Ends = append(w.Ends, l.mu.next(i))
	}
	return w
}

// Active is the base of the active segment.
func (l *Log) ActiveBase() int64 {
	v := l.pub.load()
	return v.segments[len(v.segments)-1].Base()
}

// Replace puts cleaned, whose files end in .cleaned and are durable, in the place of old,
// neighbours in the log. A crash at any moment leaves the old segments or the new one.
func (l *Log) Replace(w Rewriting, old []*segment.Segment, cleaned *segment.Segment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	i := l.indexLocked(old)
	if i < 0 || l.mu.changes != w.changes {
		return ErrChanged
	}
	if err := l.swapLocked(i, old, cleaned); err != nil {
		return l.diskErr(err)
	}
	return nil
}

func (l *Log) indexLocked(old []*segment.Segment) int {
	for i, s := range l.mu.segments {
		if s != old[0] {
			continue
		}
		if i+len(old) >= len(l.mu.segments) {
			return -1
		}
		for j, o := range old {
			if l.mu.segments[i+j] != o {
				return -1
			}
		}
		return i
	}
	return -1
}

func (l *Log) swapLocked(i int, old []*segment.Segment, cleaned *segment.Segment) error {
	now, dir := l.o.Now(), l.Dir()
	// From here on the new segment wins after a crash.
	if err := cleaned.Rename(segment.SwapSuffix); err != nil {
		return err
	}
	if err := l.o.FS.SyncDir(dir); err != nil {
		return err
	}
	final := segment.Open(l.o.FS, dir, cleaned.Base(), cleaned.Size(), time.UnixMilli(cleaned.ModTime()))
	segs := append(append(l.mu.segments[:i:i], final), l.mu.segments[i+len(old):]...)
	for j := len(old) - 1; j >= 0; j-- { // the first one last: it has the new one's name
		if err := l.doomLocked(old[j], now); err != nil {
			return err
		}
		if j > 0 {
			l.o.FS.Remove(l.snapshotName(old[j].Base()))
		}
	}
	if err := cleaned.Rename(""); err != nil {
		return err
	}
	l.setSegmentsLocked(segs)
	l.publishLocked()
	return l.o.FS.SyncDir(dir)
}

// Keepers are the producers whose last batch a cleaner has to keep.
func (l *Log) Keepers() map[int64]producer.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := l.mu.producers.Entries()
	m := make(map[int64]producer.Entry, len(entries))
	for _, e := range entries {
		m[e.ProducerID] = e
	}
	return m
}

// FS is where the log's files are.
func (l *Log) FS() vfs.FS { return l.o.FS }

// Rename moves the log's directory. Open files stay open, reads go on.
func (l *Log) Rename(to string) error {
	l.flush.Lock()
	defer l.flush.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.Dir()
	if err := l.o.FS.Rename(from, to); err != nil {
		return l.diskErr(err)
	}
	for i := range l.mu.doomed {
		l.mu.doomed[i].name = to + strings.TrimPrefix(l.mu.doomed[i].name, from)
	}
	for _, s := range l.mu.segments {
		s.Moved(to)
	}
	l.dir.Store(&to)
	return nil
}
