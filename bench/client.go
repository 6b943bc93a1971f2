package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// clientLoad is an ordinary client with its defaults: idempotent, acks=all, its own batches and fetches.
func clientLoad(b *bench, ctx context.Context, s *server, name string) error {
	if s.name == "bare" {
		return nil
	}
	return s.withTopic(ctx, name, partitions, func() error {
		var records int64
		for _, d := range []time.Duration{b.warm, b.load} {
			cpu, err := s.cost(func() (err error) {
				records, err = clientProduce(ctx, s.addr, name, d)
				return err
			})
			if err != nil {
				return err
			}
			if d == b.load {
				b.table.add(s.name, "franz-go produces records of 1,000 bytes", "thousand/s", nil, float64(records)/1e3/d.Seconds())
				b.table.add(s.name, "franz-go produces records of 1,000 bytes", "CPU-s/GB", nil, cpu.Seconds()/(float64(records)*1000/gb))
			}
		}
		began := time.Now()
		cpu, err := s.cost(func() error { return clientConsume(ctx, s.addr, name, records) })
		if err != nil {
			return err
		}
		b.table.add(s.name, "franz-go consumes them", "thousand/s", nil, float64(records)/1e3/time.Since(began).Seconds())
		b.table.add(s.name, "franz-go consumes them", "CPU-s/GB", nil, cpu.Seconds()/(float64(records)*1000/gb))
		return nil
	})
}

func clientProduce(ctx context.Context, addr, topic string, d time.Duration) (int64, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var sent atomic.Int64
	var failed atomic.Pointer[error]
	value := words(1000)
	for began := time.Now(); time.Since(began) < d && failed.Load() == nil; {
		c.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
				return
			}
			sent.Add(1)
		})
	}
	if err := c.Flush(ctx); err != nil {
		return 0, err
	}
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return sent.Load(), nil
}

func clientConsume(ctx context.Context, addr, topic string, records int64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer c.Close()
	for n := int64(0); n < records; {
		f := c.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			return err
		}
		n += int64(f.NumRecords())
	}
	return nil
}
