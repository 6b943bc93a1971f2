//go:build unix

package server

import "golang.org/x/sys/unix"

const canReadRaw = true

// readRaw tries one read; false makes the runtime wait until the socket is readable. A
// buffer is held only once there is something to read, which keeps idle connections
// small.
func (fr *frameReader) readRaw(fd uintptr) bool {
	had := fr.chunk != nil
	fr.takeChunk()
	for {
		n, err := unix.Read(int(fd), (*fr.chunk)[fr.w:])
		switch err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			if !had {
				fr.dropChunk()
			}
			return false
		}
		if n > 0 {
			fr.rawN = n
		}
		fr.rawErr = err
		return true
	}
}
