package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
)

// endToEnd sends records at a fixed rate whatever the answers do, and takes each record's time from when it was due to
// be sent until a long-polling consumer has it.
type endToEnd struct {
	topic string
	every time.Duration
}

func (l endToEnd) run(ctx context.Context, addr string, d time.Duration) ([]time.Duration, error) {
	total := int(d / l.every)
	out, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	in, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	stop := context.AfterFunc(ctx, func() { out.Close(); in.Close() })
	defer stop()
	limit := time.Now().Add(d + 30*time.Second)
	out.SetDeadline(limit)
	in.SetDeadline(limit)

	var start atomic.Int64
	taken := make(chan error, 1)
	times := make([]time.Duration, 0, total)
	go func() {
		taken <- l.receive(in, total, func(due int) {
			times = append(times, time.Duration(time.Now().UnixNano()-start.Load()-int64(due)*int64(l.every)))
		})
	}()
	answered := make(chan error, 1)
	go func() {
		b := newBursts(out, nil, total, produceErrorAt(l.topic))
		answered <- b.receive()
	}()
	if err := l.send(out, total, &start); err != nil {
		return nil, err
	}
	if err := <-answered; err != nil {
		return nil, err
	}
	if err := <-taken; err != nil {
		return nil, err
	}
	slices.Sort(times)
	return times, nil
}

// send writes record i when it is due. Its number is the value's first eight bytes.
func (l endToEnd) send(c net.Conn, total int, start *atomic.Int64) error {
	sleep, free := pacer()
	defer free()
	began := time.Now().Add(100 * time.Millisecond)
	start.Store(began.UnixNano())
	value := words(100)
	for i := range total {
		be.PutUint64(value, uint64(i))
		b := record.Builder{Timestamp: time.Now().UnixMilli()}
		b.Add(nil, value)
		frame := produceFrame(l.topic, 0, b.Build())
		be.PutUint32(frame[correlationAt:], uint32(i))
		if wait := time.Until(began.Add(time.Duration(i) * l.every)); wait > 0 {
			sleep(wait)
		}
		if _, err := c.Write(frame); err != nil {
			return err
		}
	}
	return nil
}

func (l endToEnd) receive(c net.Conn, total int, got func(due int)) error {
	frame, offsetAt := fetchFrame(l.topic, 0, 1<<20, 1, 500*time.Millisecond)
	offset, answer := int64(0), make([]byte, 2<<20)
	for offset < int64(total) {
		be.PutUint64(frame[offsetAt:], uint64(offset))
		if _, err := c.Write(frame); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, answer[:4]); err != nil {
			return err
		}
		n := 4 + int(be.Uint32(answer))
		if n > len(answer) {
			return fmt.Errorf("fetch: an answer of %d bytes", n)
		}
		if _, err := io.ReadFull(c, answer[4:n]); err != nil {
			return err
		}
		if err := kerr.ErrorForCode(int16(be.Uint16(answer[fetchErrorAt(l.topic):]))); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		head := fetchHead(l.topic)
		size, w := binary.Uvarint(answer[head:n])
		rest := answer[head+w : head+w+max(0, int(size)-1)]
		for len(rest) > 0 {
			b, after, err := record.Next(rest)
			if err != nil {
				return err
			}
			rec, err := record.ReadRecord(b.Payload(), false)
			if err != nil {
				return err
			}
			got(int(be.Uint64(rec.Value)))
			offset, rest = b.NextOffset(), after
		}
	}
	return nil
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}
