package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash gives the file system as a machine would find it after losing power now; m itself
// goes on unharmed, and the result holds no locks and no open files. What was synced is
// there. Of what was not, rand decides: per directory, un-synced changes of names last in
// order up to some point, or each by itself; per file, un-synced content is lost, is
// whole, is cut anywhere, or lasts page by page, with zeros where the length reached the
// disk and the bytes did not. A nil rand loses everything that was not synced.
func (m *Mem) Crash(rnd *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := NewMem()
	c := crasher{rnd: rnd, seen: map[*memNode]*memNode{}}
	out.mu.root = c.node(m.mu.root)
	out.used.Store(out.mu.root.bytes())
	out.capacity.Store(m.capacity.Load())
	return out
}

type crasher struct {
	rnd  *rand.Rand
	seen map[*memNode]*memNode // a node may survive under two names
}

func (c *crasher) pick(n int64) int64 {
	if c.rnd == nil || n <= 0 {
		return 0
	}
	return c.rnd.Int64N(n)
}

func (c *crasher) node(n *memNode) *memNode {
	if done := c.seen[n]; done != nil {
		return done
	}
	out := &memNode{modTime: n.modTime}
	c.seen[n] = out
	if n.entries == nil {
		c.file(&n.content, &out.content)
		return out
	}
	out.entries = map[string]*memNode{}
	names := c.names(n)
	for _, name := range slices.Sorted(maps.Keys(names)) { // in order, so that a seed says all
		out.entries[name] = c.node(names[name])
	}
	return out
}

// names decides which entries of a directory survive.
func (c *crasher) names(n *memNode) map[string]*memNode {
	names := make(map[string]*memNode, len(n.entries))
	for name, e := range n.entries {
		names[name] = e
	}
	put := func(name string, e *memNode) {
		if e == nil {
			delete(names, name)
		} else {
			names[name] = e
		}
	}
	for i := len(n.pending) - 1; i >= 0; i-- {
		effects := n.pending[i].effects
		for j := len(effects) - 1; j >= 0; j-- {
			put(effects[j].name, effects[j].old)
		}
	}
	if c.rnd == nil {
		return names
	}
	ordered := c.pick(2) == 0
	upTo := int(c.pick(int64(len(n.pending) + 1)))
	for i, op := range n.pending {
		if ordered && i >= upTo {
			break
		}
		if !ordered && c.pick(2) == 0 {
			continue
		}
		for _, e := range op.effects {
			put(e.name, e.new)
		}
	}
	return names
}

// file decides what a file holds.
func (c *crasher) file(from, to *memContent) {
	from.mu.Lock()
	defer from.mu.Unlock()
	size, whole := from.mu.durable, false
	mixed := false
	if c.rnd != nil {
		switch c.pick(4) {
		case 0: // lost
		case 1:
			size, whole = from.mu.size, true
		case 2: // the writes lasted in order, up to some byte
			if from.mu.size > from.mu.durable && len(from.mu.saved) == 0 {
				size, whole = from.mu.durable+c.pick(from.mu.size-from.mu.durable+1), true
			}
		case 3:
			mixed = true
			if from.mu.size != from.mu.durable && c.pick(2) == 0 {
				size = from.mu.size
			} else {
				size = max(size, from.mu.size)
			}
		}
	}
	page := make([]byte, pageSize)
	to.mu.Lock()
	defer to.mu.Unlock()
	for p := int64(0); p*pageSize < size; p++ {
		n := min(pageSize, size-p*pageSize)
		clear(page)
		if whole || mixed && c.pick(2) == 0 {
			if have := min(n, from.mu.size-p*pageSize); have > 0 {
				from.copyLocked(page[:have], p*pageSize)
			}
		} else {
			copy(page, from.durableLocked(p))
		}
		to.writeLocked(page[:n], p*pageSize)
	}
	to.mu.durable = to.mu.size
	to.mu.saved = nil
}
