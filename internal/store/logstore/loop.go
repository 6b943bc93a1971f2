package logstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/commitlog"
	"runnel/internal/store/compact"
)

// rolledQueue collects logs with closed segments to be flushed.
type rolledQueue struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		logs map[*commitlog.Log]bool
	}
}

func (q *rolledQueue) add(l *commitlog.Log) {
	q.mu.Lock()
	if q.mu.logs == nil {
		q.mu.logs = map[*commitlog.Log]bool{}
	}
	q.mu.logs[l] = true
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *rolledQueue) take() map[*commitlog.Log]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	logs := q.mu.logs
	q.mu.logs = nil
	return logs
}

// Run does the maintenance until ctx ends. A slow disk delays only the turn that waits
// for it.
func (s *Store) Run(ctx context.Context) {
	var wg sync.WaitGroup
	turn := func(first, every time.Duration, do func(context.Context)) {
		if every <= 0 {
			return
		}
		wg.Go(func() { repeat(ctx, first, every, do) })
	}
	o := &s.o
	turn(o.InitialDelay, o.RetentionCheck, s.retentionTurn)
	turn(o.HWCheckpoint, o.HWCheckpoint, func(context.Context) { s.checkpoints(highWatermark) })
	turn(o.FlushCheckpoint, o.FlushCheckpoint, func(context.Context) { s.checkpoints(recoveryPoint) })
	turn(o.StartCheckpoint, o.StartCheckpoint, func(context.Context) { s.checkpoints(logStart) })
	turn(o.FlushScheduler, o.FlushScheduler, s.flushTurn)
	turn(o.ProducerExpiryCheck, o.ProducerExpiryCheck, s.expiryTurn)
	turn(time.Second, deleteEvery(o.FileDeleteDelay), s.deleteTurn)
	if !o.CleanerDisabled {
		turn(o.InitialDelay, o.CleanerBackoff, s.cleanTurn)
	}
	wg.Go(func() { s.flushRolled(ctx) })
	wg.Wait()
}

// deleteEvery is how often delayed deletions are looked at.
func deleteEvery(delay time.Duration) time.Duration {
	return min(max(delay/2, 100*time.Millisecond), 30*time.Second)
}

func repeat(ctx context.Context, first, every time.Duration, do func(context.Context)) {
	t := time.NewTimer(first)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			do(ctx)
			t.Reset(every)
		}
	}
}

func (s *Store) checkpoints(k mark) {
	for _, d := range s.dirs {
		s.checkpoint(d, k) // failures took the directory offline; a full disk gets another turn
	}
}

func (s *Store) flushRolled(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.rolled.wake:
			for l := range s.rolled.take() {
				if err := l.FlushInactive(); vfs.IsFull(err) {
					continue // the next roll or flush tries again
				}
			}
		}
	}
}

// retentionTurn applies retention to the logs that no cleaner visits.
func (s *Store) retentionTurn(ctx context.Context) {
	for _, e := range s.entries(nil) {
		if ctx.Err() != nil {
			return
		}
		if !e.log.Config().Compact || s.o.CleanerDisabled {
			s.retain(e)
		}
	}
}

func (s *Store) retain(e *entry) {
	n, _ := e.log.DeleteOld(s.o.Now()) // an error is the log's end, or a full disk
	if n > 0 && s.o.Events.Deleted != nil {
		s.o.Events.Deleted(e.log.TP(), n)
	}
}

func (s *Store) flushTurn(ctx context.Context) {
	for _, e := range s.entries(nil) {
		if ctx.Err() != nil {
			return
		}
		e.log.FlushLate(s.o.Now())
	}
}

func (s *Store) expiryTurn(context.Context) {
	for _, e := range s.entries(nil) {
		e.log.ExpireProducers(s.o.Now())
	}
}

// deleteTurn removes segments and partitions whose delay is over.
func (s *Store) deleteTurn(ctx context.Context) {
	now := s.o.Now()
	for _, e := range s.entries(nil) {
		if ctx.Err() != nil {
			return
		}
		e.log.RemoveDoomed(now)
	}
	s.mu.Lock()
	var due []doomed
	kept := s.mu.doomed[:0]
	for _, d := range s.mu.doomed {
		if d.due.After(now) {
			kept = append(kept, d)
		} else {
			due = append(due, d)
		}
	}
	s.mu.doomed = kept
	s.mu.Unlock()
	for _, d := range due {
		if err := s.o.FS.RemoveAll(d.path); err != nil {
			s.doom(d.path, now.Add(s.o.FileDeleteDelay))
		}
	}
}

// cleanTurn cleans the dirtiest logs until none is due, and applies retention to the
// compacted ones.
func (s *Store) cleanTurn(ctx context.Context) {
	for ctx.Err() == nil {
		e, plan := s.dirtiest()
		if e == nil {
			break
		}
		s.cleanOne(ctx, e, plan)
	}
	for _, e := range s.entries(nil) {
		if ctx.Err() != nil {
			return
		}
		if e.log.Config().Compact {
			s.retain(e)
		}
	}
}

func (s *Store) dirtiest() (*entry, compact.Plan) {
	var best *entry
	var bestPlan compact.Plan
	for _, e := range s.entries(nil) {
		if !e.log.Config().Compact || e.log.Segments() < 2 || e.log.Failed() != nil || s.uncleanable(e.log.TP()) {
			continue
		}
		from, ok := e.dir.marks.get(cleanerPoint, e.log.TP())
		if !ok {
			from = -1
		}
		p, err := compact.Inspect(e.log, from, s.o.Now())
		if err != nil || !p.Due() {
			continue
		}
		if best == nil || p.Ratio() > bestPlan.Ratio() {
			best, bestPlan = e, p
		}
	}
	return best, bestPlan
}

