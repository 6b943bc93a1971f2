package epoch

import (
	"fmt"
	"path"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"

	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
)

// File is the name of the checkpoint in the partition's directory.
const File = "leader-epoch-checkpoint"

// Undefined is the absent epoch, and the absent offset.
const Undefined = -1

// Entry says that Epoch began at offset Start.
type Entry struct {
	Epoch int32
	Start int64
}

// Cache holds the entries. The zero value is empty.
type Cache struct {
	entries atomic.Pointer[[]Entry] // immutable lists
	dirty   atomic.Bool             // the file does not hold the entries
}

// Entries gives the list; the caller does not change it.
func (c *Cache) Entries() []Entry {
	if p := c.entries.Load(); p != nil {
		return *p
	}
	return nil
}

func (c *Cache) set(e []Entry) {
	c.entries.Store(&e)
	c.dirty.Store(true)
}

// Assign notes that epoch begins at start. Entries that contradict it (later epochs, or
// later starts) go. It reports whether anything changed.
func (c *Cache) Assign(epoch int32, start int64) bool {
	if epoch < 0 || start < 0 {
		return false
	}
	old := c.Entries()
	if n := len(old); n > 0 && old[n-1].Epoch == epoch && old[n-1].Start <= start {
		return false
	}
	n := len(old)
	for n > 0 && (old[n-1].Epoch >= epoch || old[n-1].Start >= start) {
		n--
	}
	c.set(append(old[:n:n], Entry{epoch, start}))
	return true
}

// TruncateFromEnd drops the epochs that begin at or after end.
func (c *Cache) TruncateFromEnd(end int64) {
	old := c.Entries()
	n := len(old)
	for n > 0 && old[n-1].Start >= end {
		n--
	}
	if n < len(old) {
		c.set(old[:n:n])
	}
}

// TruncateFromStart forgets what lies before start; the epoch that covers start begins
// there from now on.
func (c *Cache) TruncateFromStart(start int64) {
	old := c.Entries()
	i := sort.Search(len(old), func(i int) bool { return old[i].Start > start })
	if i == 0 || old[i-1].Start == start && i == 1 {
		return
	}
	kept := append([]Entry(nil), old[i-1:]...)
	kept[0].Start = start
	c.set(kept)
}

// Clear forgets everything.
func (c *Cache) Clear() {
	if len(c.Entries()) > 0 {
		c.set(nil)
	}
}

// Latest is the newest epoch, Earliest the oldest entry; Undefined without one.
func (c *Cache) Latest() int32 {
	if e := c.Entries(); len(e) > 0 {
		return e[len(e)-1].Epoch
	}
	return Undefined
}

func (c *Cache) Earliest() (Entry, bool) {
	if e := c.Entries(); len(e) > 0 {
		return e[0], true
	}
	return Entry{}, false
}

// EndOffset answers OffsetForLeaderEpoch: the largest epoch not above the requested one,
// and where it ends; end is the log end offset.
func (c *Cache) EndOffset(requested int32, end int64) (int32, int64) {
	e := c.Entries()
	if requested == Undefined || len(e) == 0 {
		return Undefined, Undefined
	}
	if requested == e[len(e)-1].Epoch {
		return requested, end
	}
	i := sort.Search(len(e), func(i int) bool { return e[i].Epoch > requested })
	switch i {
	case len(e):
		return Undefined, Undefined
	case 0:
		return requested, e[0].Start
	}
	return e[i-1].Epoch, e[i].Start
}

// For is the epoch of the batch at offset.
func (c *Cache) For(offset int64) int32 {
	e := c.Entries()
	i := sort.Search(len(e), func(i int) bool { return e[i].Start > offset })
	if i == 0 {
		return Undefined
	}
	return e[i-1].Epoch
}

// Save makes the entries durable if they changed since.
func (c *Cache) Save(f vfs.FS, dir string) error {
	if !c.dirty.Swap(false) {
		return nil
	}
	err := checkpoint.Replace(f, path.Join(dir, File), c.format())
	if err != nil {
		c.dirty.Store(true)
	}
	return err
}

func (c *Cache) format() []byte {
	entries := c.Entries()
	lines := make([]string, len(entries))
	for i, e := range entries {
		lines[i] = strconv.Itoa(int(e.Epoch)) + " " + strconv.FormatInt(e.Start, 10)
	}
	return checkpoint.FormatLines(lines)
}

// Prepare writes the changed entries beside the file, for Commit to put them in its place
// once the caller has made them durable; false if nothing changed.
func (c *Cache) Prepare(f vfs.FS, dir string) (bool, error) {
	if !c.dirty.Load() {
		return false, nil
	}
	return true, checkpoint.Write(f, path.Join(dir, File+checkpoint.Suffix), c.format(), false)
}

// Commit puts prepared entries in the file's place.
func (c *Cache) Commit(f vfs.FS, dir string) error {
	if err := f.Rename(path.Join(dir, File+checkpoint.Suffix), path.Join(dir, File)); err != nil {
		return err
	}
	c.dirty.Store(false)
	return nil
}

// Dirty reports entries that Save would write.
func (c *Cache) Dirty() bool { return c.dirty.Load() }

// Load replaces the entries with the file's. ErrFormat means that they have to be rebuilt
// from the batches; the cache is empty then.
func (c *Cache) Load(f vfs.FS, dir string) error {
	c.entries.Store(nil)
	c.dirty.Store(false)
	lines, err := checkpoint.ReadLines(f, path.Join(dir, File))
	if err != nil {
		return err
	}
	entries, err := parse(lines)
	if err != nil {
		return fmt.Errorf("%s: %w", path.Join(dir, File), err)
	}
	c.entries.Store(&entries)
	return nil
}

// parse accepts what Apache Kafka accepts: entries that contradict earlier ones replace
// them.
func parse(lines []string) ([]Entry, error) {
	var c Cache
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 2 {
			return nil, fmt.Errorf("%w: entry %.40q is not EPOCH STARTOFFSET", checkpoint.ErrFormat, line)
		}
		ep, err1 := strconv.ParseInt(f[0], 10, 32)
		start, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 != nil || err2 != nil || ep < 0 || start < 0 {
			return nil, fmt.Errorf("%w: entry %.40q is not EPOCH STARTOFFSET", checkpoint.ErrFormat, line)
		}
		c.Assign(int32(ep), start)
	}
	return c.Entries(), nil
}
