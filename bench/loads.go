package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"runnel/internal/kit/record"
)

const (
	kib = 1 << 10
	gb  = 1e9

	nameStart       = "start"
	nameIdle        = "idle"
	nameConnections = "connections"
	namePartitions  = "partitions"
	nameLatency     = "latency"
	nameLoaded      = "loaded"
	nameRestart     = "restart"
)

const (
	partitions  = 4
	preloaded   = 256 << 20 // bytes that a consuming load reads over and over
	fetchAtOnce = 64        // batches of 16 KiB: the 1 MiB that consumers ask for by default
)

var (
	batch16k = shape{record.None, 16, 1000}
	batch1m  = shape{record.None, 1000, 1000}
	single   = shape{record.None, 1, 100}
)

func (s shape) with(c record.Codec) shape { s.codec = c; return s }

// load is one line of work that every server gets.
type load struct {
	name string
	run  func(b *bench, ctx context.Context, s *server, name string) error
}

// suite is all loads, in the order of the table.
var suite = []load{
	{"produce-16k", produces("produce, 16 KiB batches", batch16k, 8, atMost(1./3))},
	{"produce-16k-lz4", produces("produce, 16 KiB batches, lz4", batch16k.with(record.LZ4), 8, atMost(0.5))},
	{"produce-16k-zstd", produces("produce, 16 KiB batches, zstd", batch16k.with(record.Zstd), 8, atMost(1))},
	{"produce-1m", produces("produce, 1 MiB batches", batch1m, 1, atMost(0.6))},
	{"consume", consumes},
	{"requests", requests},
	{nameLatency, latency},
	{"client", clientLoad},
}

// names are what -only chooses from.
func names() []string {
	all := []string{nameStart, nameIdle, nameConnections, namePartitions}
	for _, l := range suite {
		all = append(all, l.name)
	}
	return append(all, nameLoaded, nameRestart)
}

