package commitlog

import (
	"time"

	"runnel/internal/kit/config"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/segment"
)

// DeleteOld applies retention (ondisk.md part 15): segments below the log start, beyond
// retention.bytes, and older than retention.ms. Only segments that are replicated whole
// go, oldest first. It gives their number.
func (l *Log) DeleteOld(now time.Time) (int, error) {
	l.flush.Lock() // keeps truncation, renaming and closing away, but no appends
	defer l.flush.Unlock()
	l.mu.Lock()
	gone, rolled, err := l.detachOldLocked(now)
	l.mu.Unlock()
	l.after(rolled)
	if err != nil || len(gone) == 0 {
		return 0, err
	}
	if err := l.deleteFiles(gone, now); err != nil {
		return len(gone), l.diskErr(err)
	}
	return len(gone), nil
}

// detachOldLocked takes the segments that may go off the list.
func (l *Log) detachOldLocked(now time.Time) (gone []*segment.Segment, rolled bool, err error) {
	if err := l.usableLocked(); err != nil {
		return nil, false, err
	}
	n, err := l.countOldLocked(l.config.Load(), now)
	if err != nil || n == 0 {
		return nil, false, err
	}
	if n == len(l.mu.segments) { // all of them: an empty active segment takes over
		if err := l.rollLocked(l.mu.End, now); err != nil {
			return nil, false, err
		}
		rolled = true
	}
	gone = l.mu.segments[:n]
	l.setSegmentsLocked(append([]*segment.Segment(nil), l.mu.segments[n:]...))
	if base := l.mu.segments[0].Base(); base > l.mu.LogStart {
		l.raiseLocked(base)
	}
	l.publishLocked()
	return gone, rolled, nil
}

// deleteFiles renames the files of detached segments, oldest first and each durably before
// the next, so that no crash makes a hole. What stays must be on disk by name before
// anything goes, or a power loss could leave neither and give offsets out twice.
func (l *Log) deleteFiles(gone []*segment.Segment, now time.Time) error {
	for _, s := range gone {
		if err := l.o.FS.SyncDir(l.Dir()); err != nil {
			return l.Fail(err)
		}
		l.mu.Lock()
		err := l.doomLocked(s, now)
		l.dropSnapshotLocked(s.Base(), now)
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) dropSnapshotLocked(base int64, now time.Time) {
	if base == 0 {
		return
	}
	name := l.snapshotName(base)
	if l.o.FS.Rename(name, name+segment.DeletedSuffix) == nil {
		l.mu.doomed = append(l.mu.doomed, doomed{name + segment.DeletedSuffix, now.Add(time.Duration(l.config.Load().FileDeleteDelayMs) * time.Millisecond)})
	}
}

// countOldLocked counts how many segments, from the oldest on, may go.
func (l *Log) countOldLocked(cfg *config.Log, now time.Time) (int, error) {
	excess := int64(-1)
	if cfg.Delete && cfg.RetentionBytes >= 0 {
		excess = -cfg.RetentionBytes
		for i := range l.mu.segments {
			excess += l.mu.limit(i)
		}
	}
	for i, s := range l.mu.segments {
		last := i == len(l.mu.segments)-1
		size := l.mu.limit(i)
		if last && size == 0 || l.mu.HighWatermark < l.mu.next(i) {
			return i, nil
		}
		excess -= size
		if !last && l.mu.next(i) <= l.mu.LogStart || excess >= 0 {
			continue
		}
		if !cfg.Delete || cfg.RetentionMs < 0 {
			return i, nil
		}
		newest, err := newestTime(s)
		if err != nil {
			return 0, l.segErr(err)
		}
		if record.Millis(now)-newest <= cfg.RetentionMs {
			return i, nil
		}
	}
	return len(l.mu.segments), nil
}

func (l *Log) segErr(err error) error {
	if vfs.IsFull(err) {
		return err
	}
	return l.readErr(err)
}

// newestTime is the largest record timestamp, or when the file was written.
func newestTime(s *segment.Segment) (int64, error) {
	ts, _, err := s.Max()
	if err != nil || ts >= 0 {
		return ts, err
	}
	return s.ModTime(), nil
}
