package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// consuming reads partitions that hold batches of one shape and size over and over.
type consuming struct {
	topic       string
	partitions  int
	shape       shape
	batches     int64 // in each partition
	connections int
	perFetch    int // batches in an answer
}

func (l consuming) run(ctx context.Context, addr string, d time.Duration) (done, error) {
	size := len(l.shape.batch())
	began := time.Now()
	return together(l.connections, began, func(i int) (done, error) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return done{}, err
		}
		defer c.Close()
		stop := context.AfterFunc(ctx, func() { c.Close() })
		defer stop()
		c.SetDeadline(began.Add(d + 60*time.Second))
		frame, offsetAt := fetchFrame(l.topic, int32(i%l.partitions), int32(l.perFetch*size), 1, time.Second)
		r := reader{c: c.(*net.TCPConn), head: make([]byte, fetchHead(l.topic)+4), errorAt: fetchErrorAt(l.topic), scratch: make([]byte, 1<<20)}
		var sum done
		at := int64(0)
		for time.Since(began) < d {
			be.PutUint64(frame[offsetAt:], uint64(at*int64(l.shape.records)))
			if _, err := c.Write(frame); err != nil {
				return sum, err
			}
			n, err := r.skip()
			if err != nil {
				return sum, err
			}
			whole := int64(n / size)
			if whole == 0 {
				return sum, fmt.Errorf("fetch at batch %d of %d: %d bytes", at, l.batches, n)
			}
			sum.requests, sum.bytes = sum.requests+1, sum.bytes+whole*l.shape.user()
			if at += whole; at >= l.batches {
				at = 0
			}
		}
		return sum, nil
	})
}

// reader takes answers to Fetch off a connection.
type reader struct {
	c       *net.TCPConn
	head    []byte // what stands before the records, and their size
	errorAt int
	scratch []byte
}

// skip drops one answer and gives the size of its records.
func (r *reader) skip() (records int, err error) {
	// The size of the records and three empty tag sections end every answer: four bytes at least.
	if _, err := io.ReadFull(r.c, r.head); err != nil {
		return 0, err
	}
	frame := 4 + int(be.Uint32(r.head))
	if err := kerr.ErrorForCode(int16(be.Uint16(r.head[r.errorAt:]))); err != nil {
		return 0, fmt.Errorf("fetch: %w", err)
	}
	size, _ := binary.Uvarint(r.head[len(r.head)-4:])
	if frame < len(r.head) || int(size) > frame {
		return 0, fmt.Errorf("fetch: an answer of %d bytes says that its records have %d", frame, size)
	}
	return max(0, int(size)-1), discard(r.c, frame-len(r.head), r.scratch)
}
