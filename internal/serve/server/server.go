package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"runnel/internal/serve/api"
)

// Limits bound what clients may take. Zero values of the connection limits mean none.
type Limits struct {
	MaxRequestBytes  int // socket.request.max.bytes
	MaxConnections   int // max.connections: further ones wait to be accepted
	MaxPerIP         int // max.connections.per.ip: further ones are closed at once
	PerIPOverrides   map[string]int
	Idle             time.Duration // connections.max.idle.ms; 0 or less: never
	Write            time.Duration // runnel.write.timeout.ms
	SendBuf, RecvBuf int           // kernel buffers; 0 leaves the system's
}

// Options make a Server.
type Options struct {
	Name     string // listener name
	Listener net.Listener
	Registry *api.Registry
	Limits   Limits
	Budget   *Budget // shared by all servers of a node
	Log      *slog.Logger
}

// Server serves one listener.
type Server struct {
	opts   Options
	stats  *Stats
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	limits atomic.Pointer[Limits]

	mu struct {
		sync.Mutex
		conns  map[*conn]struct{}
		perIP  map[string]int
		closed bool
	}
	room *sync.Cond // waits for a place under MaxConnections; uses mu
}

// New makes a server; Serve runs it.
func New(o Options) *Server {
	s := &Server{opts: o, stats: newStats()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.limits.Store(&o.Limits)
	s.mu.conns = map[*conn]struct{}{}
	s.mu.perIP = map[string]int{}
	s.room = sync.NewCond(&s.mu)
	return s
}

// Stats are the server's counters.
func (s *Server) Stats() *Stats { return s.stats }

// Name is the listener's name; Addr where it listens.
func (s *Server) Name() string   { return s.opts.Name }
func (s *Server) Addr() net.Addr { return s.opts.Listener.Addr() }

// SetLimits changes the limits for new requests and connections.
func (s *Server) SetLimits(l Limits) {
	s.limits.Store(&l)
	s.room.Broadcast()
}

// Serve accepts until Close. It returns nil after Close, else the accept error.
func (s *Server) Serve() error {
	for {
		if !s.waitForRoom() {
			return nil
		}
		nc, err := s.opts.Listener.Accept()
		if err != nil {
			if s.isClosed() {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			// Out of file descriptors, most likely: give connections time to close.
			s.opts.Log.Warn("cannot accept a connection", "listener", s.opts.Name, "err", err)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		s.start(nc)
	}
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closed
}

func (s *Server) waitForRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.mu.closed {
		if limit := s.limits.Load().MaxConnections; limit <= 0 || len(s.mu.conns) < limit {
			return true
		}
		s.room.Wait()
	}
	return false
}

func (s *Server) start(nc net.Conn) {
	l := s.limits.Load()
	tune(nc, l)
	c := newConn(s, nc)
	s.mu.Lock()
	ip := c.peer.Host
	limit, ok := l.PerIPOverrides[ip]
	if !ok {
		limit = l.MaxPerIP
	}
	tooMany := limit > 0 && s.mu.perIP[ip] >= limit
	if s.mu.closed || tooMany {
		s.mu.Unlock()
		nc.Close()
		if tooMany {
			s.stats.Refused.Add(1)
			s.opts.Log.Warn("connection refused: too many from one address", "listener", s.opts.Name, "client", ip, "max.connections.per.ip", limit)
		}
		return
	}
	s.mu.conns[c] = struct{}{}
	s.mu.perIP[ip]++
	s.wg.Add(1)
	s.mu.Unlock()
	s.stats.Accepted.Add(1)
	s.stats.Open.Add(1)
	go c.run()
}

// tune sets the socket options a broker wants.
func tune(nc net.Conn, l *Limits) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if l.SendBuf > 0 {
		tc.SetWriteBuffer(l.SendBuf)
	}
	if l.RecvBuf > 0 {
		tc.SetReadBuffer(l.RecvBuf)
	}
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.mu.conns, c)
	if s.mu.perIP[c.peer.Host]--; s.mu.perIP[c.peer.Host] <= 0 {
		delete(s.mu.perIP, c.peer.Host)
	}
	s.mu.Unlock()
	s.room.Signal()
	s.stats.Open.Add(-1)
	s.wg.Done()
}

// Close stops accepting, ends all connections and waits for their handlers, which see
// their context end.
func (s *Server) Close() {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return
	}
	s.mu.closed = true
	conns := make([]*conn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	s.room.Broadcast()
	s.opts.Listener.Close()
	s.cancel()
	for _, c := range conns {
		c.nc.Close()
	}
	s.wg.Wait()
}

// Connections is how many are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.conns)
}

// flexible is api.Flexible for what is served here: the header of any other request is
// read only as far as it says what was asked.
func (s *Server) flexible(key, version int16) bool {
	a := s.opts.Registry.Get(key)
	return a != nil && a.Min <= version && version <= a.Max && api.Flexible(key, version)
}

func splitAddr(a net.Addr) (full, host string) {
	if a == nil {
		return "", ""
	}
	full = a.String()
	if h, _, err := net.SplitHostPort(full); err == nil {
		return full, h
	}
	return full, full
}

var errClosing = errors.New("the server is stopping")

func frameError(size int32, limit int) error {
	if size < 0 {
		return fmt.Errorf("frame size %d is negative", size)
	}
	return fmt.Errorf("frame of %d bytes is larger than socket.request.max.bytes=%d", size, limit)
}
