package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/segment"
)

// Recovery tells what Open had to do.
type Recovery struct {
	SegmentsScanned int
	BytesScanned    int64
	TruncatedBytes  int64
	// RebuiltEpochs says that the epochs were read back from the batches.
	RebuiltEpochs bool
	// Notes are findings that an operator should see.
	Notes []string
}

func (r *Recovery) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// ErrNoIdentity says that a directory holds data but no readable partition.metadata: it
// was never flushed, so it holds nothing durable, but whose it is cannot be told.
var ErrNoIdentity = errors.New("partition.metadata is missing or torn, but there is data")

// Open opens the log of a directory, or makes a new one.
func Open(o Options) (*Log, Recovery, error) {
	l := &Log{o: o}
	l.dir.Store(&o.Dir)
	l.config.Store(o.Config)
	l.lastFlush.Store(record.Millis(o.Now()))
	ld := loader{Log: l}
	err := ld.load()
	if err != nil {
		for _, s := range ld.segs {
			s.Release()
		}
		return nil, ld.r, fmt.Errorf("open log %s: %w", o.Dir, err)
	}
	return l, ld.r, nil
}

// loader is the state of one Open.
type loader struct {
	*Log
	r         Recovery
	files     map[string]vfs.Info
	segs      []*segment.Segment
	snapshots []int64 // ascending
	start     int64
}

