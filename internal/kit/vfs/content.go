package vfs

import (
	"io"
	"sync"
)

// chunkSize is the unit of a Mem file's content, pageSize the unit in which a crash may
// keep or lose un-synced writes.
const (
	chunkSize = 64 << 10
	pageSize  = 4 << 10
)

// memContent is a file's bytes: what readers see, and what the last Sync made durable,
// kept as the pages that changed since.
type memContent struct {
	mu struct {
		sync.RWMutex
		size   int64
		chunks [][]byte // nil or short chunks read as zeros

		durable int64            // length at the last Sync
		saved   map[int64][]byte // page number -> content at the last Sync
	}
}

func (c *memContent) len() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.size
}

func (c *memContent) readAt(p []byte, off int64) (int, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if off >= c.mu.size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := min(int64(len(p)), c.mu.size-off)
	c.copyLocked(p[:n], off)
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

func (c *memContent) copyLocked(p []byte, off int64) {
	for len(p) > 0 {
		i, at := int(off/chunkSize), int(off%chunkSize)
		n := min(len(p), chunkSize-at)
		got := 0
		if i < len(c.mu.chunks) && at < len(c.mu.chunks[i]) {
			got = copy(p[:n], c.mu.chunks[i][at:])
		}
		clear(p[got:n])
		p, off = p[n:], off+int64(n)
	}
}

// writeLocked gives by how much the file grew.
func (c *memContent) writeLocked(p []byte, off int64) (grown int64) {
	if len(p) == 0 {
		return 0
	}
	c.saveLocked(off, off+int64(len(p)))
	end := off + int64(len(p))
	for len(p) > 0 {
		i, at := int(off/chunkSize), int(off%chunkSize)
		n := min(len(p), chunkSize-at)
		for i >= len(c.mu.chunks) {
			c.mu.chunks = append(c.mu.chunks, nil)
		}
		c.mu.chunks[i] = grow(c.mu.chunks[i], at+n)
		copy(c.mu.chunks[i][at:], p[:n])
		p, off = p[n:], off+int64(n)
	}
	if end > c.mu.size {
		grown, c.mu.size = end-c.mu.size, end
	}
	return grown
}

// grow lengthens a chunk with zeros, doubling its room so that small files stay small.
func grow(b []byte, n int) []byte {
	if n <= len(b) {
		return b
	}
	if n > cap(b) {
		room := max(64, 2*cap(b))
		for room < n {
			room *= 2
		}
		nb := make([]byte, n, min(room, chunkSize))
		copy(nb, b)
		return nb
	}
	was := len(b)
	b = b[:n]
	clear(b[was:])
	return b
}

// saveLocked keeps the durable content of the pages in [from, to) before they change.
func (c *memContent) saveLocked(from, to int64) {
	to = min(to, c.mu.durable)
	for page := from / pageSize; page*pageSize < to; page++ {
		if _, have := c.mu.saved[page]; have {
			continue
		}
		b := make([]byte, min(pageSize, c.mu.durable-page*pageSize))
		c.copyLocked(b, page*pageSize)
		if c.mu.saved == nil {
			c.mu.saved = map[int64][]byte{}
		}
		c.mu.saved[page] = b
	}
}

// truncate gives by how much the file shrank.
func (c *memContent) truncate(size int64) (shrunk int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shrunk = c.mu.size - size
	if shrunk > 0 {
		c.saveLocked(size, c.mu.size)
		keep := int((size + chunkSize - 1) / chunkSize)
		if keep < len(c.mu.chunks) {
			clear(c.mu.chunks[keep:])
			c.mu.chunks = c.mu.chunks[:keep]
		}
		if at := int(size % chunkSize); at > 0 && keep > 0 && keep == len(c.mu.chunks) && len(c.mu.chunks[keep-1]) > at {
			c.mu.chunks[keep-1] = c.mu.chunks[keep-1][:at]
		}
	}
	c.mu.size = size
	return shrunk
}

func (c *memContent) sync() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.durable = c.mu.size
	c.mu.saved = nil
}

// durableLocked gives the bytes of the last Sync in [page*pageSize, ...) cut to length.
func (c *memContent) durableLocked(page int64) []byte {
	if b, ok := c.mu.saved[page]; ok {
		return b
	}
	n := min(pageSize, c.mu.durable-page*pageSize)
	if n <= 0 {
		return nil
	}
	b := make([]byte, n)
	c.copyLocked(b, page*pageSize)
	return b
}
