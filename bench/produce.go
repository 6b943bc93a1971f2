package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// done is what a load moved in its time.
type done struct {
	requests, bytes int64 // bytes of users
	took            time.Duration
}

// producing is a load of Produce requests, each with one batch.
type producing struct {
	topic       string
	partitions  int
	shape       shape
	connections int
	depth       int   // requests in a burst; two bursts are under way on each connection
	bytes       int64 // stop after so many of the users' bytes
	each        int64 // if set, each connection sends exactly so many requests, a multiple of depth
}

func (p producing) run(ctx context.Context, addr string, d time.Duration) (done, error) {
	batch := p.shape.batch()
	left := atomic.Int64{}
	left.Store(p.bytes)
	began := time.Now()
	return together(p.connections, began, func(i int) (done, error) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return done{}, err
		}
		defer c.Close()
		stop := context.AfterFunc(ctx, func() { c.Close() })
		defer stop()
		c.SetDeadline(began.Add(d + 60*time.Second))
		frame := produceFrame(p.topic, int32(i%p.partitions), batch)
		b := newBursts(c, frame, p.depth, produceErrorAt(p.topic))
		n, err := b.run(func() bool {
			if p.each > 0 {
				return int64(b.sent) < p.each
			}
			return time.Since(began) < d && left.Add(-p.shape.user()*int64(p.depth)) >= 0
		})
		return done{requests: n, bytes: n * p.shape.user()}, err
	})
}

// together runs n workers and adds up what they did.
func together(n int, began time.Time, work func(i int) (done, error)) (done, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		sum   done
		first error
	)
	for i := range n {
		wg.Go(func() {
			d, err := work(i)
			mu.Lock()
			defer mu.Unlock()
			sum.requests, sum.bytes = sum.requests+d.requests, sum.bytes+d.bytes
			if err != nil && first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	sum.took = time.Since(began)
	return sum, first
}

// bursts keeps two bursts of the same frame under way on a connection.
type bursts struct {
	c       net.Conn
	in      *bufio.Reader
	burst   []byte
	frame   int
	depth   int
	errorAt int
	sent    uint32
	got     uint32
	answer  []byte
}

func newBursts(c net.Conn, frame []byte, depth, errorAt int) *bursts {
	b := &bursts{c: c, in: bufio.NewReaderSize(c, 16<<10), frame: len(frame), depth: depth, errorAt: errorAt, answer: make([]byte, 4<<10)}
	for range depth {
		b.burst = append(b.burst, frame...)
	}
	return b
}

// run sends while more says so, and returns how many requests were answered without an error.
func (b *bursts) run(more func() bool) (int64, error) {
	ahead := false
	for {
		going := more()
		if going {
			if err := b.send(); err != nil {
				return int64(b.got), err
			}
		}
		if ahead {
			if err := b.receive(); err != nil {
				return int64(b.got), err
			}
		}
		if !going {
			return int64(b.got), nil
		}
		ahead = true
	}
}

func (b *bursts) send() error {
	for i := range b.depth {
		be.PutUint32(b.burst[i*b.frame+correlationAt:], b.sent)
		b.sent++
	}
	_, err := b.c.Write(b.burst)
	return err
}

func (b *bursts) receive() error {
	for range b.depth {
		if _, err := io.ReadFull(b.in, b.answer[:4]); err != nil {
			return err
		}
		n := 4 + int(be.Uint32(b.answer))
		if n > len(b.answer) || n < b.errorAt+2 {
			return fmt.Errorf("an answer of %d bytes", n)
		}
		if _, err := io.ReadFull(b.in, b.answer[4:n]); err != nil {
			return err
		}
		if id := be.Uint32(b.answer[4:]); id != b.got {
			return fmt.Errorf("answer %d came in place of %d", id, b.got)
		}
		if err := kerr.ErrorForCode(int16(be.Uint16(b.answer[b.errorAt:]))); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		b.got++
	}
	return nil
}