// loads runs the suite, every load on each server in turn, and reads their memory after it.
func (b *bench) loads(ctx context.Context) error {
	var wanted []load
	for _, l := range suite {
		if b.wants(l.name) {
			wanted = append(wanted, l)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	var all []*server
	for _, name := range b.servers {
		s, err := b.prepare(ctx, name, filepath.Join(b.dir, "loads-"+name))
		if err != nil {
			return err
		}
		defer s.kill()
		if _, err := s.start(ctx); err != nil {
			return err
		}
		all = append(all, s)
	}
	for _, l := range wanted {
		for round := range b.rounds {
			for _, s := range all {
				b.progress("%s: %s", l.name, s.name)
				if err := l.run(b, ctx, s, fmt.Sprintf("%s-%d", l.name, round)); err != nil {
					return fmt.Errorf("%s: %s: %w", l.name, s.name, err)
				}
			}
		}
	}
	if !b.wants(nameLoaded) {
		return nil
	}
	for _, s := range all {
		u, err := s.usage()
		if err != nil {
			return err
		}
		if s.bare == nil {
			b.table.add(s.name, "memory after the loads, highest", "MiB", atMost(1./8), float64(u.PeakRSS)/kib/kib)
		}
	}
	return nil
}

// warmest is how often a load is repeated at most before it counts.
const warmest = 8

// warmUp repeats a load until it no longer gets cheaper: a JVM on a busy machine takes its time to compile.
func (b *bench) warmUp(s *server, run func(time.Duration) (done, error)) error {
	least := math.Inf(1)
	for range warmest {
		var d done
		cpu, err := s.cost(func() (err error) { d, err = run(b.warm); return err })
		if err != nil {
			return err
		}
		each := cpu.Seconds() / float64(d.requests)
		if each > 0.9*least {
			return nil
		}
		least = each
	}
	return nil
}

// measured warms a server up with a load, then runs it again for its figures.
func (b *bench) measured(s *server, name string, run func(time.Duration) (done, error)) (d done, cpu time.Duration, err error) {
	if err := b.warmUp(s, run); err != nil {
		return d, 0, err
	}
	flushDisks()
	backMemory(b.bytes)
	profiled := make(chan error, 1)
	if s.pprof == "" {
		profiled <- nil
	} else {
		go func() { profiled <- s.profile(b.profiles, name, b.load/2) }()
	}
	cpu, err = s.cost(func() (err error) { d, err = run(b.load); return err })
	if failed := <-profiled; err == nil {
		err = failed
	}
	return d, cpu, err
}

func produces(title string, sh shape, depth int, limit *bar) func(*bench, context.Context, *server, string) error {
	return func(b *bench, ctx context.Context, s *server, name string) error {
		return s.withTopic(ctx, name, partitions, func() error {
			p := producing{topic: name, partitions: partitions, shape: sh, connections: partitions, depth: depth, bytes: b.bytes}
			d, cpu, err := b.measured(s, name, func(t time.Duration) (done, error) { return p.run(ctx, s.addr, t) })
			if err != nil {
				return err
			}
			b.perByte(s, title, limit, d, cpu)
			return nil
		})
	}
}

func consumes(b *bench, ctx context.Context, s *server, name string) error {
	return s.withTopic(ctx, name, partitions, func() error {
		const depth = 8
		each := int64(preloaded) / partitions / batch16k.user() / depth * depth
		fill := producing{topic: name, partitions: partitions, shape: batch16k, connections: partitions, depth: depth, each: each}
		if _, err := fill.run(ctx, s.addr, time.Minute); err != nil {
			return err
		}
		l := consuming{topic: name, partitions: partitions, shape: batch16k, batches: each, connections: partitions, perFetch: fetchAtOnce}
		d, cpu, err := b.measured(s, name, func(t time.Duration) (done, error) { return l.run(ctx, s.addr, t) })
		if err != nil {
			return err
		}
		b.perByte(s, "consume, 1 MiB fetches", atMost(0.5), d, cpu)
		return nil
	})
}

func (b *bench) perByte(s *server, title string, limit *bar, d done, cpu time.Duration) {
	b.table.add(s.name, title, "MB/s", nil, float64(d.bytes)/1e6/d.took.Seconds())
	b.table.add(s.name, title, "CPU-s/GB", limit, cpu.Seconds()/(float64(d.bytes)/gb))
}

func requests(b *bench, ctx context.Context, s *server, name string) error {
	return s.withTopic(ctx, name, partitions, func() error {
		p := producing{topic: name, partitions: partitions, shape: single, connections: 16, depth: 8, bytes: b.bytes}
		d, cpu, err := b.measured(s, name, func(t time.Duration) (done, error) { return p.run(ctx, s.addr, t) })
		if err != nil {
			return err
		}
		const title = "produce, one record of 100 bytes a request"
		b.table.add(s.name, title, "thousand/s", nil, float64(d.requests)/1e3/d.took.Seconds())
		b.table.add(s.name, title, "CPU-s/million", atMost(1./3), cpu.Seconds()/(float64(d.requests)/1e6))
		return nil
	})
}

// latency is taken twice, for the first time warms up.
func latency(b *bench, ctx context.Context, s *server, name string) error {
	if s.bare != nil {
		return nil
	}
	var times []time.Duration
	for _, turn := range []string{"-warm", ""} {
		if err := s.withTopic(ctx, name+turn, 1, func() (err error) {
			times, err = endToEnd{topic: name + turn, every: time.Millisecond}.run(ctx, s.addr, b.latency)
			return err
		}); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		name  string
		at    float64
		limit *bar
	}{{"p50", 0.5, nil}, {"p99", 0.99, atMost(0.5)}, {"p99.9", 0.999, nil}} {
		b.table.add(s.name, "end to end at 1,000/s, "+p.name, "ms", p.limit, percentile(times, p.at).Seconds()*1000)
	}
	return nil
}
