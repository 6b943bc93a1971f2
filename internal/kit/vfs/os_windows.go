package vfs

import (
	"io"
	"os"

	"golang.org/x/sys/windows"
)

// Directory entries need no sync of their own on NTFS.
func syncDir(string) error { return nil }

func lockFile(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if !heldLocks.take(name) {
		f.Close()
		return nil, ErrLocked
	}
	ol := new(windows.Overlapped)
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	if err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, ol); err != nil {
		heldLocks.drop(name)
		f.Close()
		if err == windows.ERROR_LOCK_VIOLATION {
			return nil, ErrLocked
		}
		return nil, &os.PathError{Op: "lock", Path: name, Err: err}
	}
	return &heldLock{f: f, name: name}, nil
}

func spaceOf(name string) (Space, error) {
	p, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return Space{-1, -1}, err
	}
	var free, total, totalFree uint64
	if err := windows.GetDiskFreeSpaceEx(p, &free, &total, &totalFree); err != nil {
		return Space{-1, -1}, &os.PathError{Op: "free space", Path: name, Err: err}
	}
	return Space{Total: int64(total), Free: int64(free)}, nil
}
