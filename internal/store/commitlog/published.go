package commitlog

import (
	"runtime"
	"sync/atomic"

	"runnel/internal/store/segment"
)

// Offsets bound a log. They are one consistent snapshot.
type Offsets struct {
	LogStart, HighWatermark, LastStable, End int64
	// Durable is the end of what survives a power loss.
	Durable int64
}

// view is all that a reader needs to agree with itself.
type view struct {
	Offsets
	tail     int64              // readable bytes of the last segment
	segments []*segment.Segment // by base offset; immutable
}

// limit is the readable length of segment i, next the offset at which it ends.
func (v *view) limit(i int) int64 {
	if i == len(v.segments)-1 {
		return v.tail
	}
	return v.segments[i].Size()
}

func (v *view) next(i int) int64 {
	if i == len(v.segments)-1 {
		return v.End
	}
	return v.segments[i+1].Base()
}

// floor is the index of the segment that covers offset.
func (v *view) floor(offset int64) int {
	lo, hi := 0, len(v.segments)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; v.segments[mid].Base() <= offset {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// published hands a view to readers without a lock and without an allocation for each
// append: the writer makes seq odd, stores, and makes it even again; a reader that saw seq
// change reads again.
type published struct {
	seq                                   atomic.Uint64
	start, hw, stable, end, durable, tail atomic.Int64
	segments                              atomic.Pointer[[]*segment.Segment]
}

// store is called under the writer lock. list points to v.segments; a new pointer means a
// new list.
func (p *published) store(v *view, list *[]*segment.Segment) {
	p.seq.Add(1)
	p.start.Store(v.LogStart)
	p.hw.Store(v.HighWatermark)
	p.stable.Store(v.LastStable)
	p.end.Store(v.End)
	p.durable.Store(v.Durable)
	p.tail.Store(v.tail)
	p.segments.Store(list)
	p.seq.Add(1)
}

func (p *published) load() view {
	for {
		before := p.seq.Load()
		if before&1 == 0 {
			v := view{Offsets: Offsets{p.start.Load(), p.hw.Load(), p.stable.Load(), p.end.Load(), p.durable.Load()},
				tail: p.tail.Load(), segments: *p.segments.Load()}
			if p.seq.Load() == before {
				return v
			}
		}
		runtime.Gosched()
	}
}
