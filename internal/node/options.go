package node

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
)

// Options are a server's configuration and its seams to the world.
type Options struct {
	Config *config.Server
	FS     vfs.FS
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	Listen func(addr string) (net.Listener, error)
	Now    func() time.Time
	// Seed makes all random draws repeatable; nil takes the system's randomness.
	Seed *[32]byte
	Log  *slog.Logger
	// Fatal is called once when the node cannot go on; it closes by itself afterwards.
	Fatal func(error)
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Dial == nil {
		var d net.Dialer
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	if o.Listen == nil {
		o.Listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Seed == nil {
		o.Seed = new([32]byte)
		crand.Read(o.Seed[:])
	}
	return o
}

// source gives each part its own stream of random numbers, drawn from one seed.
type source struct {
	mu  sync.Mutex
	rng *rand.ChaCha8
}

func newSource(seed [32]byte) *source { return &source{rng: rand.NewChaCha8(seed)} }

// stream is a new independent stream.
func (s *source) stream() func() uint64 {
	var seed [32]byte
	s.mu.Lock()
	s.rng.Read(seed[:])
	s.mu.Unlock()
	child := newSource(seed)
	return child.next
}

func (s *source) next() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Uint64()
}

func uuid(random func() uint64) ids.UUID {
	return ids.NewUUID(func(b []byte) {
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], random())
		}
	})
}

// hostName is what a listener on all interfaces is advertised as.
func hostName() string {
	if h, err := os.Hostname(); err == nil && h != "" {
		return h
	}
	return "localhost"
}
