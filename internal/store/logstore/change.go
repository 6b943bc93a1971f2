package logstore

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/commitlog"
)

// New is a partition to be created. A zero, UNASSIGNED or unknown Dir lets the store
// choose the directory with the fewest logs.
type New struct {
	TP      ids.TopicPartition
	TopicID ids.UUID
	Dir     ids.UUID
}

// Create makes the logs that do not exist yet, and gives all of them in order. Names are
// made durable once for each directory.
func (s *Store) Create(news []New) ([]*commitlog.Log, error) {
	counts := s.counts()
	out := make([]*commitlog.Log, len(news))
	made := map[*dir][]*entry{}
	fresh := map[*dir]map[ids.TopicPartition]bool{}
	places := make([]*dir, len(news))
	for i, n := range news {
		if l := s.Log(n.TP); l != nil {
			if !n.TopicID.IsZero() {
				if err := l.Identify(n.TopicID); err != nil {
					return nil, err
				}
			}
			out[i] = l
			continue
		}
		if err := s.Broken(n.TP); err != nil {
			return nil, err
		}
		d, err := s.choose(n.Dir, counts)
		if err != nil {
			return nil, err
		}
		counts[d]++
		places[i] = d
		if fresh[d] == nil {
			fresh[d] = map[ids.TopicPartition]bool{}
		}
		fresh[d][n.TP] = true
	}
	for d, tps := range fresh {
		if err := s.forget(d, tps); err != nil {
			return nil, s.dirErr(d, err)
		}
	}
	for i, n := range news {
		d := places[i]
		if d == nil {
			continue
		}
		if l := s.Log(n.TP); l != nil { // named twice
			out[i] = l
			continue
		}
		o := s.logOptions(d, n.TP.String(), n.TP)
		o.TopicID, o.New, o.Clean = n.TopicID, true, false
		l, _, err := commitlog.Open(o)
		if err != nil {
			return nil, s.dirErr(d, err)
		}
		e := &entry{l, d}
		s.mu.Lock()
		s.mu.logs[n.TP] = e
		s.mu.Unlock()
		made[d] = append(made[d], e)
		out[i] = l
	}
	for d, entries := range made {
		if err := s.o.FS.SyncDir(d.path); err != nil {
			return nil, s.dirErr(d, err)
		}
		for _, e := range entries {
			e.log.DirectorySynced()
		}
	}
	return out, nil
}

// dirErr takes a directory offline, unless the disk is only full.
func (s *Store) dirErr(d *dir, err error) error {
	if vfs.IsFull(err) {
		return fmt.Errorf("log directory %s: disk is full: %w: %w", d.path, kerr.KafkaStorageError, err)
	}
	s.failDir(d, err)
	return d.failure()
}

func (s *Store) counts() map[*dir]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := map[*dir]int{}
	for _, e := range s.mu.logs {
		c[e.dir]++
	}
	return c
}

func (s *Store) choose(id ids.UUID, counts map[*dir]int) (*dir, error) {
	if !id.Reserved() {
		if d := s.dirByID(id); d != nil && d.data {
			return d, d.failure()
		}
	}
	var best *dir
	for _, d := range s.dirs {
		if !d.data || d.failure() != nil {
			continue
		}
		if best == nil || d.full.Load() != best.full.Load() && best.full.Load() || d.full.Load() == best.full.Load() && counts[d] < counts[best] {
			best = d
		}
	}
	if best == nil {
		return nil, fmt.Errorf("no log directory is online: %w", kerr.KafkaStorageError)
	}
	return best, nil
}

func (s *Store) dirByID(id ids.UUID) *dir {
	for _, d := range s.dirs {
		if d.id == id {
			return d
		}
	}
	return nil
}

