package vfs

import (
	"os"
	"path/filepath"
	"sync"
)

// heldLocks excludes two nodes of one process from one directory, which the operating
// system's record locks do not.
var heldLocks lockTable

type lockTable struct {
	mu struct {
		sync.Mutex
		held map[string]bool
	}
}

func (t *lockTable) take(name string) bool {
	key := lockKey(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.held[key] {
		return false
	}
	if t.mu.held == nil {
		t.mu.held = map[string]bool{}
	}
	t.mu.held[key] = true
	return true
}

func (t *lockTable) drop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.held, lockKey(name))
}

func lockKey(name string) string {
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name
}

type heldLock struct {
	f    *os.File
	name string
}

// Close gives the lock back. The file stays: removing it would let two holders lock two
// different files of one name.
func (l *heldLock) Close() error {
	err := l.f.Close()
	heldLocks.drop(l.name)
	return err
}
