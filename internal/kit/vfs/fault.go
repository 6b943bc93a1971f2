package vfs

import (
	"io"
	"sync"
	"syscall"
	"time"
)

// Fault is any FS with a script of failures. Rules are asked in the order they were
// added; the first that answers decides.
type Fault struct {
	FS
	mu struct {
		sync.Mutex
		rules []Rule
		count int
		space *Space
	}
}

// Verdict is what a rule does to an operation: nothing (zero), wait, and then fail. A
// failing write puts Short bytes on the disk first.
type Verdict struct {
	Err   error
	Short int
	Delay time.Duration
}

// Rule looks at the n-th operation (from 1) since the last Script and decides.
type Rule func(n int, op Op) Verdict

// NewFault wraps fs with an empty script.
func NewFault(fs FS) *Fault { return &Fault{FS: fs} }

// Script replaces all rules and counts operations from the start again.
func (f *Fault) Script(rules ...Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.rules, f.mu.count = rules, 0
}

// Count is the number of operations since Script.
func (f *Fault) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.count
}

// SetSpace overrides what Space answers; nil asks the wrapped FS.
func (f *Fault) SetSpace(s *Space) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.space = s
}

// FailNth fails the n-th operation with err.
func FailNth(n int, err error) Rule {
	return func(i int, _ Op) Verdict {
		if i == n {
			return Verdict{Err: err}
		}
		return Verdict{}
	}
}

// FailFrom fails the n-th operation and all after it: a dead disk.
func FailFrom(n int, err error) Rule {
	return func(i int, _ Op) Verdict {
		if i >= n {
			return Verdict{Err: err}
		}
		return Verdict{}
	}
}

// FailWhen fails the operations that match with err.
func FailWhen(match func(Op) bool, err error) Rule {
	return func(_ int, op Op) Verdict {
		if match(op) {
			return Verdict{Err: err}
		}
		return Verdict{}
	}
}

// ShortWrite makes matching writes stop in the middle with ENOSPC.
func ShortWrite(match func(Op) bool) Rule {
	return func(_ int, op Op) Verdict {
		if op.Kind == OpWrite && match(op) {
			return Verdict{Err: syscall.ENOSPC, Short: op.Len / 2}
		}
		return Verdict{}
	}
}

// SlowSync delays every file sync.
func SlowSync(d time.Duration) Rule {
	return func(_ int, op Op) Verdict {
		if op.Kind == OpSync {
			return Verdict{Delay: d}
		}
		return Verdict{}
	}
}

// judge counts the operation and asks the script.
func (f *Fault) judge(op Op) Verdict {
	f.mu.Lock()
	f.mu.count++
	n, rules := f.mu.count, f.mu.rules
	f.mu.Unlock()
	for _, r := range rules {
		if v := r(n, op); v != (Verdict{}) {
			if v.Delay > 0 {
				time.Sleep(v.Delay)
			}
			if v.Err != nil {
				v.Err = pathErr(op.Kind.String(), op.Name, v.Err)
			}
			return v
		}
	}
	return Verdict{}
}

func (f *Fault) OpenFile(name string, flags int) (File, error) {
	kind := OpOpen
	if flags&Create != 0 {
		kind = OpCreate
	}
	if v := f.judge(Op{Kind: kind, Name: name}); v.Err != nil {
		return nil, v.Err
	}
	file, err := f.FS.OpenFile(name, flags)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, fs: f, name: name}, nil
}

func (f *Fault) MkdirAll(dir string) error {
	if v := f.judge(Op{Kind: OpMkdir, Name: dir}); v.Err != nil {
		return v.Err
	}
	return f.FS.MkdirAll(dir)
}

func (f *Fault) Rename(a, b string) error {
	if v := f.judge(Op{Kind: OpRename, Name: a, To: b}); v.Err != nil {
		return v.Err
	}
	return f.FS.Rename(a, b)
}

func (f *Fault) Remove(name string) error {
	if v := f.judge(Op{Kind: OpRemove, Name: name}); v.Err != nil {
		return v.Err
	}
	return f.FS.Remove(name)
}

func (f *Fault) RemoveAll(name string) error {
	if v := f.judge(Op{Kind: OpRemove, Name: name}); v.Err != nil {
		return v.Err
	}
	return f.FS.RemoveAll(name)
}

func (f *Fault) ReadDir(dir string) ([]Info, error) {
	if v := f.judge(Op{Kind: OpReadDir, Name: dir}); v.Err != nil {
		return nil, v.Err
	}
	return f.FS.ReadDir(dir)
}

func (f *Fault) Stat(name string) (Info, error) {
	if v := f.judge(Op{Kind: OpStat, Name: name}); v.Err != nil {
		return Info{}, v.Err
	}
	return f.FS.Stat(name)
}

func (f *Fault) SyncDir(dir string) error {
	if v := f.judge(Op{Kind: OpSyncDir, Name: dir}); v.Err != nil {
		return v.Err
	}
	return f.FS.SyncDir(dir)
}

func (f *Fault) SyncAll(name string) (bool, error) {
	v := f.judge(Op{Kind: OpSyncDir, Name: name})
	if v.Err != nil {
		return true, v.Err
	}
	return f.FS.SyncAll(name)
}

func (f *Fault) SetModTime(name string, t time.Time) error {
	if v := f.judge(Op{Kind: OpSetModTime, Name: name}); v.Err != nil {
		return v.Err
	}
	return f.FS.SetModTime(name, t)
}

func (f *Fault) Lock(name string) (io.Closer, error) {
	if v := f.judge(Op{Kind: OpLock, Name: name}); v.Err != nil {
		return nil, v.Err
	}
	return f.FS.Lock(name)
}

func (f *Fault) Space(name string) (Space, error) {
	f.mu.Lock()
	s := f.mu.space
	f.mu.Unlock()
	if s != nil {
		return *s, nil
	}
	return f.FS.Space(name)
}

type faultFile struct {
	File
	fs   *Fault
	name string
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if v := f.fs.judge(Op{Kind: OpRead, Name: f.name, Off: off, Len: len(p)}); v.Err != nil {
		return 0, v.Err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	v := f.fs.judge(Op{Kind: OpWrite, Name: f.name, Off: off, Len: len(p)})
	if v.Err == nil {
		return f.File.WriteAt(p, off)
	}
	n := 0
	if v.Short > 0 {
		n, _ = f.File.WriteAt(p[:min(v.Short, len(p))], off)
	}
	return n, v.Err
}

func (f *faultFile) Truncate(size int64) error {
	if v := f.fs.judge(Op{Kind: OpTruncate, Name: f.name, Off: size}); v.Err != nil {
		return v.Err
	}
	return f.File.Truncate(size)
}

// Sync that fails leaves the file's un-synced bytes un-synced, as a kernel that dropped
// them would.
func (f *faultFile) Sync() error {
	if v := f.fs.judge(Op{Kind: OpSync, Name: f.name}); v.Err != nil {
		return v.Err
	}
	return f.File.Sync()
}
