package segment

import (
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"weak"

	"runnel/internal/kit/vfs"
)

// tailEntries is how many new entries gather before they are written to the file.
const tailEntries = 512

// table is an index file of entries of one width. Entries are appended to a tail in
// memory; the file is opened only while it is read or written.
type table struct {
	of     *Segment
	suffix string
	width  int
	mu     struct {
		sync.RWMutex
		loaded bool
		n      int    // entries in the file
		tail   []byte // entries after those
		exists bool
	}
	// recent is the page of the file that the last search ended in: a consumer's next fetch most likely does, too.
	// It is weak, so that very many segments that were read once hold no memory.
	recent atomic.Pointer[weak.Pointer[page]]
}

// page is a part of an index file. Entries in a file never change; cutting the file drops the page.
type page struct {
	from    int // number of its first entry
	entries []byte
}

// pageEntries are read at once: 2 or 3 KiB.
const pageEntries = 256

// find is searchFile within the page; ok is false if the answer may lie outside.
func (p *page) find(w int, buf []byte, below func([]byte) bool) (i int, ok bool) {
	n := len(p.entries) / w
	if n < 2 || !below(p.entries[:w]) || below(p.entries[(n-1)*w:n*w]) {
		return 0, false
	}
	lo := halve(p.entries, w, below)
	copy(buf, p.entries[lo*w:lo*w+w])
	return p.from + lo, true
}

// halve finds the last entry for which below holds, which it does for the first.
func halve(entries []byte, w int, below func([]byte) bool) int {
	lo, hi := 0, len(entries)/w // below(lo), not below(hi)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; below(entries[mid*w : mid*w+w]) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

func (t *table) remember(p *page) {
	w := weak.Make(p)
	t.recent.Store(&w)
}

// recall gives the remembered page, nil if there is none any more.
func (t *table) recall() *page {
	if w := t.recent.Load(); w != nil {
		return w.Value()
	}
	return nil
}

func (t *table) name() string { return t.of.name(t.suffix) }

// open opens the file for reading.
func (t *table) open() (vfs.File, error) {
	f, err := t.of.fs.OpenFile(t.name(), vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) && t.of.isGone() {
		return nil, ErrGone
	}
	return f, err
}

// load learns the number of entries in the file. A length that is no multiple of the
// width loses its rest.
func (t *table) load() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.loadLocked()
}

func (t *table) loadLocked() error {
	if t.mu.loaded {
		return nil
	}
	info, err := t.of.fs.Stat(t.name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.mu.n, t.mu.exists = 0, false
	case err != nil:
		return err
	default:
		t.mu.n, t.mu.exists = int(info.Size)/t.width, true
	}
	t.mu.loaded = true
	return nil
}

// begin makes the table empty without looking for a file.
func (t *table) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.loaded, t.mu.exists, t.mu.n, t.mu.tail = true, false, 0, nil
	t.recent.Store(nil)
}

func (t *table) len() (int, error) {
	t.mu.RLock()
	if t.mu.loaded {
		defer t.mu.RUnlock()
		return t.mu.n + len(t.mu.tail)/t.width, nil
	}
	t.mu.RUnlock()
	if err := t.load(); err != nil {
		return 0, err
	}
	return t.len()
}

// append adds an entry; it is written when the tail is long enough.
func (t *table) append(entry []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.loadLocked(); err != nil {
		return err
	}
	t.mu.tail = append(t.mu.tail, entry...)
	if len(t.mu.tail) >= tailEntries*t.width {
		return t.flushLocked(false)
	}
	return nil
}

// flush writes the tail, creating the file if need be; sync makes it durable.
func (t *table) flush(sync bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.loadLocked(); err != nil {
		return err
	}
	if len(t.mu.tail) == 0 && t.mu.exists && !sync {
		return nil
	}
	return t.flushLocked(sync)
}

