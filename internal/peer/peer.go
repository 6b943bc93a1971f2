package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/wire"
)

// Dial opens a connection to HOST:PORT.
type Dial func(ctx context.Context, addr string) (net.Conn, error)

// maxAnswer bounds an answer from a peer, in bytes.
const maxAnswer = 256 << 20

// keep is how many idle connections to one address are kept, idleFor how long.
const (
	keep    = 4
	idleFor = 5 * time.Minute
)

// ErrVersion says that a peer serves no version of an API that we speak.
var ErrVersion = errors.New("the peer serves no common version")

// Client asks peers.
type Client struct {
	dial     Dial
	clientID string
	mu       struct {
		sync.Mutex
		idle   map[string][]*conn
		closed bool
	}
}

// New makes a client.
func New(dial Dial, clientID string) *Client {
	c := &Client{dial: dial, clientID: clientID}
	c.mu.idle = map[string][]*conn{}
	return c
}

type conn struct {
	nc       net.Conn
	corr     int32
	versions map[int16][2]int16
	idleAt   time.Time
}

// Request sends rq to addr, in the highest version both sides speak, and waits for the
// answer until ctx ends. An error means that it is not known whether the request was
// carried out.
func (c *Client) Request(ctx context.Context, addr string, rq kmsg.Request) (kmsg.Response, error) {
	cn, reused, err := c.take(ctx, addr)
	if err != nil {
		return nil, err
	}
	resp, sent, err := c.on(ctx, cn, rq)
	if err != nil && reused && !sent {
		// A kept connection that the peer had closed meanwhile.
		cn.nc.Close()
		if cn, err = c.connect(ctx, addr); err != nil {
			return nil, err
		}
		resp, _, err = c.on(ctx, cn, rq)
	}
	if err != nil {
		cn.nc.Close()
		return nil, fmt.Errorf("%s to %s: %w", kmsg.NameForKey(rq.Key()), addr, err)
	}
	c.give(addr, cn)
	return resp, nil
}

func (c *Client) take(ctx context.Context, addr string) (cn *conn, reused bool, err error) {
	c.mu.Lock()
	for list := c.mu.idle[addr]; len(list) > 0; list = c.mu.idle[addr] {
		cn := list[len(list)-1]
		c.mu.idle[addr] = list[:len(list)-1]
		if time.Since(cn.idleAt) < idleFor {
			c.mu.Unlock()
			return cn, true, nil
		}
		cn.nc.Close()
	}
	closed := c.mu.closed
	c.mu.Unlock()
	if closed {
		return nil, false, net.ErrClosed
	}
	cn, err = c.connect(ctx, addr)
	return cn, false, err
}

func (c *Client) give(addr string, cn *conn) {
	cn.idleAt = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed || len(c.mu.idle[addr]) >= keep {
		cn.nc.Close()
		return
	}
	c.mu.idle[addr] = append(c.mu.idle[addr], cn)
}

// connect dials and learns the peer's versions.
func (c *Client) connect(ctx context.Context, addr string) (*conn, error) {
	nc, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	cn := &conn{nc: nc}
	ask := kmsg.NewPtrApiVersionsRequest()
	ask.Version = 3
	ask.ClientSoftwareName, ask.ClientSoftwareVersion = "runnel", "peer"
	resp, _, err := c.on(ctx, cn, ask)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("asking %s for its versions: %w", addr, err)
	}
	cn.versions = map[int16][2]int16{}
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		cn.versions[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	return cn, nil
}

// on does one exchange. sent is false if the request certainly did not reach the peer.
func (c *Client) on(ctx context.Context, cn *conn, rq kmsg.Request) (resp kmsg.Response, sent bool, err error) {
	if cn.versions != nil {
		v, ok := cn.versions[rq.Key()]
		if !ok {
			return nil, true, ErrVersion
		}
		use := min(rq.MaxVersion(), v[1])
		if use < v[0] {
			return nil, true, ErrVersion
		}
		rq.SetVersion(use)
	}
	deadline, _ := ctx.Deadline()
	if err := cn.nc.SetDeadline(deadline); err != nil {
		return nil, false, err
	}
	stop := context.AfterFunc(ctx, func() { cn.nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	cn.corr++
	frame := make([]byte, 4, 256)
	frame = wire.AppendHeader(frame, wire.Header{Key: rq.Key(), Version: rq.GetVersion(), CorrelationID: cn.corr, ClientID: c.clientID}, rq.IsFlexible())
	frame = rq.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if _, err := cn.nc.Write(frame); err != nil {
		return nil, false, cause(ctx, err)
	}
	body, n, err := readAnswer(cn.nc, cn.corr)
	if err != nil {
		return nil, n > 0 || ctx.Err() != nil, cause(ctx, err)
	}
	resp = rq.ResponseKind()
	if wire.ResponseFlexible(resp) {
		if len(body) == 0 {
			return nil, true, io.ErrUnexpectedEOF
		}
		body = body[1:] // an empty tag section: no tags are defined for it
	}
	return resp, true, resp.ReadFrom(body)
}

func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func readAnswer(nc net.Conn, corr int32) (body []byte, n int, err error) {
	var head [8]byte
	n, err = io.ReadFull(nc, head[:])
	if err != nil {
		return nil, n, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > maxAnswer {
		return nil, n, fmt.Errorf("an answer of %d bytes is not between 4 and %d", size, maxAnswer)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != corr {
		return nil, n, fmt.Errorf("the answer is for request %d, not %d", got, corr)
	}
	body = make([]byte, size-4)
	_, err = io.ReadFull(nc, body)
	return body, n, err
}

// Close ends all idle connections; requests under way end with their context.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	for _, list := range c.mu.idle {
		for _, cn := range list {
			cn.nc.Close()
		}
	}
	c.mu.idle = nil
}
