package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"testing"
)

func write(t *testing.T, f FS, name, text string, sync bool) {
	t.Helper()
	h, err := f.OpenFile(name, ReadWrite|Create|Trunc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteAt([]byte(text), 0); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := h.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	h.Close()
}

func read(f FS, name string) string {
	b, err := ReadFile(f, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "(none)"
	}
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestCrashLosesWhatWasNotSynced(t *testing.T) {
	m := NewMem()
	if err := m.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	m.SyncDir("")
	write(t, m, "d/both", "synced", true)
	write(t, m, "d/renamed.tmp", "content", true)
	m.SyncDir("d")
	write(t, m, "d/nameless", "synced content", true)
	m.Rename("d/renamed.tmp", "d/renamed")
	h, _ := m.OpenFile("d/both", ReadWrite)
	h.WriteAt([]byte("SYN"), 0)
	h.WriteAt([]byte(" and more"), 6)
	c := m.Crash(nil)
	for name, want := range map[string]string{"d/both": "synced", "d/nameless": "(none)", "d/renamed": "(none)", "d/renamed.tmp": "content"} {
		if got := read(c, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := read(m, "d/both"); got != "SYNced and more" {
		t.Errorf("the live system changed: %q", got)
	}
	h.Sync()
	m.SyncDir("d")
	c = m.Crash(nil)
	if read(c, "d/both") != "SYNced and more" || read(c, "d/renamed") != "content" || read(c, "d/nameless") != "synced content" {
		t.Error("synced things were lost")
	}
}

// A random program against plain models: what the live system shows, and that everything
// synced survives any crash.
func TestMemAgainstModel(t *testing.T) {
	for seed := range uint64(15) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m := NewMem()
		h, _ := m.OpenFile("f", ReadWrite|Create)
		m.SyncDir("")
		var model, synced []byte
		dirty := false // synced bytes were overwritten or cut
		for range 200 {
			switch rnd.IntN(6) {
			case 0, 1, 2:
				off, n := rnd.IntN(len(model)+1), rnd.IntN(3*pageSize)
				if rnd.IntN(40) == 0 {
					n = 2 * chunkSize
				}
				p := make([]byte, n)
				for i := range p {
					p[i] = byte(rnd.IntN(255) + 1)
				}
				h.WriteAt(p, int64(off))
				if off+n > len(model) {
					model = append(model, make([]byte, off+n-len(model))...)
				}
				copy(model[off:], p)
				dirty = dirty || off < len(synced)
			case 3:
				n := rnd.IntN(len(model) + 100)
				h.Truncate(int64(n))
				if n <= len(model) {
					model = model[:n:n]
				} else {
					model = append(model, make([]byte, n-len(model))...)
				}
				dirty = dirty || n < len(synced)
			case 4:
				h.Sync()
				synced, dirty = append([]byte(nil), model...), false
			case 5:
				lost, err := ReadFile(m.Crash(nil), "f")
				if err != nil || !bytes.Equal(lost, synced) {
					t.Fatalf("seed %d: crash without luck: %d bytes, synced %d, %v", seed, len(lost), len(synced), err)
				}
				some, _ := ReadFile(m.Crash(rnd), "f")
				if !dirty && (len(some) < len(synced) || !bytes.Equal(some[:len(synced)], synced)) {
					t.Fatalf("seed %d: a crash lost synced bytes", seed)
				}
			}
			if got, _ := ReadFile(m, "f"); !bytes.Equal(got, model) {
				t.Fatalf("seed %d: content differs from the model", seed)
			}
			if m.Used() != int64(len(model)) {
				t.Fatalf("seed %d: used %d, want %d", seed, m.Used(), len(model))
			}
		}
	}
}

func TestRenameIsAtomicInACrash(t *testing.T) {
	m := NewMem()
	write(t, m, "x", "old", true)
	m.SyncDir("")
	write(t, m, "x.tmp", "new", true)
	m.Rename("x.tmp", "x")
	rnd := rand.New(rand.NewPCG(1, 1))
	seen := map[string]bool{}
	for range 100 {
		seen[read(m.Crash(rnd), "x")] = true
	}
	if !seen["old"] || !seen["new"] || len(seen) != 2 {
		t.Errorf("after crashes x was %v, want old and new", seen)
	}
}

func TestCapacity(t *testing.T) {
	m := NewMem()
	m.SetCapacity(10)
	h, _ := m.OpenFile("f", ReadWrite|Create)
	if _, err := h.WriteAt([]byte("12345678"), 0); err != nil {
		t.Fatal(err)
	}
	n, err := h.WriteAt([]byte("abcdef"), 8)
	if n != 2 || !IsFull(err) {
		t.Fatalf("wrote %d, %v; want 2 bytes and ENOSPC", n, err)
	}
	if s, _ := m.Space("f"); s.Free != 0 {
		t.Errorf("free %d", s.Free)
	}
	h.Truncate(4)
	if _, err := h.WriteAt([]byte("abcdef"), 4); err != nil {
		t.Errorf("after truncation: %v", err)
	}
}

func TestLockExcludes(t *testing.T) {
	m := NewMem()
	l, err := m.Lock(".lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Lock(".lock"); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: %v", err)
	}
	if _, err := m.Crash(nil).Lock(".lock"); err != nil {
		t.Fatalf("a crash keeps a lock: %v", err)
	}
	l.Close()
	if _, err := m.Lock(".lock"); err != nil {
		t.Fatal(err)
	}
}

func TestFaultScript(t *testing.T) {
	f := NewFault(NewMem())
	f.Script(FailNth(2, syscall.EIO))
	h, err := f.OpenFile("f", ReadWrite|Create)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EIO) {
		t.Fatalf("second operation: %v", err)
	}
	if _, err := h.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	f.Script(ShortWrite(func(op Op) bool { return op.Name == "f" }))
	n, err := h.WriteAt([]byte("abcdef"), 0)
	if n != 3 || !IsFull(err) {
		t.Fatalf("short write: %d, %v", n, err)
	}
	if got := read(f.FS, "f"); got != "abc" {
		t.Fatalf("after a short write: %q", got)
	}
	f.Script(FailWhen(func(op Op) bool { return op.Kind == OpSync }, syscall.EIO))
	if err := h.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	f.SetSpace(&Space{Total: 100, Free: 1})
	if s, _ := f.Space("f"); s.Free != 1 {
		t.Error("space is not overridden")
	}
}

func TestHookSeesOperations(t *testing.T) {
	m := NewMem()
	var seen []string
	m.OnOp(func(op Op) {
		seen = append(seen, op.Kind.String())
		m.Crash(nil) // must not deadlock
	})
	write(t, m, "a", "1", true)
	m.Rename("a", "b")
	if got, want := fmt.Sprint(seen), "[create write sync close rename]"; got != want {
		t.Errorf("operations %s, want %s", got, want)
	}
}