func (t *table) flushLocked(sync bool) error {
	flags := vfs.ReadWrite | vfs.Create
	if !t.mu.exists {
		flags |= vfs.Trunc // what a crash may have left under this name
	}
	f, err := t.of.fs.OpenFile(t.name(), flags)
	if err != nil {
		return err
	}
	if len(t.mu.tail) > 0 {
		_, err = f.WriteAt(t.mu.tail, int64(t.mu.n*t.width))
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	t.mu.exists = true
	t.mu.n += len(t.mu.tail) / t.width
	t.mu.tail = t.mu.tail[:0]
	return nil
}

// dropTail gives the tail's memory back once it is written.
func (t *table) dropTail() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.tail) == 0 {
		t.mu.tail = nil
	}
}

// truncate keeps the first n entries. If the file cannot be cut it is removed: an index
// can be missing, but not wrong.
func (t *table) truncate(n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.loadLocked(); err != nil {
		return err
	}
	if n >= t.mu.n {
		t.mu.tail = t.mu.tail[:min(len(t.mu.tail), (n-t.mu.n)*t.width)]
		return nil
	}
	t.mu.tail, t.mu.n = nil, n
	t.recent.Store(nil)
	if !t.mu.exists {
		return nil
	}
	f, err := t.of.fs.OpenFile(t.name(), vfs.ReadWrite)
	if err != nil {
		return err
	}
	err = f.Truncate(int64(n * t.width))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// last gives the newest entry in buf, or false if there is none.
func (t *table) last(buf []byte) (bool, error) {
	n, err := t.len()
	if err != nil || n == 0 {
		return false, err
	}
	i, err := t.search(buf, func([]byte) bool { return true })
	return i >= 0, err
}

// search finds the last entry for which below holds, which it must for a prefix of the
// entries and for no others; buf receives it. -1 if it holds for none.
func (t *table) search(buf []byte, below func(entry []byte) bool) (int, error) {
	if err := t.load(); err != nil {
		return -1, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	w := t.width
	if tail := t.mu.tail; len(tail) > 0 && below(tail[:w]) {
		lo := halve(tail, w, below)
		copy(buf, tail[lo*w:lo*w+w])
		return t.mu.n + lo, nil
	}
	if t.mu.n == 0 {
		return -1, nil
	}
	if p := t.recall(); p != nil {
		if i, ok := p.find(w, buf, below); ok {
			return i, nil
		}
	}
	f, err := t.open()
	if err != nil {
		return -1, err
	}
	defer f.Close()
	i, p, err := searchFile(f, t.mu.n, w, buf, below)
	if p != nil {
		t.remember(p)
	}
	return i, err
}

// get reads entry i.
func (t *table) get(i int, buf []byte) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if i >= t.mu.n {
		copy(buf, t.mu.tail[(i-t.mu.n)*t.width:])
		return nil
	}
	f, err := t.open()
	if err != nil {
		return err
	}
	defer f.Close()
	return readFull(f, buf[:t.width], int64(i*t.width))
}

// searchFile halves by single entries down to a page, which it reads at once, and as far ahead as a page goes. The page
// is nil where none was read.
func searchFile(f vfs.File, n, w int, buf []byte, below func([]byte) bool) (int, *page, error) {
	one := make([]byte, w)
	if err := readFull(f, one, int64((n-1)*w)); err != nil {
		return -1, nil, err
	}
	if below(one) {
		copy(buf, one)
		return n - 1, nil, nil
	}
	lo, hi := -1, n-1 // below(lo), not below(hi)
	for hi-lo > pageEntries {
		mid := (lo + hi) / 2
		if err := readFull(f, one, int64(mid*w)); err != nil {
			return -1, nil, err
		}
		if below(one) {
			lo = mid
		} else {
			hi = mid
		}
	}
	from := max(lo, 0)
	p := &page{from: from, entries: make([]byte, min(pageEntries+1, n-from)*w)}
	if err := readFull(f, p.entries, int64(from*w)); err != nil {
		return -1, nil, err
	}
	if !below(p.entries[:w]) {
		return -1, p, nil
	}
	i := halve(p.entries, w, below)
	copy(buf, p.entries[i*w:i*w+w])
	return from + i, p, nil
}

func readFull(f vfs.File, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
