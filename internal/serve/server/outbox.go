package server

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"runnel/internal/kit/vfs"
	"runnel/internal/serve/api"
	"runnel/internal/wire"
)

// maxPending bounds the answers that wait for their turn on one connection; its reader
// waits when they are that many.
const maxPending = 64

// sendfileFrom is the size from which a file range is sent by the kernel; below it one
// copy and one write cost less. flushAt bounds what is gathered before a write.
const (
	sendfileFrom = 32 << 10
	flushAt      = 64 << 10
	copyChunk    = 128 << 10
)

var errHandlerFailed = errors.New("an answer could not be produced")

// pending is a reply and what its frame needs.
type pending struct {
	corr     int32
	key      int16
	flexible bool
	received time.Time
	reply    api.Reply
}

// outbox writes one connection's answers in request order. The reader goroutine writes
// by itself while nothing is pending; a goroutine of the outbox does while something is.
type outbox struct {
	c  *conn
	mu struct {
		sync.Mutex
		queue    []pending
		draining bool // a drain goroutine owns buf and the socket
		err      error
	}
	change   *sync.Cond
	buf      *[]byte // gathered, not yet written; owned like the socket
	deadline time.Time
}

var outBufs = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func (o *outbox) init(c *conn) {
	o.c = c
	o.change = sync.NewCond(&o.mu)
}

// send takes the next reply in request order.
func (o *outbox) send(p pending) error {
	o.mu.Lock()
	for o.mu.draining && len(o.mu.queue) >= maxPending && o.mu.err == nil {
		o.change.Wait()
	}
	if o.mu.err != nil {
		err := o.mu.err
		o.mu.Unlock()
		p.reply.Release()
		return err
	}
	if !o.mu.draining && p.reply.Later == nil {
		o.mu.Unlock()
		return o.write(p)
	}
	if !o.mu.draining {
		o.mu.draining = true
		o.mu.queue = append(o.mu.queue, p)
		o.mu.Unlock()
		go o.drain()
		return nil
	}
	o.mu.queue = append(o.mu.queue, p)
	o.mu.Unlock()
	return nil
}

// drain writes pending replies until none is left.
func (o *outbox) drain() {
	for {
		o.mu.Lock()
		if len(o.mu.queue) == 0 || o.mu.err != nil {
			for i := range o.mu.queue {
				o.mu.queue[i].reply.Release()
			}
			o.mu.queue = nil
			o.mu.draining = false
			o.mu.Unlock()
			o.change.Broadcast()
			return
		}
		p := o.mu.queue[0]
		o.mu.queue = o.mu.queue[1:]
		o.mu.Unlock()
		o.change.Broadcast()
		if err := o.finishLater(p); err != nil {
			o.mu.Lock()
			o.mu.err = err
			o.mu.Unlock()
			o.c.nc.Close() // wakes the reader
		}
	}
}

func (o *outbox) finishLater(p pending) error {
	if later := p.reply.Later; later != nil {
		// What is gathered must not wait for this answer.
		if err := o.flushOwned(); err != nil {
			return err
		}
		body := later(o.c.ctx)
		if body == nil {
			return errHandlerFailed
		}
		p.reply = api.Reply{Body: body}
	}
	if err := o.write(p); err != nil {
		return err
	}
	return o.flushOwned()
}

// wait returns once no drain goroutine runs.
func (o *outbox) wait() {
	o.mu.Lock()
	for o.mu.draining {
		o.change.Wait()
	}
	o.mu.Unlock()
	o.dropBuf()
}

// flush writes what is gathered, if the caller's goroutine owns the socket.
func (o *outbox) flush() error {
	o.mu.Lock()
	if o.mu.draining || o.mu.err != nil {
		err := o.mu.err
		o.mu.Unlock()
		return err
	}
	o.mu.Unlock()
	return o.flushOwned()
}

func (o *outbox) flushOwned() error {
	if o.buf == nil || len(*o.buf) == 0 {
		return nil
	}
	err := o.put(*o.buf)
	o.dropBuf()
	return err
}

func (o *outbox) dropBuf() {
	if o.buf == nil {
		return
	}
	if cap(*o.buf) <= 2*flushAt {
		*o.buf = (*o.buf)[:0]
		outBufs.Put(o.buf)
	}
	o.buf = nil
}

