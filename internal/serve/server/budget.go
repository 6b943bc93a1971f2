package server

import (
	"context"
	"sync"
)

// Budget bounds the bytes that requests in flight take, over all connections. Whoever
// finds it spent waits; a request larger than the whole budget goes alone.
type Budget struct {
	limit int64
	mu    struct {
		sync.Mutex
		used    int64
		waiters []*budgetWaiter
	}
}

type budgetWaiter struct {
	n  int64
	ok chan struct{}
}

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Acquire takes n bytes, in the order of asking.
func (b *Budget) Acquire(ctx context.Context, n int64) error {
	b.mu.Lock()
	if len(b.mu.waiters) == 0 && b.fitsLocked(n) {
		b.mu.used += n
		b.mu.Unlock()
		return nil
	}
	w := &budgetWaiter{n: n, ok: make(chan struct{})}
	b.mu.waiters = append(b.mu.waiters, w)
	b.mu.Unlock()
	select {
	case <-w.ok:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range b.mu.waiters {
		if o == w {
			b.mu.waiters = append(b.mu.waiters[:i], b.mu.waiters[i+1:]...)
			b.grantLocked()
			return ctx.Err()
		}
	}
	// Granted at the same moment: give it back.
	b.mu.used -= n
	b.grantLocked()
	return ctx.Err()
}

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.mu.used -= n
	b.grantLocked()
	b.mu.Unlock()
}

// Used is what is taken now, in bytes.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.used
}

func (b *Budget) fitsLocked(n int64) bool {
	return b.mu.used == 0 || b.mu.used+n <= b.limit
}

func (b *Budget) grantLocked() {
	for len(b.mu.waiters) > 0 && b.fitsLocked(b.mu.waiters[0].n) {
		w := b.mu.waiters[0]
		b.mu.waiters = b.mu.waiters[1:]
		b.mu.used += w.n
		close(w.ok)
	}
}
