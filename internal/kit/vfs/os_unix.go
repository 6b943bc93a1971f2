//go:build unix

package vfs

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func lockFile(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	// A POSIX record lock, not flock: it is what Java's FileChannel.lock takes, so that
	// Apache Kafka and we exclude each other. It does not exclude within one process;
	// heldLocks does.
	if !heldLocks.take(name) {
		f.Close()
		return nil, ErrLocked
	}
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lk); err != nil {
		heldLocks.drop(name)
		f.Close()
		if err == unix.EAGAIN || err == unix.EACCES {
			return nil, ErrLocked
		}
		return nil, &os.PathError{Op: "lock", Path: name, Err: err}
	}
	return &heldLock{f: f, name: name}, nil
}

func spaceOf(name string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return Space{-1, -1}, &os.PathError{Op: "statfs", Path: name, Err: err}
	}
	return Space{Total: int64(st.Blocks) * int64(st.Bsize), Free: int64(st.Bavail) * int64(st.Bsize)}, nil
}
