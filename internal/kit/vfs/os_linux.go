package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncAll is syncfs, which since Linux 5.8 reports what a writeback before it failed to
// write. Earlier ones stay silent, so it is used only where nothing rests on it that an
// unclean stop could not repair.
func syncAll(name string) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return true, err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return true, &os.PathError{Op: "syncfs", Path: name, Err: err}
	}
	return true, nil
}

// syncFile needs only content and length, not the times: fdatasync.
func syncFile(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			if err != nil {
				return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
			}
			return nil
		}
	}
}