// Delete takes the partition away: its directory is renamed at once and removed after
// log.segment.delete.delay.ms. A future copy goes with it.
func (s *Store) Delete(tp ids.TopicPartition) error {
	s.moving.Lock()
	defer s.moving.Unlock()
	if err := s.drop(tp, deleteSuffix); err != nil {
		return err
	}
	s.mu.Lock()
	f := s.mu.futures[tp]
	delete(s.mu.futures, tp)
	s.mu.Unlock()
	if f != nil {
		return s.remove(f, deleteSuffix)
	}
	return nil
}

// Stray takes the partition out of service but keeps its directory, renamed: the metadata
// does not know it.
func (s *Store) Stray(tp ids.TopicPartition) error {
	s.moving.Lock()
	defer s.moving.Unlock()
	return s.drop(tp, straySuffix)
}

func (s *Store) drop(tp ids.TopicPartition, suffix string) error {
	s.mu.Lock()
	e := s.mu.logs[tp]
	delete(s.mu.logs, tp)
	delete(s.mu.cleanFrom, tp)
	s.mu.Unlock()
	if e == nil {
		return fmt.Errorf("%s: %w", tp, ErrNoSuchLog)
	}
	return s.remove(e, suffix)
}

func (s *Store) remove(e *entry, suffix string) error {
	to := path.Join(e.dir.path, s.transitionName(e.log.TP(), suffix))
	err := e.log.Rename(to)
	e.log.Abandon()
	if err != nil {
		return err
	}
	if suffix == deleteSuffix {
		s.doom(to, s.o.Now().Add(s.o.FileDeleteDelay))
	}
	if err := s.o.FS.SyncDir(e.dir.path); err != nil {
		return s.dirErr(e.dir, err)
	}
	return nil
}

func (s *Store) doom(name string, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.doomed = append(s.mu.doomed, doomed{name, due})
}

// MoveTo begins to move a partition to another directory: an empty future log is made
// there. CatchUp fills it and Promote puts it in the current one's place. Moving to where
// the partition is drops a future.
func (s *Store) MoveTo(tp ids.TopicPartition, to ids.UUID) error {
	d := s.dirByID(to)
	if d == nil || !d.data {
		return fmt.Errorf("directory %s: %w", to, kerr.LogDirNotFound)
	}
	if err := d.failure(); err != nil {
		return err
	}
	s.moving.Lock()
	defer s.moving.Unlock()
	s.mu.Lock()
	cur, old := s.mu.logs[tp], s.mu.futures[tp]
	if cur == nil {
		s.mu.Unlock()
		return fmt.Errorf("%s: %w", tp, kerr.ReplicaNotAvailable)
	}
	if old != nil && old.dir == d {
		s.mu.Unlock()
		return nil
	}
	delete(s.mu.futures, tp)
	s.mu.Unlock()
	if old != nil {
		if err := s.remove(old, deleteSuffix); err != nil {
			return err
		}
	}
	if cur.dir == d {
		return nil
	}
	o := s.logOptions(d, s.transitionName(tp, futureSuffix), tp)
	o.TopicID, o.New, o.Clean, o.LogStart = cur.log.TopicID(), true, false, cur.log.Offsets().LogStart
	l, _, err := commitlog.Open(o)
	if err != nil {
		return s.dirErr(d, err)
	}
	if err := s.o.FS.SyncDir(d.path); err != nil {
		return s.dirErr(d, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.futures[tp] = &entry{l, d}
	return nil
}

// Future is the log that a move fills, or nil.
func (s *Store) Future(tp ids.TopicPartition) *commitlog.Log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.mu.futures[tp]; e != nil {
		return e.log
	}
	return nil
}

// Futures are the partitions with a move under way, those that a stop interrupted too.
func (s *Store) Futures() []ids.TopicPartition {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.mu.futures))
}

// CatchUp copies at most bytes from the current log to the future one, and reports
// whether the future has everything. One goroutine at a time calls it for a partition.
func (s *Store) CatchUp(tp ids.TopicPartition, bytes int) (done bool, err error) {
	cur, next := s.Log(tp), s.Future(tp)
	if cur == nil || next == nil {
		return false, fmt.Errorf("%s: %w", tp, ErrNoSuchLog)
	}
	if done, err = copyStep(cur, next, bytes); err != nil && (s.Log(tp) != cur || s.Future(tp) != next) {
		return false, nil // one of them was taken away meanwhile; the next step looks again
	}
	return done, err
}

