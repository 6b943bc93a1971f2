package server

import (
	"encoding/binary"
	"io"
	"math/bits"
	"net"
	"sync"
	"syscall"
	"time"
)

// chunkSize is the read buffer of a connection that has something to read. A connection
// that waits holds none.
const chunkSize = 64 << 10

// frameGrace is what a started frame may take whatever its size, and slowest the rate in
// bytes per second below which its sender is given up (slow loris).
const (
	frameGrace = 30 * time.Second
	slowest    = 16 << 10
)

var chunks = sync.Pool{New: func() any { b := make([]byte, chunkSize); return &b }}

// frameReader cuts a connection into frames. A returned frame is valid until the next
// call.
type frameReader struct {
	nc     net.Conn
	raw    syscall.RawConn // nil where the connection has no file descriptor
	rawFn  func(fd uintptr) bool
	rawN   int
	rawErr error
	idle   time.Duration

	chunk    *[]byte // nil while nothing is buffered
	r, w     int
	deadline time.Time // as last set on nc
	big      []byte    // the frame that did not fit a chunk
	bytesIn  int64
}

func newFrameReader(nc net.Conn, idle time.Duration) *frameReader {
	fr := &frameReader{nc: nc, idle: idle}
	if sc, ok := nc.(syscall.Conn); ok && canReadRaw {
		if raw, err := sc.SyscallConn(); err == nil {
			fr.raw = raw
			fr.rawFn = fr.readRaw
		}
	}
	return fr
}

// ready reports whether a whole frame is buffered, so that the next call returns at once.
func (fr *frameReader) ready() bool {
	n := fr.w - fr.r
	if n < 4 {
		return false
	}
	size := int32(binary.BigEndian.Uint32((*fr.chunk)[fr.r:]))
	return size >= 0 && n-4 >= int(size)
}

// size waits for the next frame's size.
func (fr *frameReader) size() (int32, error) {
	fr.dropBig()
	for fr.w-fr.r < 4 {
		started := fr.w > fr.r
		if !started {
			fr.dropChunk()
		}
		if err := fr.setDeadline(started, 4); err != nil {
			return 0, err
		}
		if err := fr.fill(4); err != nil {
			if err == io.EOF && started {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
	return int32(binary.BigEndian.Uint32((*fr.chunk)[fr.r:])), nil
}

// peekKey waits for the API key of the frame whose size was just returned, a frame of at
// least two bytes.
func (fr *frameReader) peekKey() (int16, error) {
	for fr.w-fr.r < 6 {
		if err := fr.setDeadline(true, 2); err != nil {
			return 0, err
		}
		if err := fr.fill(6); err != nil {
			return 0, cutShort(err)
		}
	}
	return int16(binary.BigEndian.Uint16((*fr.chunk)[fr.r+4:])), nil
}

// body reads the frame whose size was just returned. It aliases the reader's memory.
func (fr *frameReader) body(size int) ([]byte, error) {
	fr.r += 4
	if fr.w-fr.r >= size {
		b := (*fr.chunk)[fr.r : fr.r+size : fr.r+size]
		fr.r += size
		return b, nil
	}
	if err := fr.setDeadline(true, size); err != nil {
		return nil, err
	}
	if size <= chunkSize {
		for fr.w-fr.r < size {
			if err := fr.fill(size); err != nil {
				return nil, cutShort(err)
			}
		}
		b := (*fr.chunk)[fr.r : fr.r+size : fr.r+size]
		fr.r += size
		return b, nil
	}
	fr.big = getBig(size)
	n := copy(fr.big, (*fr.chunk)[fr.r:fr.w])
	fr.r += n
	m, err := io.ReadFull(fr.nc, fr.big[n:])
	fr.bytesIn += int64(m)
	if err != nil {
		return nil, cutShort(err)
	}
	return fr.big, nil
}

func cutShort(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fill reads at least one byte, making room for want bytes from fr.r on.
func (fr *frameReader) fill(want int) error {
	if fr.chunk != nil && fr.r > 0 && fr.r+want > chunkSize {
		copy(*fr.chunk, (*fr.chunk)[fr.r:fr.w])
		fr.w -= fr.r
		fr.r = 0
	}
	var n int
	var err error
	if fr.raw != nil {
		fr.rawN, fr.rawErr = 0, nil
		err = fr.raw.Read(fr.rawFn)
		n = fr.rawN
		if err == nil {
			err = fr.rawErr
		}
	} else {
		fr.takeChunk()
		n, err = fr.nc.Read((*fr.chunk)[fr.w:])
	}
	fr.w += n
	fr.bytesIn += int64(n)
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.EOF
	}
	return err
}

func (fr *frameReader) takeChunk() {
	if fr.chunk == nil {
		fr.chunk = chunks.Get().(*[]byte)
		fr.r, fr.w = 0, 0
	}
}

func (fr *frameReader) dropChunk() {
	if fr.chunk != nil && fr.r == fr.w {
		chunks.Put(fr.chunk)
		fr.chunk, fr.r, fr.w = nil, 0, 0
	}
}

func (fr *frameReader) dropBig() {
	if fr.big != nil {
		putBig(fr.big)
		fr.big = nil
	}
}

// keepBig takes the large frame out of the reader: its memory is the caller's now.
func (fr *frameReader) keepBig() { fr.big = nil }

func (fr *frameReader) close() {
	fr.dropBig()
	fr.r = fr.w
	fr.dropChunk()
}

// setDeadline bounds the wait: for a frame's start by the idle time, once it has started
// by a slow but steady sender's pace. Moving a deadline costs, so an idle deadline that
// is still far is left.
func (fr *frameReader) setDeadline(started bool, size int) error {
	if started {
		d := time.Now().Add(frameGrace + time.Duration(size/slowest)*time.Second)
		fr.deadline = time.Time{}
		return fr.nc.SetReadDeadline(d)
	}
	if fr.idle <= 0 {
		if fr.deadline.IsZero() {
			return nil
		}
		fr.deadline = time.Time{}
		return fr.nc.SetReadDeadline(time.Time{})
	}
	now := time.Now()
	if want := now.Add(fr.idle); want.Sub(fr.deadline) > fr.idle/8 || fr.deadline.IsZero() {
		fr.deadline = want
		return fr.nc.SetReadDeadline(want)
	}
	return nil
}

// Large frames are read into buffers of a power of two, kept for the next one.
var bigs [32]sync.Pool

func getBig(size int) []byte {
	class := bits.Len(uint(size - 1))
	if class < len(bigs) {
		if b, ok := bigs[class].Get().(*[]byte); ok {
			return (*b)[:size]
		}
		return make([]byte, size, 1<<class)
	}
	return make([]byte, size)
}

func putBig(b []byte) {
	class := bits.Len(uint(cap(b) - 1))
	if class < len(bigs) && cap(b) == 1<<class && cap(b) <= 8<<20 {
		bigs[class].Put(&b)
	}
}