func (s *Store) uncleanable(tp ids.TopicPartition) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.cleanFrom[tp] != nil
}

func (s *Store) cleanOne(ctx context.Context, e *entry, plan compact.Plan) {
	tp := e.log.TP()
	// Recovery takes a hole above the recovery point for a lost tail, so the holes that a
	// pass makes have to lie below it, on disk, first.
	if e.log.FlushInactive() != nil {
		return
	}
	if e.dir.marks.at(recoveryPoint, tp) < plan.FirstUncleanable && s.checkpoint(e.dir, recoveryPoint) != nil {
		return
	}
	r, err := compact.Pass(ctx, plan, compact.Options{MapBytes: s.o.CleanerMapBytes, Pace: s.pace(ctx)}, s.o.Now())
	if err == nil {
		err = e.dir.marks.set(s.o.FS, e.dir.path, cleanerPoint, tp, r.EndOffset)
	}
	switch {
	case err == nil && r.EndOffset > plan.FirstDirty:
		if s.o.Events.Cleaned != nil {
			s.o.Events.Cleaned(tp, r.BytesBefore, r.BytesAfter)
		}
		return
	case ctx.Err() != nil || errors.Is(err, commitlog.ErrChanged) || errors.Is(err, commitlog.ErrClosed):
		return
	case s.Log(tp) != e.log: // moved or deleted meanwhile; the log that serves now is not to blame
		return
	case err == nil:
		err = errors.New("a pass made no progress: log.cleaner.dedupe.buffer.size is too small")
	}
	s.mu.Lock()
	s.mu.cleanFrom[tp] = err
	s.mu.Unlock()
	if s.o.Events.CleanError != nil {
		s.o.Events.CleanError(tp, err)
	}
}

// pace keeps the cleaner's I/O below log.cleaner.io.max.bytes.per.second.
func (s *Store) pace(ctx context.Context) func(int) {
	if s.o.CleanerBytesPerSec <= 0 {
		return nil
	}
	debt := 0.0
	last := time.Now()
	return func(n int) {
		now := time.Now()
		debt = max(0, debt-now.Sub(last).Seconds()*s.o.CleanerBytesPerSec) + float64(n)
		last = now
		if wait := time.Duration((debt/s.o.CleanerBytesPerSec - 0.1) * float64(time.Second)); wait > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
	}
}

// Close stops cleanly: every log is flushed and closed, checkpoints are written, and
// directories in which all of that worked are marked as clean.
func (s *Store) Close(brokerEpoch int64) error {
	var wg sync.WaitGroup
	errs := make([]error, len(s.dirs))
	for i, d := range s.dirs {
		wg.Go(func() { errs[i] = s.closeDir(d, brokerEpoch) })
	}
	wg.Wait()
	s.unlock()
	return errors.Join(errs...)
}

func (s *Store) closeDir(d *dir, brokerEpoch int64) error {
	if err := d.failure(); err != nil {
		return err
	}
	entries := s.entries(d)
	s.mu.RLock()
	for _, e := range s.mu.futures {
		if e.dir == d {
			entries = append(entries, e)
		}
	}
	s.mu.RUnlock()
	first := s.closeLogs(d, entries)
	for _, k := range []mark{recoveryPoint, logStart, highWatermark} {
		if first == nil {
			first = s.checkpoint(d, k)
		}
	}
	if first != nil {
		return first
	}
	return checkpoint.WriteClean(s.o.FS, d.path, brokerEpoch)
}

// closeTogether is the number of logs from which they share the syncs of a clean stop.
const closeTogether = 16

// closeLogs closes a directory's logs with all they hold durable.
func (s *Store) closeLogs(d *dir, entries []*entry) error {
	if len(entries) >= closeTogether {
		if done, err := s.closeAtOnce(d, entries); done {
			return err
		}
	}
	return s.eachLog(entries, (*commitlog.Log).Close)
}

// closeAtOnce writes what every log needs, syncs the file system, puts the new files in
// their places and syncs again: two syncs for any number of logs. false where the system
// has no such sync; the logs are open then.
func (s *Store) closeAtOnce(d *dir, entries []*entry) (bool, error) {
	if err := s.eachLog(entries, (*commitlog.Log).PrepareClose); err != nil {
		return true, errors.Join(err, s.eachLog(entries, (*commitlog.Log).Close))
	}
	ok, err := s.o.FS.SyncAll(d.path)
	if !ok {
		return false, nil
	}
	if err != nil {
		return true, errors.Join(err, s.eachLog(entries, func(l *commitlog.Log) error { l.Abandon(); return nil }))
	}
	if err := s.eachLog(entries, (*commitlog.Log).CommitClose); err != nil {
		return true, err
	}
	_, err = s.o.FS.SyncAll(d.path)
	return true, err
}

// eachLog does something with every log, several at a time.
func (s *Store) eachLog(entries []*entry, do func(*commitlog.Log) error) error {
	next := make(chan *entry)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs error
	for range max(4, s.o.RecoveryThreads) {
		wg.Go(func() {
			for e := range next {
				if err := do(e.log); err != nil {
					mu.Lock()
					errs = errors.Join(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, e := range entries {
		next <- e
	}
	close(next)
	wg.Wait()
	return errs
}

// Abandon drops everything as a killed process would, for tests and for a node that must
// end at once.
func (s *Store) Abandon() {
	for _, e := range s.entries(nil) {
		e.log.Abandon()
	}
	s.unlock()
}
