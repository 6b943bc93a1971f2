package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

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
