package vfs

import (
	"io"
	"io/fs"
	"path"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Mem is a file system in memory that knows what a power loss would leave behind: file
// content is durable after Sync, names after SyncDir. It serves tests (see Crash) and
// brokers that live inside another program's test; tracking costs memory only for synced
// bytes that were overwritten and not synced again.
type Mem struct {
	hook     atomic.Pointer[func(Op)]
	used     atomic.Int64
	capacity atomic.Int64 // 0 is without limit
	mu       struct {
		sync.RWMutex // held for reading by content operations, for writing by Crash and by name operations
		root         *memNode
		locked       map[string]bool
	}
}

// memNode is a file or, with entries, a directory.
type memNode struct {
	entries map[string]*memNode
	pending []dirOp // changes of entries since the last SyncDir
	modTime time.Time
	content memContent
}

// dirOp is one un-synced change of a directory: every effect lasts, or none.
type dirOp struct{ effects []dirEffect }

type dirEffect struct {
	name     string
	old, new *memNode
}

// NewMem gives an empty file system whose root exists.
func NewMem() *Mem {
	m := &Mem{}
	m.mu.root = newDir()
	m.mu.locked = map[string]bool{}
	return m
}

func newDir() *memNode { return &memNode{entries: map[string]*memNode{}, modTime: time.Now()} }

// OnOp calls hook before every operation, without a lock held: a hook may call Crash, and
// so enumerate every crash point of a run. nil removes it.
func (m *Mem) OnOp(hook func(Op)) {
	if hook == nil {
		m.hook.Store(nil)
		return
	}
	m.hook.Store(&hook)
}

// SetCapacity bounds the bytes of all files; writes beyond it fail with ENOSPC after
// filling what is left, as disks do. 0 lifts the bound.
func (m *Mem) SetCapacity(bytes int64) { m.capacity.Store(bytes) }

// Used is the bytes of all files that have a name.
func (m *Mem) Used() int64 { return m.used.Load() }

func (m *Mem) note(op Op) {
	if h := m.hook.Load(); h != nil {
		(*h)(op)
	}
}

func split(name string) []string {
	name = path.Clean("/" + name)
	if name == "/" {
		return nil
	}
	return strings.Split(name[1:], "/")
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// lookupLocked finds a node; the error is a bare syscall or fs error.
func (m *Mem) lookupLocked(name string) (*memNode, error) {
	n := m.mu.root
	for _, part := range split(name) {
		if n.entries == nil {
			return nil, syscall.ENOTDIR
		}
		next := n.entries[part]
		if next == nil {
			return nil, fs.ErrNotExist
		}
		n = next
	}
	return n, nil
}

func (m *Mem) parentLocked(name string) (*memNode, string, error) {
	dir, base := path.Split(path.Clean("/" + name))
	p, err := m.lookupLocked(dir)
	if err != nil {
		return nil, "", err
	}
	if p.entries == nil {
		return nil, "", syscall.ENOTDIR
	}
	if base == "" {
		return nil, "", fs.ErrInvalid
	}
	return p, base, nil
}

// set changes an entry; nil removes it.
func (n *memNode) set(effects ...dirEffect) {
	for i := range effects {
		e := &effects[i]
		e.old = n.entries[e.name]
		if e.new == nil {
			delete(n.entries, e.name)
		} else {
			n.entries[e.name] = e.new
		}
	}
	n.pending = append(n.pending, dirOp{effects})
	n.modTime = time.Now()
}

func (m *Mem) OpenFile(name string, flags int) (File, error) {
	if flags&Create != 0 {
		m.note(Op{Kind: OpCreate, Name: name})
	} else {
		m.note(Op{Kind: OpOpen, Name: name})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, base, err := m.parentLocked(name)
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	n := p.entries[base]
	switch {
	case n == nil && flags&Create == 0:
		return nil, pathErr("open", name, fs.ErrNotExist)
	case n == nil:
		n = &memNode{modTime: time.Now()}
		p.set(dirEffect{name: base, new: n})
	case flags&Create != 0 && flags&Excl != 0:
		return nil, pathErr("open", name, fs.ErrExist)
	case n.entries != nil:
		return nil, pathErr("open", name, syscall.EISDIR)
	}
	if flags&Trunc != 0 {
		m.used.Add(-n.content.truncate(0))
	}
	return &memFile{fs: m, node: n, name: name, writable: flags&ReadWrite != 0}, nil
}

func (m *Mem) MkdirAll(dir string) error {
	m.note(Op{Kind: OpMkdir, Name: dir})
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.mu.root
	for _, part := range split(dir) {
		if n.entries == nil {
			return pathErr("mkdir", dir, syscall.ENOTDIR)
		}
		next := n.entries[part]
		if next == nil {
			next = newDir()
			n.set(dirEffect{name: part, new: next})
		}
		n = next
	}
	if n.entries == nil {
		return pathErr("mkdir", dir, syscall.ENOTDIR)
	}
	return nil
}

func (m *Mem) Rename(oldName, newName string) error {
	m.note(Op{Kind: OpRename, Name: oldName, To: newName})
	m.mu.Lock()
	defer m.mu.Unlock()
	from, a, err := m.parentLocked(oldName)
	if err != nil {
		return pathErr("rename", oldName, err)
	}
	to, b, err := m.parentLocked(newName)
	if err != nil {
		return pathErr("rename", newName, err)
	}
	n := from.entries[a]
	if n == nil {
		return pathErr("rename", oldName, fs.ErrNotExist)
	}
	if old := to.entries[b]; old != nil && old != n {
		if old.entries != nil && (n.entries == nil || len(old.entries) > 0) {
			return pathErr("rename", newName, syscall.ENOTEMPTY)
		}
		m.used.Add(-old.content.len())
	}
	if from == to {
		if a != b {
			from.set(dirEffect{name: a}, dirEffect{name: b, new: n})
		}
		return nil
	}
	to.set(dirEffect{name: b, new: n})
	from.set(dirEffect{name: a})
	return nil
}

func (m *Mem) Remove(name string) error {
	m.note(Op{Kind: OpRemove, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	p, base, err := m.parentLocked(name)
	if err != nil {
		return pathErr("remove", name, err)
	}
	n := p.entries[base]
	if n == nil {
		return pathErr("remove", name, fs.ErrNotExist)
	}
	if len(n.entries) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	m.used.Add(-n.content.len())
	p.set(dirEffect{name: base})
	return nil
}

func (m *Mem) RemoveAll(name string) error {
	m.note(Op{Kind: OpRemove, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	p, base, err := m.parentLocked(name)
	if err != nil {
		return nil
	}
	if n := p.entries[base]; n != nil {
		m.used.Add(-n.bytes())
		p.set(dirEffect{name: base})
	}
	return nil
}

func (n *memNode) bytes() int64 {
	sum := n.content.len()
	for _, e := range n.entries {
		sum += e.bytes()
	}
	return sum
}

func (n *memNode) info(name string) Info {
	n.content.mu.RLock()
	defer n.content.mu.RUnlock()
	return Info{Name: name, Size: n.content.mu.size, ModTime: n.modTime, IsDir: n.entries != nil}
}

func (m *Mem) ReadDir(dir string) ([]Info, error) {
	m.note(Op{Kind: OpReadDir, Name: dir})
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.lookupLocked(dir)
	if err != nil {
		return nil, pathErr("readdir", dir, err)
	}
	if n.entries == nil {
		return nil, pathErr("readdir", dir, syscall.ENOTDIR)
	}
	out := make([]Info, 0, len(n.entries))
	for name, e := range n.entries {
		out = append(out, e.info(name))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

func (m *Mem) Stat(name string) (Info, error) {
	m.note(Op{Kind: OpStat, Name: name})
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.lookupLocked(name)
	if err != nil {
		return Info{}, pathErr("stat", name, err)
	}
	return n.info(path.Base(name)), nil
}

func (m *Mem) SyncDir(dir string) error {
	m.note(Op{Kind: OpSyncDir, Name: dir})
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(dir)
	if err != nil {
		return pathErr("sync", dir, err)
	}
	n.pending = nil
	return nil
}

func (m *Mem) SyncAll(name string) (bool, error) {
	m.note(Op{Kind: OpSyncDir, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.root.syncTree()
	return true, nil
}

func (n *memNode) syncTree() {
	n.pending = nil
	if n.entries == nil {
		n.content.sync()
		return
	}
	for _, c := range n.entries {
		c.syncTree()
	}
}

func (m *Mem) SetModTime(name string, t time.Time) error {
	m.note(Op{Kind: OpSetModTime, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(name)
	if err != nil {
		return pathErr("chtimes", name, err)
	}
	n.modTime = t
	return nil
}

func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.OpenFile(name, ReadWrite|Create)
	if err != nil {
		return nil, err
	}
	f.Close()
	m.note(Op{Kind: OpLock, Name: name})
	key := path.Clean("/" + name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.locked[key] {
		return nil, ErrLocked
	}
	m.mu.locked[key] = true
	return &memLock{fs: m, key: key}, nil
}

type memLock struct {
	fs  *Mem
	key string
}

func (l *memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.mu.locked, l.key)
	return nil
}

// Space reports the capacity; without one, unknown.
func (m *Mem) Space(string) (Space, error) {
	c := m.capacity.Load()
	if c == 0 {
		return Space{Total: -1, Free: -1}, nil
	}
	return Space{Total: c, Free: max(0, c-m.used.Load())}, nil
}

type memFile struct {
	fs       *Mem
	node     *memNode
	name     string
	writable bool
	closed   atomic.Bool
}

func (f *memFile) ready(op string, write bool) error {
	if f.closed.Load() {
		return pathErr(op, f.name, fs.ErrClosed)
	}
	if write && !f.writable {
		return pathErr(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.note(Op{Kind: OpRead, Name: f.name, Off: off, Len: len(p)})
	if err := f.ready("read", false); err != nil {
		return 0, err
	}
	return f.node.content.readAt(p, off)
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.note(Op{Kind: OpWrite, Name: f.name, Off: off, Len: len(p)})
	if err := f.ready("write", true); err != nil {
		return 0, err
	}
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	c := &f.node.content
	c.mu.Lock()
	defer c.mu.Unlock()
	full := false
	if limit := f.fs.capacity.Load(); limit > 0 {
		room := max(0, limit-f.fs.used.Load())
		if keep := max(0, c.mu.size+room-off); int64(len(p)) > keep {
			p, full = p[:keep], true
		}
	}
	f.fs.used.Add(c.writeLocked(p, off))
	f.node.modTime = time.Now()
	if full {
		return len(p), pathErr("write", f.name, syscall.ENOSPC)
	}
	return len(p), nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.ready("stat", false); err != nil {
		return 0, err
	}
	return f.node.content.len(), nil
}

func (f *memFile) Truncate(size int64) error {
	f.fs.note(Op{Kind: OpTruncate, Name: f.name, Off: size})
	if err := f.ready("truncate", true); err != nil {
		return err
	}
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	f.fs.used.Add(-f.node.content.truncate(size))
	return nil
}

func (f *memFile) Sync() error {
	f.fs.note(Op{Kind: OpSync, Name: f.name})
	if err := f.ready("sync", false); err != nil {
		return err
	}
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	f.node.content.sync()
	return nil
}

func (f *memFile) Close() error {
	f.fs.note(Op{Kind: OpClose, Name: f.name})
	if f.closed.Swap(true) {
		return pathErr("close", f.name, fs.ErrClosed)
	}
	return nil
}
