package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fill appends the same number of batches to every partition of a topic.
func fill(ctx context.Context, addr, topic string, s shape, each int) error {
	const depth = 8
	batch, began := s.batch(), time.Now()
	_, err := together(partitions, began, func(i int) (done, error) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return done{}, err
		}
		defer c.Close()
		stop := context.AfterFunc(ctx, func() { c.Close() })
		defer stop()
		left := each / depth
		_, err = newBursts(c, produceFrame(topic, int32(i), batch), depth, produceErrorAt(topic)).run(func() bool {
			left--
			return left >= 0
		})
		return done{}, err
	})
	return err
}

// client is an ordinary application: franz-go with its defaults (acks=all, idempotent, snappy), records of 1 KiB, one
// consumer of all partitions.
type client struct{ bytes int64 }

func (l client) run(ctx context.Context, s *server, topic string, d time.Duration) (done, error) {
	if s.bare != nil {
		return done{}, nil
	}
	out, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return done{}, err
	}
	defer out.Close()
	in, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	if err != nil {
		return done{}, err
	}
	defer in.Close()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, d+time.Minute)
	defer cancel()

	var sent, failed atomic.Int64
	value := words(1024)
	for time.Since(began) < d && sent.Load()*int64(len(value)) < l.bytes {
		out.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Add(1)
			}
			sent.Add(1)
		})
	}
	if err := out.Flush(ctx); err != nil {
		return done{}, err
	}
	if failed.Load() > 0 {
		return done{}, fmt.Errorf("%d of %d records failed", failed.Load(), sent.Load())
	}
	in.AddConsumeTopics(topic)
	return done{requests: sent.Load(), bytes: sent.Load() * int64(len(value)), took: time.Since(began)}, nil
}
