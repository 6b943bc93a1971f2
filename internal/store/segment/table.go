package segment

import (
	"errors"
	"io"
	"io/fs"
	"sync"

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
		lo, hi := 0, len(tail)/w // below(lo), not below(hi)
		for hi-lo > 1 {
			if mid := (lo + hi) / 2; below(tail[mid*w : mid*w+w]) {
				lo = mid
			} else {
				hi = mid
			}
		}
		copy(buf, tail[lo*w:lo*w+w])
		return t.mu.n + lo, nil
	}
	if t.mu.n == 0 {
		return -1, nil
	}
	f, err := t.open()
	if err != nil {
		return -1, err
	}
	defer f.Close()
	return searchFile(f, t.mu.n, w, buf, below)
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

// searchFile halves by single entries down to a page, which it reads at once.
func searchFile(f vfs.File, n, w int, buf []byte, below func([]byte) bool) (int, error) {
	const pageEntries = 256
	page := make([]byte, pageEntries*w)
	one := page[:w]
	if err := readFull(f, one, int64((n-1)*w)); err != nil {
		return -1, err
	}
	if below(one) {
		copy(buf, one)
		return n - 1, nil
	}
	lo, hi := -1, n-1 // below(lo), not below(hi)
	for hi-lo > pageEntries {
		mid := (lo + hi) / 2
		if err := readFull(f, one, int64(mid*w)); err != nil {
			return -1, err
		}
		if below(one) {
			lo = mid
		} else {
			hi = mid
		}
	}
	from := max(lo, 0)
	page = page[:min((hi-from)*w, len(page))]
	if err := readFull(f, page, int64(from*w)); err != nil {
		return -1, err
	}
	found := -1
	for i := 0; i < len(page)/w && below(page[i*w:i*w+w]); i++ {
		found = from + i
		copy(buf, page[i*w:i*w+w])
	}
	return found, nil
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
