package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/record"
)

// brokers are the servers that are started, stopped and filled: all but the bare one.
func (b *bench) brokers() (out []string) {
	for _, s := range b.servers {
		if s != "bare" {
			out = append(out, s)
		}
	}
	return out
}

// fresh measures each server alone and new: start, idle, connections, partitions.
func (b *bench) fresh(ctx context.Context) error {
	if !b.wants(nameStart, nameIdle, nameConnections, namePartitions) {
		return nil
	}
	for _, name := range b.brokers() {
		if err := b.freshServer(ctx, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (b *bench) freshServer(ctx context.Context, name string) error {
	s, err := b.prepare(ctx, name, filepath.Join(b.dir, "fresh-"+name))
	if err != nil {
		return err
	}
	if _, err := s.start(ctx); err != nil {
		return err
	}
	defer s.kill()
	steps := []struct {
		name string
		run  func(context.Context, *server) error
	}{{nameStart, b.startUp}, {nameIdle, b.idle}, {nameConnections, b.manyConnections}, {namePartitions, b.manyPartitions}}
	for _, step := range steps {
		if b.wants(step.name) {
			b.progress("%s: %s", step.name, name)
			if err := step.run(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
		}
	}
	return nil
}

// startUp is from the start of a process whose directory was used before to its first answer.
func (b *bench) startUp(ctx context.Context, s *server) error {
	for range 3 {
		if err := s.stop(ctx); err != nil {
			return err
		}
		took, err := s.start(ctx)
		if err != nil {
			return err
		}
		b.table.add(s.name, "start-up", "s", atMost(1./40), took.Seconds())
	}
	return nil
}

func (b *bench) idle(ctx context.Context, s *server) error {
	time.Sleep(b.settle)
	cpu, err := s.cost(func() error { time.Sleep(b.settle); return nil })
	if err != nil {
		return err
	}
	u, err := s.usage()
	if err != nil {
		return err
	}
	b.table.add(s.name, "memory idle", "MiB", atMost(1./12), float64(u.RSS)/kib/kib)
	b.table.add(s.name, "CPU idle", "% of one", nil, 100*cpu.Seconds()/b.settle.Seconds())
	return nil
}

// manyConnections opens connections that each asked something once.
func (b *bench) manyConnections(ctx context.Context, s *server) error {
	before, err := s.usage()
	if err != nil {
		return err
	}
	open := make([]net.Conn, 0, b.connections)
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	limit := time.Now().Add(time.Minute)
	for range b.connections {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			return fmt.Errorf("after %d connections: %w", len(open), err)
		}
		open = append(open, c)
		c.SetDeadline(limit)
		q, a := kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrApiVersionsResponse()
		if err := exchange(c, q, a); err != nil {
			return fmt.Errorf("after %d connections: %w", len(open), err)
		}
	}
	time.Sleep(b.settle)
	after, err := s.usage()
	if err != nil {
		return err
	}
	b.table.add(s.name, fmt.Sprintf("memory of each of %d idle connections", b.connections), "KiB", below(16),
		float64(after.RSS-before.RSS)/kib/float64(b.connections))
	return nil
}

// creating is how long a server may take to make its partitions; one that is slower is left with what it made by then.
const creating = 20 * time.Second

// manyPartitions makes them, leaves them idle, and starts the server again.
func (b *bench) manyPartitions(ctx context.Context, s *server) error {
	title := fmt.Sprintf("%d partitions: ", b.partitions)
	before, err := s.usage()
	if err != nil {
		return err
	}
	const perTopic = 50
	began := time.Now()
	topics, err := s.createMany(ctx, b.partitions/perTopic, perTopic)
	if err != nil {
		return err
	}
	made := float64(len(topics) * perTopic)
	b.table.add(s.name, title+"created", "1/s", atLeast(10), made/time.Since(began).Seconds())
	time.Sleep(b.settle)
	after, err := s.usage()
	if err != nil {
		return err
	}
	b.table.add(s.name, title+"memory of each", "KiB", nil, float64(after.RSS-before.RSS)/kib/made)
	cpu, err := s.cost(func() error { time.Sleep(2 * b.settle); return nil })
	if err != nil {
		return err
	}
	b.table.add(s.name, title+"CPU idle", "% of one", below(0.2), 100*cpu.Seconds()/(2*b.settle.Seconds()))
	if len(topics) < b.partitions/perTopic {
		b.progress("%s made only %d partitions in %v: it is not started again with them", s.name, len(topics)*perTopic, creating)
		return nil
	}
	began = time.Now()
	if err := s.stop(ctx); err != nil {
		return err
	}
	b.table.add(s.name, title+"stop", "s", nil, time.Since(began).Seconds())
	began = time.Now()
	if _, err := s.start(ctx); err != nil {
		return err
	}
	if err := s.admin(ctx, func(ctx context.Context, a *kadm.Client) error { _, err := ends(ctx, a, topics...); return err }); err != nil {
		return err
	}
	b.table.add(s.name, title+"start until all answer", "s", below(5), time.Since(began).Seconds())
	return nil
}

// createMany makes topics, ten a request, and returns once all their partitions can be used.
func (s *server) createMany(ctx context.Context, topics, partitions int) (made []string, err error) {
	const perRequest = 10
	began := time.Now()
	err = s.admin(ctx, func(ctx context.Context, a *kadm.Client) error {
		for len(made) < topics && time.Since(began) < creating {
			var names []string
			for range min(perRequest, topics-len(made)) {
				names = append(names, fmt.Sprintf("many-%d", len(made)+len(names)))
			}
			r, err := a.CreateTopics(ctx, int32(partitions), 1, nil, names...)
			if err == nil {
				err = r.Error()
			}
			if err != nil {
				return err
			}
			// Kafka answers before its broker has the partitions: the next ones wait for these.
			if _, err := ends(ctx, a, names...); err != nil {
				return err
			}
			made = append(made, names...)
		}
		return nil
	})
	return made, err
}

// restarts kills each server with data that is not yet known to be on disk, and starts it again.
func (b *bench) restarts(ctx context.Context) error {
	if !b.wants(nameRestart) {
		return nil
	}
	for _, name := range b.brokers() {
		b.progress("%s: %s", nameRestart, name)
		if err := b.restartServer(ctx, name); err != nil {
			return fmt.Errorf("%s: %s: %w", nameRestart, name, err)
		}
	}
	return nil
}

func (b *bench) restartServer(ctx context.Context, name string) error {
	s, err := b.prepare(ctx, name, filepath.Join(b.dir, "restart-"+name))
	if err != nil {
		return err
	}
	if _, err := s.start(ctx); err != nil {
		return err
	}
	defer s.kill()
	const topic, partitions, depth = "restarted", 4, 4
	if err := s.createTopic(ctx, topic, partitions); err != nil {
		return err
	}
	sh := shape{record.None, 16, 1000}
	p := producing{topic: topic, partitions: partitions, shape: sh, connections: partitions, depth: depth}
	p.each = b.restart / partitions / sh.user() / depth * depth
	d, err := p.run(ctx, s.addr, time.Minute)
	if err != nil {
		return err
	}
	s.kill()
	began := time.Now()
	if _, err := s.start(ctx); err != nil {
		return err
	}
	var found int64
	if err := s.admin(ctx, func(ctx context.Context, a *kadm.Client) (err error) { found, err = ends(ctx, a, topic); return err }); err != nil {
		return err
	}
	took := time.Since(began)
	if want := d.requests * int64(sh.records); found != want {
		return fmt.Errorf("%d records were acknowledged and %d are there after kill -9", want, found)
	}
	b.table.add(s.name, fmt.Sprintf("start after kill -9 with %d MiB", b.restart>>20), "s", nil, took.Seconds())
	return nil
}
