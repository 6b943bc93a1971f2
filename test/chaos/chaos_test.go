//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topic      = "chaos"
	group      = "readers"
	partitions = 4
	producers  = 3
	consumers  = 2
)

// history is what clients were told.
type history struct {
	mu struct {
		sync.Mutex
		acked     map[string]place // value -> where it was acknowledged
		sent      map[string]bool  // all values that were given to a producer
		committed map[int32]int64  // the largest acknowledged commit of each partition
		failures  []string         // what no client should be told
	}
	read    atomic.Int64
	commits atomic.Int64 // acknowledged
}

type place struct {
	partition int32
	offset    int64
}

func (h *history) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.failures = append(h.mu.failures, fmt.Sprintf(format, args...))
}

// produce sends numbered values until ctx ends, then waits for what is under way.
func produce(ctx context.Context, h *history, addr string, id int) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedRecords(2000), kgo.ProducerLinger(time.Millisecond), kgo.RetryBackoffFn(soon),
		kgo.ProducerBatchCompression([]kgo.CompressionCodec{kgo.NoCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}[id%3]))
	if err != nil {
		return err
	}
	defer c.Close()
	pad := strings.Repeat("x", 100)
	for n := 0; ctx.Err() == nil; n++ {
		value := fmt.Sprintf("%d-%d-%s", id, n, pad)
		h.mu.Lock()
		h.mu.sent[value] = true
		h.mu.Unlock()
		c.Produce(context.Background(), &kgo.Record{Key: fmt.Appendf(nil, "%d", n%50), Value: []byte(value)}, func(r *kgo.Record, err error) {
			if err != nil {
				h.fail("producer %d was told %v", id, err)
				return
			}
			h.mu.Lock()
			h.mu.acked[string(r.Value)] = place{r.Partition, r.Offset}
			h.mu.Unlock()
		})
		if n%20 == 0 {
			time.Sleep(2 * time.Millisecond) // bounded load: the kills are the test
		}
	}
	end, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return c.Flush(end)
}

func soon(int) time.Duration { return 20 * time.Millisecond }

// consume reads as a member of the group and commits what it read.
func consume(ctx context.Context, h *history, addr string) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.RetryBackoffFn(soon), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.Close()
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		f := c.PollFetches(poll)
		cancel()
		h.read.Add(int64(f.NumRecords()))
		marks := c.UncommittedOffsets()
		if len(marks) == 0 {
			continue
		}
		// A commit that fails, as in a rebalance, promised nothing.
		if commit(ctx, c, marks) {
			h.mu.Lock()
			for p, o := range marks[topic] {
				h.mu.committed[p] = max(h.mu.committed[p], o.Offset)
			}
			h.mu.Unlock()
			h.commits.Add(1)
		}
	}
	return nil
}

// commit says whether every partition's commit was acknowledged.
func commit(ctx context.Context, c *kgo.Client, marks map[string]map[int32]kgo.EpochOffset) bool {
	ok := false
	c.CommitOffsetsSync(ctx, marks, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		ok = err == nil
		if resp == nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				ok = ok && p.ErrorCode == 0
			}
		}
	})
	return ok
}

