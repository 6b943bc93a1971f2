package commitlog

import (
	"errors"
	"path"
	"time"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/segment"
)

// flushDueLocked decides by flush.messages and flush.ms.
func (l *Log) flushDueLocked(now time.Time) bool {
	cfg := l.config.Load()
	return l.mu.End-l.mu.Durable >= cfg.FlushMessages || l.lateLocked(now)
}

func (l *Log) lateLocked(now time.Time) bool {
	ms := l.config.Load().FlushMs
	if ms == 1<<63-1 || l.mu.End <= l.mu.Durable {
		return false
	}
	return record.Millis(now)-l.lastFlush.Load() >= ms
}

// FlushLate flushes if flush.ms asks for it.
func (l *Log) FlushLate(now time.Time) error {
	l.mu.Lock()
	late := l.lateLocked(now)
	l.mu.Unlock()
	if late {
		return l.Flush()
	}
	return nil
}

// Flush makes everything up to the end durable and moves Durable there. Those who come
// while another flush waits for the disk share the next one. A failed fsync is final: what
// the kernel dropped once it will report as written the next time.
func (l *Log) Flush() error { return l.flushTo(true) }

// FlushInactive makes the closed segments durable, without touching the active one.
func (l *Log) FlushInactive() error { return l.flushTo(false) }

func (l *Log) flushTo(all bool) error {
	l.mu.Lock()
	want := l.targetLocked(all)
	l.mu.Unlock()
	l.flush.Lock()
	defer l.flush.Unlock()
	l.mu.Lock()
	err := l.usableLocked()
	done := l.mu.Durable >= want && !l.epochs.Dirty()
	l.mu.Unlock()
	if err != nil || done {
		return err
	}
	return l.syncAll(all)
}

func (l *Log) targetLocked(all bool) int64 {
	if all {
		return l.mu.End
	}
	return l.activeLocked().Base()
}

