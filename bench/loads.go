package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"runnel/internal/kit/record"
)

// load is one line of work that every server gets, and what its figures are called.
type load struct {
	name  string
	title string
	// run does the work once; prepare, if any, is not measured.
	prepare func(ctx context.Context, s *server, topic string) error
	run     func(ctx context.Context, s *server, topic string, d time.Duration) (done, error)
	perGB   *bar // of CPU per GB of users' bytes
	perMill *bar // of CPU per million requests; one of the two
}

const (
	partitions  = 4
	preloaded   = 256 << 20 // bytes a consuming load reads over and over
	fetchAtOnce = 64        // batches of 16 KiB: the 1 MiB that consumers ask for by default
)

var (
	batch16k = shape{records: 16, value: 1024}
	batch1m  = shape{records: 1000, value: 1024}
	one      = shape{records: 1, value: 100}
)

func (s shape) with(c record.Codec) shape { s.codec = c; return s }

// suite is all loads, in the order of the table.
func (b *bench) suite() []load {
	return []load{
		b.produce("produce-16k", "produce, 16 KiB batches", batch16k, 8, atMost(1.0/3)),
		b.produce("produce-16k-lz4", "produce, 16 KiB batches, lz4", batch16k.with(record.LZ4), 8, atMost(0.5)),
		b.produce("produce-16k-zstd", "produce, 16 KiB batches, zstd", batch16k.with(record.Zstd), 8, atMost(1)),
		b.produce("produce-1m", "produce, 1 MiB batches", batch1m, 1, atMost(0.6)),
		b.consume(),
		b.requests(),
		{name: "client", title: "franz-go, produce and consume", perGB: &bar{limit: 0.5}, run: client{bytes: b.bytes}.run},
	}
}

// names are what -only chooses from.
func names() []string {
	all := []string{"startup", "idle", "connections", "partitions"}
	for _, l := range (&bench{}).suite() {
		all = append(all, l.name)
	}
	return append(all, "latency", "loaded", "restart")
}

func (b *bench) produce(name, title string, s shape, depth int, limit *bar) load {
	return load{name: name, title: title, perGB: limit, run: func(ctx context.Context, srv *server, topic string, d time.Duration) (done, error) {
		return producing{topic: topic, partitions: partitions, shape: s, connections: partitions, depth: depth, bytes: b.bytes}.run(ctx, srv.addr, d)
	}}
}

func (b *bench) requests() load {
	return load{name: "requests", title: "produce, one record a request", perMill: atMost(1.0 / 3), run: func(ctx context.Context, srv *server, topic string, d time.Duration) (done, error) {
		return producing{topic: topic, partitions: partitions, shape: one, connections: 16, depth: 8, bytes: b.bytes}.run(ctx, srv.addr, d)
	}}
}

func (b *bench) consume() load {
	each := preloaded / partitions / batch16k.user()
	return load{
		name: "consume", title: "consume, 1 MiB fetches", perGB: atMost(0.5),
		prepare: func(ctx context.Context, srv *server, topic string) error {
			return fill(ctx, srv.addr, topic, batch16k, int(each))
		},
		run: func(ctx context.Context, srv *server, topic string, d time.Duration) (done, error) {
			return consuming{topic: topic, partitions: partitions, shape: batch16k, batches: each, connections: partitions, perFetch: fetchAtOnce}.run(ctx, srv.addr, d)
		},
	}
}

