package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/serve/api"
	"runnel/internal/wire"
)

// conn is one client connection: a reader loop that handles one request after another.
type conn struct {
	srv    *Server
	nc     net.Conn
	in     *frameReader
	out    outbox
	peer   api.Peer
	ctx    context.Context
	cancel context.CancelFunc
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{srv: s, nc: nc}
	c.in = newFrameReader(nc, s.limits.Load().Idle)
	c.peer.Principal = api.Anonymous
	c.peer.Listener = s.opts.Name
	c.peer.Addr, c.peer.Host = splitAddr(nc.RemoteAddr())
	c.peer.Dialled, _ = splitAddr(nc.LocalAddr())
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.out.init(c)
	return c
}

func (c *conn) run() {
	defer c.srv.forget(c)
	err := c.serve()
	c.cancel()
	c.nc.Close()
	c.out.wait()
	c.in.close()
	c.srv.stats.BytesIn.Add(c.in.bytesIn)
	c.logEnd(err)
}

// logEnd says why a connection ended, unless that is the ordinary course of things.
func (c *conn) logEnd(err error) {
	var bad *requestError
	switch {
	case errors.As(err, &bad):
		c.srv.stats.Malformed.Add(1)
		c.srv.opts.Log.Warn("connection closed", "client", c.peer.Addr, "listener", c.peer.Listener,
			"client.id", bad.header.ClientID, "api", apiName(bad.header.Key), "version", bad.header.Version, "reason", bad.err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.srv.opts.Log.Debug("idle connection closed", "client", c.peer.Addr, "listener", c.peer.Listener)
	}
}

// requestError ends a connection because of one request.
type requestError struct {
	header wire.Header
	err    error
}

func (e *requestError) Error() string { return e.err.Error() }

func apiName(key int16) string {
	if n := kmsg.NameForKey(key); n != "" && n != "Unknown" {
		return n
	}
	return fmt.Sprintf("%d", key)
}

// serve reads and handles requests until the connection ends.
func (c *conn) serve() error {
	for {
		if !c.in.ready() {
			if err := c.out.flush(); err != nil {
				return err
			}
		}
		size, err := c.in.size()
		if err != nil {
			return err
		}
		limit := c.srv.limits.Load().MaxRequestBytes
		if size < 0 || int(size) > limit {
			return &requestError{err: frameError(size, limit)}
		}
		if err := c.one(int(size)); err != nil {
			return err
		}
	}
}

// decodeCost is what a decoded request may take in memory per byte of its frame: small
// array elements grow most. Produce and Fetch alias theirs.
const decodeCost = 16

// freeSize is what a request may take without being charged: the many small ones cost
// less than the keeping of accounts.
const freeSize = 4 << 10

// charge takes what the frame that comes and its decoded form cost off the budget, at
// once: holding a part while waiting for the rest could wait for ever.
func (c *conn) charge(size int) (int64, error) {
	if size <= freeSize {
		return 0, nil
	}
	key, err := c.in.peekKey()
	if err != nil {
		return 0, err
	}
	cost := int64(size)
	if a := c.srv.opts.Registry.Get(key); a != nil && !a.Aliases {
		cost *= decodeCost
	}
	return cost, c.srv.opts.Budget.Acquire(c.ctx, cost)
}

// one reads and handles one request of size bytes.
func (c *conn) one(size int) error {
	charged, err := c.charge(size)
	if err != nil {
		return err
	}
	defer c.srv.opts.Budget.Release(charged)
	frame, err := c.in.body(size)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return &requestError{err: fmt.Errorf("the connection ended inside a frame of %d bytes", size)}
		}
		return err
	}
	h, body, err := wire.ParseHeader(frame, c.srv.flexible)
	if err != nil {
		return &requestError{header: h, err: err}
	}
	a := c.srv.opts.Registry.Get(h.Key)
	if a == nil {
		return &requestError{header: h, err: fmt.Errorf("API key %d is not served on listener %s", h.Key, c.peer.Listener)}
	}
	rq := &api.Request{Peer: c.peer, Header: h, Received: time.Now()}
	if h.Version < a.Min || h.Version > a.Max {
		if a.Unsupported == nil {
			return &requestError{header: h, err: fmt.Errorf("version %d is not served; %s is served from %d to %d", h.Version, a.Name(), a.Min, a.Max)}
		}
		return c.finish(rq, a, a.Unsupported(c.ctx, rq))
	}
	if !a.Aliases { // handlers may keep parts of it
		if size > chunkSize {
			c.in.keepBig()
		} else {
			body = append([]byte(nil), body...)
		}
	}
	rq.Body = kmsg.RequestForKey(h.Key)
	rq.Body.SetVersion(h.Version)
	if err := readBody(rq.Body, body); err != nil {
		return &requestError{header: h, err: fmt.Errorf("malformed request body: %w", err)}
	}
	c.note(rq)
	return c.finish(rq, a, c.handle(rq, a))
}

// readBody decodes and turns a decoder's panic on hostile bytes into an error.
func readBody(b kmsg.Request, body []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoder failed: %v", p)
		}
	}()
	return b.ReadFrom(body)
}

// note keeps what ApiVersions tells about the client's software.
func (c *conn) note(rq *api.Request) {
	if v, ok := rq.Body.(*kmsg.ApiVersionsRequest); ok && v.ClientSoftwareName != "" {
		c.peer.Software = v.ClientSoftwareName + " " + v.ClientSoftwareVersion
	}
}

// handle calls the handler; a panic there closes this connection and nothing else.
func (c *conn) handle(rq *api.Request, a *api.API) (reply api.Reply) {
	defer func() {
		if p := recover(); p != nil {
			c.srv.opts.Log.Error("request handler failed", "api", a.Name(), "version", rq.Version, "client", c.peer.Addr,
				"panic", p, "stack", string(debug.Stack()))
			reply = api.Reply{Close: errors.New("internal error")}
		}
	}()
	return a.Handle(c.ctx, rq)
}

// finish sends a reply or puts it in the queue behind others.
func (c *conn) finish(rq *api.Request, a *api.API, reply api.Reply) error {
	if reply.Close != nil {
		c.srv.stats.observe(a.Key, time.Since(rq.Received))
		return &requestError{header: rq.Header, err: reply.Close}
	}
	if c.ctx.Err() != nil {
		reply.Release()
		return errClosing
	}
	if reply.None {
		c.srv.stats.observe(a.Key, time.Since(rq.Received))
		return nil
	}
	return c.out.send(pending{corr: rq.CorrelationID, key: rq.Key, flexible: api.Flexible(rq.Key, rq.Version), received: rq.Received, reply: reply})
}
