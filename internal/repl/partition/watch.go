package partition

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Watcher is told that a partition it watches changed: data came, the high watermark or
// the role moved. Changed must not block; it is called with no partition lock held.
type Watcher interface {
	Changed(tag int32)
}

// watchers is the table of one partition. Registering and then looking once more is the
// caller's duty (lost-wakeup rule).
type watchers struct {
	count atomic.Int32 // spares appends the lock while nobody watches
	mu    struct {
		sync.Mutex
		list []watch
	}
}

type watch struct {
	w   Watcher
	tag int32
}

// Watch registers w until Unwatch; tag comes back with every change.
func (p *Partition) Watch(w Watcher, tag int32) {
	p.watch.mu.Lock()
	p.watch.mu.list = append(p.watch.mu.list, watch{w, tag})
	p.watch.count.Store(int32(len(p.watch.mu.list)))
	p.watch.mu.Unlock()
}

// Unwatch ends a registration.
func (p *Partition) Unwatch(w Watcher, tag int32) {
	p.watch.mu.Lock()
	if i := slices.Index(p.watch.mu.list, watch{w, tag}); i >= 0 {
		// A new list: fire may be going over the old one.
		p.watch.mu.list = append(slices.Clone(p.watch.mu.list[:i]), p.watch.mu.list[i+1:]...)
		if len(p.watch.mu.list) == 0 {
			p.watch.mu.list = nil
		}
	}
	p.watch.count.Store(int32(len(p.watch.mu.list)))
	p.watch.mu.Unlock()
}

func (ws *watchers) fire() {
	if ws.count.Load() == 0 {
		return
	}
	ws.mu.Lock()
	list := ws.mu.list
	ws.mu.Unlock()
	for _, w := range list {
		w.w.Changed(w.tag)
	}
}

type hwWatch struct {
	p    *Partition
	tell func(hw int64)
	last atomic.Int64
}

func (h *hwWatch) Changed(int32) {
	if s := h.p.state.Load(); s.Log != nil {
		hw := s.Log.Offsets().HighWatermark
		for {
			last := h.last.Load()
			if hw <= last {
				return
			}
			if h.last.CompareAndSwap(last, hw) {
				h.tell(hw)
				return
			}
		}
	}
}

// OnHighWatermark calls tell, with no lock held, each time the high watermark has moved.
func (p *Partition) OnHighWatermark(tell func(hw int64)) (cancel func()) {
	w := &hwWatch{p: p, tell: tell}
	w.last.Store(p.HighWatermark())
	p.Watch(w, 0)
	return func() { p.Unwatch(w, 0) }
}

// Flag is a Watcher for a single wait: C is readable after a change.
type Flag struct{ C chan struct{} }

// NewFlag makes a Flag.
func NewFlag() *Flag { return &Flag{C: make(chan struct{}, 1)} }

// Changed raises the flag.
func (f *Flag) Changed(int32) {
	select {
	case f.C <- struct{}{}:
	default:
	}
}