// loads runs the suite, every load on each server in turn, then latency, and reads memory after all.
func (b *bench) loads(ctx context.Context) error {
	var wanted []load
	for _, l := range b.suite() {
		if b.wants(l.name) {
			wanted = append(wanted, l)
		}
	}
	if len(wanted) == 0 && !b.wants("latency", "loaded") {
		return nil
	}
	var all []*server
	defer func() {
		for _, s := range all {
			s.end()
		}
	}()
	for _, name := range b.servers {
		s, err := b.running(ctx, name)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	loaded := map[string]int64{}
	for _, l := range wanted {
		for round := range b.rounds {
			for _, s := range all {
				if err := b.one(ctx, l, s, round); err != nil {
					return fmt.Errorf("%s on %s: %w", l.name, s.name, err)
				}
				if u, err := s.usage(); err == nil {
					loaded[s.name] = max(loaded[s.name], u.PeakRSS)
				}
			}
		}
	}
	if b.wants("latency") {
		for round := range b.rounds {
			for _, s := range all {
				if err := b.endToEnd(ctx, s, round); err != nil {
					return fmt.Errorf("latency of %s: %w", s.name, err)
				}
			}
		}
	}
	for _, s := range all {
		if s.bare == nil && b.wants("loaded") {
			b.table.add(s.name, "memory after the loads, peak", "MiB", atMost(1.0/8), mib(loaded[s.name]))
		}
	}
	return nil
}

// running starts a server for the loads.
func (b *bench) running(ctx context.Context, name string) (*server, error) {
	if name == "bare" {
		return startBare(b.dir)
	}
	s, err := b.described(ctx, name, "loads")
	if err != nil {
		return nil, err
	}
	_, err = s.started(ctx)
	return s, err
}

// one warms a server up with a load, then measures it.
func (b *bench) one(ctx context.Context, l load, s *server, round int) error {
	ctx, cancel := context.WithTimeout(ctx, b.warm+b.load+3*time.Minute)
	defer cancel()
	topic := fmt.Sprintf("%s-%d", l.name, round)
	if err := s.create(ctx, topic, partitions); err != nil {
		return err
	}
	if l.prepare != nil {
		if err := l.prepare(ctx, s, topic); err != nil {
			return err
		}
	}
	if _, err := l.run(ctx, s, topic, b.warm); err != nil {
		return err
	}
	flushDisks()
	profiled := make(chan error, 1)
	if s.pprof != "" {
		go func() { profiled <- s.profile(filepath.Join(b.profiles, l.name+".pprof"), b.load/2) }()
	} else {
		profiled <- nil
	}
	before, err := s.usage()
	if err != nil {
		return err
	}
	d, err := l.run(ctx, s, topic, b.load)
	if err != nil {
		return err
	}
	after, err := s.usage()
	if err != nil {
		return err
	}
	b.report(l, s, d, (after.CPU() - before.CPU()).Seconds())
	if err := <-profiled; err != nil {
		return err
	}
	return s.remove(ctx, topic)
}

func (b *bench) report(l load, s *server, d done, cpu float64) {
	if l.perMill != nil {
		rate, cost := float64(d.requests)/d.took.Seconds(), cpu/float64(d.requests)*1e6
		b.table.add(s.name, l.title, "requests/s", nil, rate)
		b.table.add(s.name, l.title, "CPU-s/million", l.perMill, cost)
		b.progress("%s %s: %.0f requests/s, %.3g CPU-s per million", l.name, s.name, rate, cost)
		return
	}
	rate, cost := float64(d.bytes)/d.took.Seconds()/1e6, cpu/float64(d.bytes)*1e9
	b.table.add(s.name, l.title, "MB/s", nil, rate)
	b.table.add(s.name, l.title, "CPU-s/GB", l.perGB, cost)
	b.progress("%s %s: %.0f MB/s, %.3g CPU-s per GB", l.name, s.name, rate, cost)
}

func (b *bench) endToEnd(ctx context.Context, s *server, round int) error {
	if s.bare != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*b.latency+2*time.Minute)
	defer cancel()
	for _, turn := range []string{"warm", "measured"} {
		topic := fmt.Sprintf("latency-%s-%d", turn, round)
		if err := s.create(ctx, topic, 1); err != nil {
			return err
		}
		times, err := endToEnd{topic: topic, every: time.Millisecond}.run(ctx, s.addr, b.latency)
		if err != nil {
			return err
		}
		if turn == "measured" {
			for _, p := range []struct {
				name  string
				at    float64
				limit *bar
			}{{"p50", 0.5, nil}, {"p99", 0.99, atMost(0.5)}, {"p99.9", 0.999, nil}} {
				b.table.add(s.name, "end to end at 1000/s, "+p.name, "ms", p.limit, percentile(times, p.at).Seconds()*1000)
			}
			b.progress("latency %s: %v %v %v", s.name, percentile(times, .5), percentile(times, .99), percentile(times, .999))
		}
		if err := s.remove(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
