package quorum

import (
	"errors"
	"fmt"
	"path"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
)

const feedBytes = 1 << 20 // read at once for the listener

// feed delivers committed batches and what hangs on them, in order. It runs a goroutine
// only while there is something to deliver.
type feed struct {
	q    *Quorum
	next int64 // the running goroutine's; -1 before the first delivery

	mu struct {
		sync.Mutex
		idle    sync.Cond
		running bool
		closed  bool
		hw      int64
		newest  SnapshotID
		notices []notice
	}
}

// notice runs once everything below at is delivered. An append's is told nil then, or
// why it was lost.
type notice struct {
	at       int64
	run      func(err error)
	fallible bool // an append's done, or news of leadership: void once leadership is lost
	err      error
}

func newFeed(q *Quorum) *feed {
	f := &feed{q: q, next: -1}
	f.mu.hw, f.mu.newest = -1, noSnapshot
	f.mu.idle.L = &f.mu
	return f
}

func (f *feed) startLocked() {
	if !f.mu.running && !f.mu.closed {
		f.mu.running = true
		go f.run()
	}
}

// committed says how far the log is committed.
func (f *feed) committed(hw int64, newest SnapshotID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.hw, f.mu.newest = max(f.mu.hw, hw), newest
	f.startLocked()
}

func (f *feed) add(n notice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.notices = append(f.mu.notices, n)
	f.startLocked()
}

// lost turns everything that waits for more than is committed into a failure.
func (f *feed) lost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, n := range f.mu.notices {
		if n.fallible && n.at > f.mu.hw {
			f.mu.notices[i].at, f.mu.notices[i].err = 0, err
		}
	}
	f.startLocked()
}

// close ends deliveries and waits for the one that runs.
func (f *feed) close() {
	f.mu.Lock()
	f.mu.closed = true
	for f.mu.running {
		f.mu.idle.Wait()
	}
	left := f.mu.notices
	f.mu.notices = nil
	f.mu.Unlock()
	for _, n := range left {
		if n.fallible {
			n.run(errClosed)
		}
	}
}

func (f *feed) run() {
	for {
		f.mu.Lock()
		var due []notice
		for len(f.mu.notices) > 0 && (f.mu.notices[0].at <= f.next || f.mu.notices[0].at == 0) && !f.mu.closed {
			due = append(due, f.mu.notices[0])
			f.mu.notices = f.mu.notices[1:]
		}
		hw, newest := f.mu.hw, f.mu.newest
		if f.mu.closed || len(due) == 0 && f.next >= hw {
			f.mu.running = false
			f.mu.idle.Broadcast()
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		for _, n := range due {
			n.run(n.err)
		}
		if f.next >= hw {
			continue
		}
		if err := f.deliver(hw, newest); err != nil {
			f.mu.Lock()
			f.mu.closed = true
			f.mu.Unlock()
			f.q.fatal(fmt.Errorf("reading the committed metadata log: %w", err))
		}
	}
}

func (f *feed) deliver(hw int64, newest SnapshotID) error {
	log := f.q.opt.Log
	if start := log.Offsets().LogStart; newest != noSnapshot && (f.next < 0 || f.next < start) && newest.EndOffset <= hw {
		f.q.opt.State.Snapshot(ReadSnapshot(f.q.opt.FS, path.Join(f.q.opt.Dir, newest.fileName())), newest)
		f.next = newest.EndOffset
		return nil
	} else if f.next < 0 {
		f.next = start
	}
	read, err := log.Read(f.next, hw, feedBytes, true)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		f.mu.Lock()
		moved := f.mu.newest != newest
		f.mu.Unlock()
		if moved || log.Offsets().LogStart > f.next {
			return nil // a snapshot took its place
		}
	}
	if err != nil {
		return err
	}
	defer read.Region.Done()
	buf, err := read.Region.ReadAll()
	if err != nil {
		return err
	}
	if len(buf) == 0 {
		return fmt.Errorf("nothing at offset %d below the high watermark %d", f.next, hw)
	}
	return f.batches(buf)
}

func (f *feed) batches(buf []byte) error {
	for len(buf) > 0 {
		b, rest, err := record.Next(buf)
		if errors.Is(err, record.ErrShort) {
			return nil
		}
		if err != nil {
			return err
		}
		buf = rest
		if b.LastOffset() < f.next {
			continue
		}
		var values [][]byte
		if !b.IsControl() {
			if values, err = valuesOf(b); err != nil {
				return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
			}
		}
		f.q.opt.State.Committed(values, b.LastOffset(), b.LeaderEpoch(), b.MaxTimestamp())
		f.next = b.NextOffset()
	}
	return nil
}