// syncAll holds the flush mutex, and the writer's only to look.
func (l *Log) syncAll(all bool) error {
	if err := l.syncIdentity(); err != nil {
		return l.diskErr(err)
	}
	if err := l.epochs.Save(l.o.FS, l.Dir()); err != nil {
		return l.diskErr(err)
	}
	l.mu.Lock()
	target := l.targetLocked(all)
	dirty := make([]*segment.Segment, 0, 2)
	for i, s := range l.mu.segments {
		if s.Dirty() && (all || i < len(l.mu.segments)-1) {
			dirty = append(dirty, s)
			s.SetDirty(false)
		}
	}
	active := l.activeLocked()
	names := l.mu.namesDirty
	l.mu.namesDirty = false
	l.mu.cutTo = 1<<63 - 1
	l.mu.Unlock()

	for i, s := range dirty {
		if err := s.Sync(); err != nil && !errors.Is(err, segment.ErrGone) {
			return l.Fail(err)
		}
		if s == active {
			continue
		}
		err := s.FinishIndexes(true)
		if vfs.IsFull(err) {
			l.dirtyAgain(dirty[i:], names)
			return l.diskErr(err)
		}
		if err != nil && !errors.Is(err, segment.ErrGone) {
			return l.Fail(err)
		}
	}
	if names {
		if err := l.o.FS.SyncDir(l.Dir()); err != nil {
			return l.Fail(err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastFlush.Store(record.Millis(l.o.Now()))
	l.mu.Durable = max(l.mu.Durable, min(target, l.mu.cutTo))
	l.publishLocked()
	return nil
}

// dirtyAgain takes back what a flush promised that a full disk stopped.
func (l *Log) dirtyAgain(segs []*segment.Segment, names bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range segs {
		s.SetDirty(true)
	}
	l.mu.namesDirty = l.mu.namesDirty || names
}

// syncIdentity makes the directory's name and partition.metadata durable, once.
func (l *Log) syncIdentity() error {
	l.mu.Lock()
	identified, parented := l.mu.identified, l.mu.parented
	l.mu.Unlock()
	if identified && parented {
		return nil
	}
	if !identified && !l.o.MetadataLog {
		if err := checkpoint.SyncPartitionMetadata(l.o.FS, l.Dir()); err != nil {
			return err
		}
		if err := l.o.FS.SyncDir(l.Dir()); err != nil {
			return err
		}
	}
	if !parented {
		if err := l.o.FS.SyncDir(path.Dir(l.Dir())); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.identified, l.mu.parented = true, true
	return nil
}

// Close flushes, writes final index entries and a producer snapshot, and closes the files.
// After an error the directory must not be marked as stopped cleanly.
func (l *Log) Close() error {
	flushErr := l.Flush()
	l.flush.Lock()
	defer l.flush.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil
	}
	l.mu.closed = true
	var err error
	if flushErr == nil {
		err = l.finishLocked()
	}
	l.ended.Store(true)
	for _, s := range l.mu.segments {
		s.Release()
	}
	if flushErr != nil {
		return flushErr
	}
	return err
}

// finishLocked makes the indexes and the snapshot durable. Logs to which nothing was
// appended since they were opened have nothing to do.
func (l *Log) finishLocked() error {
	snapshot := l.mu.snapshot
	if err := l.activeLocked().FinishIndexes(true); err != nil {
		return err
	}
	if err := l.writeSnapshotLocked(); err != nil {
		return err
	}
	if l.mu.snapshot != snapshot {
		h, err := l.o.FS.OpenFile(l.snapshotName(l.mu.snapshot), vfs.ReadWrite)
		if err != nil {
			return err
		}
		err = h.Sync()
		h.Close()
		if err != nil {
			return err
		}
	}
	return l.o.FS.SyncDir(l.Dir())
}

// PrepareClose writes all that a clean stop needs and makes none of it durable: with very
// many logs one sync of the file system costs far less than some of each. CommitClose
// follows that sync; if anything fails, the directory must not be marked as clean.
func (l *Log) PrepareClose() error {
	l.flush.Lock()
	defer l.flush.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if _, err := l.epochs.Prepare(l.o.FS, l.Dir()); err != nil {
		return l.diskErr(err)
	}
	active := l.activeLocked()
	for _, s := range l.mu.segments {
		if s != active && !s.Dirty() {
			continue
		}
		if err := s.FinishIndexes(false); err != nil {
			return l.diskErr(err)
		}
	}
	return l.writeSnapshotLocked()
}

// CommitClose closes a prepared log after everything was synced. What it renames becomes
// durable with the caller's next sync.
func (l *Log) CommitClose() error {
	l.flush.Lock()
	defer l.flush.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil
	}
	if l.epochs.Dirty() {
		if err := l.epochs.Commit(l.o.FS, l.Dir()); err != nil {
			return l.diskErr(err)
		}
	}
	l.mu.Durable = l.mu.End
	l.publishLocked()
	l.mu.closed = true
	l.ended.Store(true)
	for _, s := range l.mu.segments {
		s.SetDirty(false)
		s.Release()
	}
	return nil
}

// Abandon closes the files without writing anything: the log is about to be deleted, or
// its directory is broken.
func (l *Log) Abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = true
	l.ended.Store(true)
	for _, s := range l.mu.segments {
		s.Release()
	}
}

// doomLocked renames a segment's files away; RemoveDoomed deletes them later.
func (l *Log) doomLocked(s *segment.Segment, now time.Time) error {
	names, err := s.Retire()
	due := now.Add(time.Duration(l.config.Load().FileDeleteDelayMs) * time.Millisecond)
	for _, n := range names {
		l.mu.doomed = append(l.mu.doomed, doomed{n, due})
	}
	l.mu.namesDirty = true
	return err
}

// RemoveDoomed deletes files of deleted segments whose delay is over, and gives when it
// should be called again (zero if there is nothing left).
func (l *Log) RemoveDoomed(now time.Time) (next time.Time, err error) {
	l.mu.Lock()
	var due []string
	kept := l.mu.doomed[:0]
	for _, d := range l.mu.doomed {
		if d.due.After(now) {
			kept = append(kept, d)
			if next.IsZero() || d.due.Before(next) {
				next = d.due
			}
		} else {
			due = append(due, d.name)
		}
	}
	l.mu.doomed = kept
	if len(kept) == 0 {
		l.mu.doomed = nil
	}
	l.mu.Unlock()
	for _, name := range due {
		if e := l.o.FS.Remove(name); e != nil && err == nil && !isNotExist(e) {
			err = e
		}
	}
	return next, err
}
