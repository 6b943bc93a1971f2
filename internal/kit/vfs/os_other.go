//go:build !linux

package vfs

import "os"

func syncAll(string) (bool, error) { return false, nil }

func syncFile(f *os.File) error { return f.Sync() }
