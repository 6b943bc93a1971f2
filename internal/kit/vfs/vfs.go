package vfs

import (
	"errors"
	"io"
	"os"
	"time"
)

// Flags of OpenFile; the values are os.O_*.
const (
	ReadOnly  = os.O_RDONLY
	ReadWrite = os.O_RDWR
	Create    = os.O_CREATE
	Excl      = os.O_EXCL
	Trunc     = os.O_TRUNC
)

// ErrLocked is returned by Lock when another process (or another caller) holds the lock.
var ErrLocked = errors.New("locked by another process")

// Info describes a file or directory.
type Info struct {
	Name    string // base name
	Size    int64
	ModTime time.Time
	IsDir   bool
}

// Space is the capacity of the file system that holds a path, in bytes; Free is what an
// unprivileged writer may still use. -1 where unknown.
type Space struct {
	Total, Free int64
}

// FS is a file system. Errors wrap io/fs errors (errors.Is(err, fs.ErrNotExist)) and
// syscall errors (syscall.ENOSPC, syscall.EIO) so that callers can tell a full disk from
// a broken one with IsFull.
type FS interface {
	// OpenFile opens with Flags; new files get mode 0644.
	OpenFile(name string, flags int) (File, error)
	// MkdirAll makes the directory and its parents.
	MkdirAll(dir string) error
	// Rename replaces newName if it exists. Durable after SyncDir of both parents.
	Rename(oldName, newName string) error
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// RemoveAll deletes a tree; no error if it does not exist.
	RemoveAll(name string) error
	// ReadDir lists a directory sorted by name. ModTime and Size are filled for files.
	ReadDir(dir string) ([]Info, error)
	// Stat describes one path.
	Stat(name string) (Info, error)
	// SyncDir makes creates, renames and removes inside dir durable.
	SyncDir(dir string) error
	// SyncAll makes everything on the file system that holds name durable, content and
	// names; false where the system cannot do that in one call.
	SyncAll(name string) (bool, error)
	// SetModTime sets a file's modification time.
	SetModTime(name string, t time.Time) error
	// Lock takes an exclusive lock on the file, creating it, until Close. ErrLocked if held.
	Lock(name string) (io.Closer, error)
	// Space reports the capacity behind a path.
	Space(name string) (Space, error)
}

// File is an open file. Reads and writes carry explicit offsets; there is no position.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the file's current length in bytes.
	Size() (int64, error)
	// Truncate cuts or extends (with zeros).
	Truncate(size int64) error
	// Sync makes content and length durable (fdatasync).
	Sync() error
}

// OSBacked is what a File of the operating system offers in addition: its handle, for
// sendfile with an explicit offset.
type OSBacked interface {
	OSFile() *os.File
}

// Region is a pinned range of a file: the bytes [Off, Off+Len) stay readable until
// Release is called exactly once. The zero Region is empty and needs no Release.
type Region struct {
	File    File
	Off     int64
	Len     int64
	Release func()
}

// ReadAll copies the region's bytes.
func (r Region) ReadAll() ([]byte, error) {
	if r.Len == 0 {
		return nil, nil
	}
	b := make([]byte, r.Len)
	n, err := r.File.ReadAt(b, r.Off)
	if n == len(b) {
		err = nil
	}
	return b[:n], err
}

// Done releases the region if it holds anything.
func (r Region) Done() {
	if r.Release != nil {
		r.Release()
	}
}

// ReadFile reads a whole file.
func ReadFile(fs FS, name string) ([]byte, error) {
	f, err := fs.OpenFile(name, ReadOnly)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err == io.EOF || n == len(b) {
		err = nil
	}
	return b[:n], err
}