// put writes bytes to the socket.
func (o *outbox) put(b []byte) error {
	if err := o.setDeadline(int64(len(b))); err != nil {
		return err
	}
	n, err := o.c.nc.Write(b)
	o.c.srv.stats.BytesOut.Add(int64(n))
	return err
}

// setDeadline bounds how long a client may take to accept an answer. Moving a deadline
// costs, so one that is far enough is left.
func (o *outbox) setDeadline(n int64) error {
	limit := o.c.srv.limits.Load().Write
	if limit <= 0 {
		return nil
	}
	now := time.Now()
	want := now.Add(limit + time.Duration(n/slowest)*time.Second)
	if want.Sub(o.deadline) < limit/4 && o.deadline.Sub(now) > limit/2 {
		return nil
	}
	o.deadline = want
	return o.c.nc.SetWriteDeadline(want)
}

// write encodes a reply behind what is gathered.
func (o *outbox) write(p pending) error {
	defer func() { o.c.srv.stats.observe(p.key, time.Since(p.received)) }()
	if o.buf == nil {
		o.buf = outBufs.Get().(*[]byte)
	}
	if p.reply.Fetch != nil {
		return o.writeFetch(p)
	}
	buf := *o.buf
	start := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	buf = wire.AppendResponseHeader(buf, p.corr, p.key, p.flexible)
	buf = p.reply.Body.AppendTo(buf)
	binary.BigEndian.PutUint32(buf[start:], uint32(len(buf)-start-4))
	*o.buf = buf
	if len(buf) >= flushAt {
		return o.flushOwned()
	}
	return nil
}

// writeFetch sends headers from memory and records from their files.
func (o *outbox) writeFetch(p pending) error {
	defer p.reply.Fetch.Release()
	buf := *o.buf
	start := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	buf = wire.AppendResponseHeader(buf, p.corr, p.key, p.flexible)
	head := len(buf)
	buf, parts, regions := p.reply.Fetch.Parts(buf)
	size := int64(len(buf)-start-4) + regions
	binary.BigEndian.PutUint32(buf[start:], uint32(size))
	if regions == 0 {
		*o.buf = buf
		if len(buf) >= flushAt {
			return o.flushOwned()
		}
		return nil
	}
	// The parts alias buf, which stays ours until they are out; what goes out is gathered
	// in a second buffer.
	encoded := outbox{buf: o.buf}
	*encoded.buf = buf
	defer encoded.dropBuf()
	o.buf = outBufs.Get().(*[]byte)
	*o.buf = append(*o.buf, buf[:head]...)
	parts[0].Bytes = parts[0].Bytes[head:]
	for i := range parts {
		*o.buf = append(*o.buf, parts[i].Bytes...)
		if parts[i].Region.Len > 0 {
			if err := o.writeRegion(parts[i].Region); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *outbox) writeRegion(r vfs.Region) error {
	if r.Len < sendfileFrom {
		return o.copyRegion(r)
	}
	if err := o.flushGathered(); err != nil {
		return err
	}
	if err := o.setDeadline(r.Len); err != nil {
		return err
	}
	sent, err := sendfile(o.c.nc, r)
	if sent {
		if err == nil {
			o.c.srv.stats.BytesOut.Add(r.Len)
		}
		return err
	}
	return o.copyRegion(r)
}

// flushGathered writes the buffer but keeps it for what follows.
func (o *outbox) flushGathered() error {
	if len(*o.buf) == 0 {
		return nil
	}
	err := o.put(*o.buf)
	*o.buf = (*o.buf)[:0]
	return err
}

func (o *outbox) copyRegion(r vfs.Region) error {
	for off, left := r.Off, r.Len; left > 0; {
		n := int(min(left, copyChunk))
		at := len(*o.buf)
		*o.buf = append(*o.buf, make([]byte, n)...)
		m, err := r.File.ReadAt((*o.buf)[at:], off)
		if m < n {
			if err == nil {
				err = errHandlerFailed
			}
			return err
		}
		off += int64(n)
		left -= int64(n)
		if len(*o.buf) >= flushAt {
			if err := o.flushGathered(); err != nil {
				return err
			}
		}
	}
	return nil
}
