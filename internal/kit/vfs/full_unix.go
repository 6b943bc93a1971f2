//go:build unix

package vfs

import (
	"errors"
	"syscall"
)

// IsFull reports an error that means "no space left": a refusal that heals, not a broken
// disk.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
