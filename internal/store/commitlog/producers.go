package commitlog

import (
	"errors"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/producer"
	"runnel/internal/store/segment"
)

// restore gives the producer state at offset end, from the newest snapshot that is whole
// and the batches after it.
func (l *Log) restore(segs []*segment.Segment, snapshots []int64, start, end int64) (st producer.State, from int64, broken []int64, err error) {
	now := record.Millis(l.o.Now())
	for i := len(snapshots) - 1; i >= 0; i-- {
		off := snapshots[i]
		if off > end || off <= start {
			continue
		}
		data, err := vfs.ReadFile(l.o.FS, l.snapshotName(off))
		if err != nil {
			return st, 0, broken, err
		}
		err = st.Load(data, off, now)
		if err == nil {
			from = off
			break
		}
		if !errors.Is(err, producer.ErrSnapshot) {
			return st, 0, broken, err
		}
		broken = append(broken, off)
	}
	if from == 0 {
		st.Reset(start)
	}
	return st, from, broken, l.replay(&st, segs, max(st.End(), start), end)
}

// replay applies the batches of [from, end). Only control batches are read whole.
func (l *Log) replay(st *producer.State, segs []*segment.Segment, from, end int64) error {
	if from >= end {
		return nil
	}
	now := record.Millis(l.o.Now())
	for i, s := range segs {
		if s.Base() >= end || i+1 < len(segs) && segs[i+1].Base() <= from {
			continue
		}
		at, found, err := s.Locate(from, s.Size())
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		err = s.Headers(at.Position, s.Size(), func(pos int64, b record.Batch) (bool, error) {
			if b.BaseOffset() >= end {
				return false, nil
			}
			if !b.IsControl() {
				st.Apply(b, now)
				return true, nil
			}
			region, err := s.Region(pos, int64(b.Size()))
			if err != nil {
				return false, err
			}
			whole, err := region.ReadAll()
			region.Done()
			if err != nil {
				return false, err
			}
			st.Apply(whole, now)
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// producersAt is the state at the base of segment i, to find aborted transactions that
// end in it.
func (l *loader) producersAt(i int) (*producer.State, error) {
	start := l.segs[0].Base()
	st, _, _, err := l.restore(l.segs[:i], l.snapshots, start, l.segs[i].Base())
	return &st, err
}

// loadProducers restores the state and removes snapshots nobody needs.
func (l *loader) loadProducers() error {
	end := l.mu.End
	st, from, broken, err := l.restore(l.segs, l.snapshots, l.start, end)
	if err != nil {
		return err
	}
	st.SetEnd(end)
	l.mu.producers, l.mu.snapshot = st, from
	for _, off := range broken {
		l.r.note("producer snapshot %d is broken; its state was read from the log", off)
	}
	return l.dropSnapshots(broken)
}

// dropSnapshots removes broken snapshots, those out of bounds, and of those that do not
// sit at a segment's base all but the newest.
func (l *loader) dropSnapshots(broken []int64) error {
	bases := map[int64]bool{}
	for _, s := range l.segs {
		bases[s.Base()] = true
	}
	lastBase := l.segs[len(l.segs)-1].Base()
	drop := map[int64]bool{}
	for _, off := range broken {
		drop[off] = true
	}
	newest := int64(-1)
	for _, off := range l.snapshots {
		if off > l.mu.End || off <= l.start {
			drop[off] = true
		} else if !bases[off] {
			newest = max(newest, off)
		}
	}
	for _, off := range l.snapshots {
		if drop[off] || !bases[off] && (off != newest || off < lastBase) {
			if err := l.remove(segment.Stem(off) + segment.SnapshotSuffix); err != nil {
				return err
			}
		}
	}
	return nil
}