func TestKillUnderLoad(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("RUNNEL_CHAOS_ROUNDS"))
	if rounds <= 0 {
		rounds = 5
	}
	s := &server{binary: build(t), dir: filepath.Join(t.TempDir(), "data"), addr: freeAddr(t), controller: freeAddr(t)}
	if _, err := s.start(); err != nil {
		t.Fatal(err)
	}
	defer func() { s.kill() }()
	adm, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.RetryBackoffFn(soon))
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	admin := kadm.NewClient(adm)
	if r, err := admin.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}

	h := &history{}
	h.mu.acked, h.mu.sent, h.mu.committed = map[string]place{}, map[string]bool{}, map[int32]int64{}
	load, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for id := range producers {
		wg.Go(func() {
			if err := produce(load, h, s.addr, id); err != nil {
				h.fail("producer %d did not finish: %v", id, err)
			}
		})
	}
	for range consumers {
		wg.Go(func() {
			if err := consume(load, h, s.addr); err != nil {
				h.fail("a consumer: %v", err)
			}
		})
	}

	var starts []time.Duration
	began := time.Now()
	for round := range rounds {
		time.Sleep(300*time.Millisecond + rand.N(700*time.Millisecond))
		h.mu.Lock()
		promised := make(map[int32]int64, partitions)
		for p, o := range h.mu.committed {
			promised[p] = o
		}
		acked, failures := len(h.mu.acked), len(h.mu.failures)
		h.mu.Unlock()
		s.kill()
		took, err := s.start()
		if err != nil {
			stop()
			t.Fatalf("round %d: %v", round, err)
		}
		starts = append(starts, took)
		checkOffsets(t, s.addr, promised, round)
		if failures > 0 || t.Failed() {
			break
		}
		if round%10 == 9 {
			t.Logf("round %d: %d records acknowledged, last start %v", round+1, acked, took.Round(time.Millisecond))
		}
	}
	stop()
	wg.Wait()
	if h.commits.Load() == 0 || h.read.Load() == 0 {
		t.Error("nothing was read and committed: the group's offsets were not tested")
	}
	slices.Sort(starts)
	t.Logf("%d kills in %v: %d records sent, %d acknowledged, %d read by the group in %d acknowledged commits; starts: median %v, longest %v", len(starts),
		time.Since(began).Round(time.Second), len(h.mu.sent), len(h.mu.acked), h.read.Load(), h.commits.Load(), starts[len(starts)/2].Round(time.Millisecond), starts[len(starts)-1].Round(time.Millisecond))
	for _, f := range h.mu.failures[:min(len(h.mu.failures), 20)] {
		t.Error(f)
	}
	checkRecords(t, h, s.addr)
}

// checkOffsets holds the group's offsets against the commits that were acknowledged before the kill.
// It asks over connections of its own: those that a client opened before the kill end in an EOF that looking a coordinator
// up again does not always survive.
func checkOffsets(t *testing.T, addr string, promised map[int32]int64, round int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RetryBackoffFn(soon))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := kadm.NewClient(c).FetchOffsets(ctx, group)
	if err != nil {
		t.Errorf("round %d: the group's offsets: %v", round, err)
		return
	}
	for p, o := range promised {
		if at, ok := got.Lookup(topic, p); !ok || at.At < o {
			t.Errorf("round %d: partition %d of the group is at %d, but %d was acknowledged", round, p, at.At, o)
		}
	}
}

// checkRecords reads everything and holds it against what producers were told: each acknowledged value once, where it was
// said to be; no value twice; each producer's values of a partition in the order of sending.
func checkRecords(t *testing.T, h *history, addr string) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	found := map[string]place{}
	last := map[[2]int]int{} // producer and partition -> number
	problems := 0
	report := func(format string, args ...any) {
		if problems++; problems <= 20 {
			t.Errorf(format, args...)
		}
	}
	for read := int64(0); read < left; {
		f := c.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			t.Fatalf("after %d of %d records: %v", read, left, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			read++
			v := string(r.Value)
			if at, twice := found[v]; twice {
				report("%.20s is twice: %v and %v", v, at, place{r.Partition, r.Offset})
			}
			if !h.mu.sent[v] {
				report("%.20q was never sent", v)
			}
			found[v] = place{r.Partition, r.Offset}
			var id, n int
			fmt.Sscanf(v, "%d-%d-", &id, &n)
			key := [2]int{id, int(r.Partition)}
			if before, ok := last[key]; ok && n <= before {
				report("%d of producer %d comes behind %d in partition %d", n, id, before, r.Partition)
			}
			last[key] = n
		})
	}
	for v, at := range h.mu.acked {
		if found[v] != at {
			report("%.20s was acknowledged at %v and is at %v", v, at, found[v])
		}
	}
	t.Logf("%d records read back, %d acknowledged, %d problems", len(found), len(h.mu.acked), problems)
}
