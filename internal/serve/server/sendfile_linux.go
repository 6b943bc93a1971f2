package server

import (
	"io"
	"net"

	"golang.org/x/sys/unix"

	"runnel/internal/kit/vfs"
)

// sendfile sends a region of an operating system's file to a TCP connection with an
// explicit offset: the file's shared position stays where it is. ok is false where
// either side is something else, and nothing was sent.
func sendfile(nc net.Conn, r vfs.Region) (ok bool, err error) {
	tc, isTCP := nc.(*net.TCPConn)
	src, isOS := r.File.(vfs.OSBacked)
	if !isTCP || !isOS {
		return false, nil
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return false, nil
	}
	in := int(src.OSFile().Fd())
	off, left := r.Off, r.Len
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		for left > 0 {
			n, e := unix.Sendfile(int(fd), in, &off, int(min(left, 1<<30)))
			switch {
			case e == unix.EINTR:
				continue
			case e == unix.EAGAIN:
				return false
			case e != nil:
				sendErr = e
				return true
			case n == 0:
				sendErr = io.ErrUnexpectedEOF // the file is shorter than the region
				return true
			}
			left -= int64(n)
		}
		return true
	})
	if err == nil {
		err = sendErr
	}
	return true, err
}