func copyStep(cur, next *commitlog.Log, bytes int) (done bool, err error) {
	from, c := next.Offsets(), cur.Offsets()
	switch {
	case from.End > c.End:
		return false, next.TruncateTo(c.End)
	case from.End < c.LogStart:
		return false, next.TruncateFully(c.LogStart)
	case from.End < c.End:
		r, err := cur.Read(from.End, c.End, bytes, true)
		if errors.Is(err, kerr.OffsetOutOfRange) && from.End < cur.Offsets().LogStart {
			return false, nil // records were deleted meanwhile
		}
		if err != nil {
			return false, err
		}
		raw, err := r.Region.ReadAll()
		r.Region.Done()
		if err != nil {
			return false, cur.Fail(err)
		}
		if len(raw) == 0 {
			return false, fmt.Errorf("log %s holds nothing from %d to its end %d: a copy cannot follow", cur.Dir(), from.End, c.End)
		}
		// Where the log start is inside a batch, the copy holds that batch whole too.
		if base := record.Batch(raw).BaseOffset(); base < from.End {
			if from.End > from.LogStart {
				return false, next.TruncateFully(c.LogStart)
			}
			if err := next.TruncateFully(base); err != nil {
				return false, err
			}
		}
		if _, err := next.AppendAsIs(raw); err != nil {
			return false, err
		}
	}
	next.AdvanceHighWatermark(c.HighWatermark)
	if from = next.Offsets(); c.LogStart > from.LogStart {
		if err := next.RaiseLogStart(min(c.LogStart, from.HighWatermark)); err != nil {
			return false, err
		}
	}
	from, c = next.Offsets(), cur.Offsets()
	return from.End == c.End && from.LogStart >= c.LogStart, nil
}

// Promote puts a future that has caught up in the place of the current log, whose
// directory is deleted. The caller lets nobody append meanwhile. It gives nil where the
// future has not caught up: it may be another one than the caller last filled.
func (s *Store) Promote(tp ids.TopicPartition) (*commitlog.Log, error) {
	s.moving.Lock()
	defer s.moving.Unlock()
	s.mu.RLock()
	cur, next := s.mu.logs[tp], s.mu.futures[tp]
	s.mu.RUnlock()
	if cur == nil || next == nil {
		return nil, fmt.Errorf("%s: %w", tp, ErrNoSuchLog)
	}
	if a, b := cur.log.Offsets(), next.log.Offsets(); a.End != b.End || a.LogStart > b.LogStart {
		return nil, nil
	}
	if err := next.log.Flush(); err != nil {
		return nil, err
	}
	if err := s.forget(next.dir, map[ids.TopicPartition]bool{tp: true}); err != nil {
		return nil, s.dirErr(next.dir, err)
	}
	if v, ok := cur.dir.marks.get(cleanerPoint, tp); ok {
		if err := next.dir.marks.set(s.o.FS, next.dir.path, cleanerPoint, tp, v); err != nil {
			return nil, s.dirErr(next.dir, err)
		}
	}
	if err := next.log.Rename(path.Join(next.dir.path, tp.String())); err != nil {
		return nil, err
	}
	if err := s.o.FS.SyncDir(next.dir.path); err != nil {
		return nil, s.dirErr(next.dir, err)
	}
	s.mu.Lock()
	s.mu.logs[tp] = next
	delete(s.mu.futures, tp)
	delete(s.mu.cleanFrom, tp)
	s.mu.Unlock()
	// From here on the new log serves, whatever becomes of the old copy.
	if err := s.remove(cur, deleteSuffix); err != nil && s.o.Events.Note != nil {
		s.o.Events.Note(cur.dir.path, fmt.Sprintf("%s was moved to %s, but the old copy is still there: %v", tp, next.dir.path, err))
	}
	return next.log, nil
}