func (l *loader) load() error {
	if !l.o.New {
		infos, err := l.o.FS.ReadDir(l.o.Dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l.o.New = err != nil
		l.files = make(map[string]vfs.Info, len(infos))
		for _, i := range infos {
			l.files[i.Name] = i
		}
	}
	if l.o.New {
		if err := l.o.FS.MkdirAll(l.o.Dir); err != nil {
			return err
		}
	}
	l.start = l.o.LogStart
	for _, step := range []func() error{l.identify, l.settleSwaps, l.openSegments, l.loadEpochs, l.recover, l.bound, l.loadProducers} {
		if err := step(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stableLocked()
	l.drawJitterLocked()
	l.mu.rooted = l.o.Clean && !l.mu.namesDirty
	l.publishLocked()
	return nil
}

// identify ties the directory to its topic id.
func (l *loader) identify() error {
	l.mu.topicID = l.o.TopicID
	if l.o.MetadataLog {
		l.mu.identified = true
		return nil
	}
	if !l.o.New {
		id, err := checkpoint.ReadPartitionMetadata(l.o.FS, l.o.Dir)
		switch {
		case err == nil && !l.o.TopicID.IsZero() && id != l.o.TopicID:
			return fmt.Errorf("the directory belongs to topic id %s, not %s: %w", id, l.o.TopicID, kerr.InconsistentTopicID)
		case err == nil:
			l.mu.topicID = id
			l.mu.identified, l.mu.parented = l.o.Clean, l.o.Clean
			return nil
		case !errors.Is(err, checkpoint.ErrFormat) && !errors.Is(err, fs.ErrNotExist):
			return err
		case l.hasData():
			return fmt.Errorf("%w: %w", ErrNoIdentity, err)
		}
	}
	if l.o.TopicID.IsZero() {
		return nil
	}
	return checkpoint.WritePartitionMetadata(l.o.FS, l.o.Dir, l.o.TopicID)
}

func (l *loader) hasData() bool {
	for name, info := range l.files {
		if strings.HasSuffix(name, segment.LogSuffix) && info.Size > 0 {
			return true
		}
	}
	return false
}

func (l *loader) remove(name string) error {
	err := l.o.FS.Remove(path.Join(l.o.Dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(l.files, name)
	l.mu.namesDirty = true
	return nil
}

// settleSwaps removes leftovers and finishes a compaction that had come to the swap
// (ondisk.md part 13, steps 1 and 2).
func (l *loader) settleSwaps() error {
	minCleaned := int64(1<<63 - 1)
	swaps := map[int64]bool{}
	for name := range l.files {
		off, suffix, ok := segment.ParseName(name)
		switch {
		case strings.HasSuffix(name, segment.DeletedSuffix):
			if l.o.MetadataLog && strings.HasSuffix(name, ".checkpoint"+segment.DeletedSuffix) {
				continue
			}
			if err := l.remove(name); err != nil {
				return err
			}
		case ok && strings.HasSuffix(suffix, segment.CleanedSuffix):
			minCleaned = min(minCleaned, off)
			if err := l.remove(name); err != nil {
				return err
			}
		case ok && suffix == segment.LogSuffix+segment.SwapSuffix:
			swaps[off] = true
		}
	}
	low, high := int64(1<<63-1), int64(-1)
	for off := range swaps {
		if off >= minCleaned {
			continue
		}
		info := l.files[segment.Stem(off)+segment.LogSuffix+segment.SwapSuffix]
		end, err := segment.OpenSwap(l.o.FS, l.o.Dir, off, info.Size).EndOffset()
		if err != nil {
			return err
		}
		low, high = min(low, off), max(high, end)
	}
	for name := range l.files {
		off, suffix, ok := segment.ParseName(name)
		if !ok {
			continue
		}
		if strings.HasSuffix(suffix, segment.SwapSuffix) {
			if !swaps[off] || off >= minCleaned {
				if err := l.remove(name); err != nil {
					return err
				}
			}
			continue
		}
		if isSegmentFile(suffix) && off >= low && off < high {
			if err := l.remove(name); err != nil {
				return err
			}
		}
	}
	return l.renameSwaps()
}

// renameSwaps gives swap files their final names, the indexes before the log.
func (l *loader) renameSwaps() error {
	var names []string
	for name := range l.files {
		if strings.HasSuffix(name, segment.SwapSuffix) {
			names = append(names, name)
		}
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := strings.HasSuffix(names[i], segment.LogSuffix+segment.SwapSuffix), strings.HasSuffix(names[j], segment.LogSuffix+segment.SwapSuffix)
		if a != b {
			return b
		}
		return names[i] < names[j]
	})
	for _, name := range names {
		final := strings.TrimSuffix(name, segment.SwapSuffix)
		if err := l.o.FS.Rename(path.Join(l.o.Dir, name), path.Join(l.o.Dir, final)); err != nil {
			return err
		}
		l.files[final] = l.files[name]
		delete(l.files, name)
		l.mu.namesDirty = true
	}
	return nil
}

func isSegmentFile(suffix string) bool {
	for _, s := range segment.Files {
		if s == suffix {
			return true
		}
	}
	return false
}

// openSegments lists the segments and removes indexes without a log.
func (l *loader) openSegments() error {
	for name := range l.files {
		off, suffix, ok := segment.ParseName(name)
		if !ok {
			continue
		}
		switch {
		case suffix == segment.LogSuffix:
			info := l.files[name]
			l.segs = append(l.segs, segment.Open(l.o.FS, l.o.Dir, off, info.Size, info.ModTime))
		case suffix == segment.SnapshotSuffix:
			l.snapshots = append(l.snapshots, off)
		case isSegmentFile(suffix):
			if _, ok := l.files[segment.Stem(off)+segment.LogSuffix]; !ok {
				if err := l.remove(name); err != nil {
					return err
				}
			}
		}
	}
	sort.Slice(l.segs, func(i, j int) bool { return l.segs[i].Base() < l.segs[j].Base() })
	sort.Slice(l.snapshots, func(i, j int) bool { return l.snapshots[i] < l.snapshots[j] })
	return nil
}

// loadEpochs reads the epoch file; a torn one is rebuilt from all batches.
func (l *loader) loadEpochs() error {
	if l.o.New {
		return nil
	}
	err := l.epochs.Load(l.o.FS, l.o.Dir)
	if !errors.Is(err, checkpoint.ErrFormat) {
		return err
	}
	l.r.note("%v; epochs are rebuilt from the batches", err)
	l.r.RebuiltEpochs = true
	for _, s := range l.segs {
		err := s.Headers(0, s.Size(), func(_ int64, b record.Batch) (bool, error) {
			l.assign(b)
			return true, nil
		})
		if err != nil && !isCorrupt(err) {
			return err
		}
	}
	return nil
}

func (l *loader) assign(b record.Batch) {
	if e := b.LeaderEpoch(); e > l.epochs.Latest() {
		l.epochs.Assign(e, b.BaseOffset())
	}
}

func isCorrupt(err error) bool {
	return errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrShort)
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// recover scans the segments that may be torn: after an unclean stop all that reach above
// the recovery point, else only those whose index is missing or broken.
func (l *loader) recover() error {
	first := true
	for i := 0; i < len(l.segs); i++ {
		if i > 0 && !l.o.Clean {
			if err := l.dropAfterHole(i); err != nil {
				return err
			}
			if i == len(l.segs) {
				break
			}
		}
		next := int64(1<<63 - 1)
		if i+1 < len(l.segs) {
			next = l.segs[i+1].Base()
		}
		need, err := l.mustRecover(l.segs[i], next)
		if err != nil {
			return err
		}
		if !need {
			continue
		}
		if first && !l.o.Clean {
			l.epochs.TruncateFromEnd(l.segs[i].Base())
		}
		first = false
		if err := l.recoverOne(i); err != nil {
			return err
		}
	}
	return nil
}

// dropFrom removes segment i and all after it, the last one first, so that no crash makes
// a hole.
func (l *loader) dropFrom(i int) error {
	for j := len(l.segs) - 1; j >= i; j-- {
		l.r.TruncatedBytes += l.segs[j].Size()
		if err := l.segs[j].Remove(); err != nil {
			return err
		}
		l.mu.namesDirty = true
	}
	if i < len(l.segs) {
		l.segs = l.segs[:i]
		return l.o.FS.SyncDir(l.o.Dir)
	}
	return nil
}

// dropAfterHole looks at the joint before segment i. Above the recovery point, and above
// what a cleaner went over, segments join without a hole; where one does not, the power
// went before the tail of the segment before it reached the disk. What follows the hole
// was never durable, and keeping it would hide the loss from every replica.
func (l *loader) dropAfterHole(i int) error {
	base := l.segs[i].Base()
	if base <= max(l.o.RecoveryPoint, l.o.CleanedTo, l.start) {
		return nil
	}
	end, err := l.segs[i-1].EndOffset()
	if err != nil {
		return err
	}
	if end >= base {
		return nil
	}
	l.r.note("segment %d ends at %d, the next begins at %d: the tail was lost, what follows is dropped", l.segs[i-1].Base(), end, base)
	return l.dropFrom(i)
}

func (l *loader) mustRecover(s *segment.Segment, next int64) (bool, error) {
	if !l.o.Clean && next > l.o.RecoveryPoint {
		return true, nil
	}
	if has, err := s.HasIndex(); err != nil {
		return false, err
	} else if !has && s.Size() > 0 {
		l.r.note("segment %d has no offset index", s.Base())
		return true, nil
	}
	if err := s.CheckAborted(); err != nil {
		l.r.note("%v", err)
		return true, nil
	}
	if next != 1<<63-1 {
		return false, nil
	}
	if _, err := s.EndOffset(); isCorrupt(err) {
		l.r.note("the clean log has a broken end: %v", err)
		return true, nil
	} else if err != nil {
		return false, err
	}
	return false, nil
}

func (l *loader) recoverOne(i int) error {
	s := l.segs[i]
	txns, err := l.producersAt(i)
	if err != nil {
		return err
	}
	now := record.Millis(l.o.Now())
	r, err := s.Recover(int64(l.o.Config.IndexIntervalBytes), func(b record.Batch) error {
		l.assign(b)
		if ended, ok := txns.Apply(b, now); ok && ended.Aborted {
			return s.AddAborted(abortedOf(ended))
		}
		return nil
	})
	l.r.SegmentsScanned++
	l.r.BytesScanned += r.Bytes
	if err != nil {
		return err
	}
	if r.Truncated > 0 {
		if r.Next < l.o.RecoveryPoint {
			return fmt.Errorf("batches below the recovery point %d are damaged (%w); the log is not cut, because what follows may be good: restore it from a replica: %w", l.o.RecoveryPoint, r.Cause, kerr.KafkaStorageError)
		}
		l.r.TruncatedBytes += r.Truncated
		l.r.note("cut %d bytes at offset %d and the %d segments after it: %v", r.Truncated, r.Next, len(l.segs)-i-1, r.Cause)
		if err := s.Cut(s.Size() - r.Truncated); err != nil {
			return err
		}
		if err := l.dropFrom(i + 1); err != nil {
			return err
		}
	}
	if err := s.FinishIndexes(false); err != nil {
		return err
	}
	if i < len(l.segs)-1 {
		s.Release()
	}
	return nil
}

// bound settles start, end and high watermark, and makes the first segment if there is
// none (steps 5, 6 and 8).
func (l *loader) bound() error {
	end := l.start
	if n := len(l.segs); n > 0 {
		var err error
		if end, err = l.segs[n-1].EndOffset(); err != nil {
			return err
		}
		if end < l.start {
			l.r.note("the log ends at %d, below its start %d: it begins anew there", end, l.start)
			for _, s := range l.segs {
				if err := s.Remove(); err != nil {
					return err
				}
			}
			l.segs, end = nil, l.start
			l.mu.namesDirty = true
		}
	}
	if len(l.segs) == 0 {
		s := segment.Open(l.o.FS, l.o.Dir, l.start, 0, l.o.Now())
		if err := s.Create(l.o.Now()); err != nil {
			return err
		}
		s.Release()
		l.segs = []*segment.Segment{s}
		l.mu.namesDirty = true
	}
	l.start = max(l.start, l.segs[0].Base())
	end = max(end, l.start)
	l.epochs.TruncateFromStart(l.start)
	l.epochs.TruncateFromEnd(end)
	for i, s := range l.segs {
		s.SetDirty(!l.o.Clean && (i == len(l.segs)-1 || l.segs[i+1].Base() > l.o.RecoveryPoint))
	}
	l.setSegmentsLocked(l.segs)
	v := &l.mu.view
	v.LogStart, v.End, v.tail = l.start, end, l.segs[len(l.segs)-1].Size()
	v.HighWatermark = min(max(l.o.HighWatermark, l.start), end)
	v.Durable = min(l.o.RecoveryPoint, end)
	if l.o.Clean {
		v.Durable = end
	}
	v.Durable = max(v.Durable, l.segs[0].Base())
	return nil
}
