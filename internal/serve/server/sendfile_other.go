//go:build !linux

package server

import (
	"net"

	"runnel/internal/kit/vfs"
)

// sendfile is Linux's; elsewhere regions are copied.
func sendfile(net.Conn, vfs.Region) (bool, error) { return false, nil }
