package vfs

import (
	"errors"
	"syscall"
)

// IsFull reports an error that means "no space left": a refusal that heals, not a broken
// disk. 112 is ERROR_DISK_FULL, 39 ERROR_HANDLE_DISK_FULL.
func IsFull(err error) bool {
	return errors.Is(err, syscall.Errno(112)) || errors.Is(err, syscall.Errno(39)) || errors.Is(err, syscall.ENOSPC)
}
