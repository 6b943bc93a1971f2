package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/config"
	"runnel/internal/kit/vfs"
	"runnel/internal/node"
)

// syncBuffer is a log that tests read while the node writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

type options struct {
	fs     vfs.FS
	config map[string]string
	log    *syncBuffer
	fatal  func(error)
}

func start(t *testing.T, o options) *node.Node {
	t.Helper()
	n, err := tryStart(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tryStart(t *testing.T, o options) (*node.Node, error) {
	t.Helper()
	p := config.LoneNode("/data", "127.0.0.1:0", "127.0.0.1:0")
	for k, v := range o.config {
		p.Set(k, v, "test")
	}
	if _, _, err := p.Check(false); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(p)
	if err != nil {
		t.Fatal(err)
	}
	no := node.Options{Config: c, FS: o.fs, Fatal: o.fatal}
	if o.log != nil {
		no.Log = slog.New(slog.NewTextHandler(o.log, nil))
	}
	return node.Start(deadline(t), no)
}

func connect(t *testing.T, n *node.Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Bootstrap()), kgo.RecordDeliveryTimeout(20 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func create(t *testing.T, c *kgo.Client, topic string, partitions int32) {
	t.Helper()
	if r, err := kadm.NewClient(c).CreateTopic(deadline(t), partitions, 1, nil, topic); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
}

// read collects everything in a topic by offset and partition.
func read(t *testing.T, n *node.Node, topic string) map[string]string {
	t.Helper()
	c := connect(t, n, kgo.ConsumeTopics(topic))
	ends, err := kadm.NewClient(c).ListEndOffsets(deadline(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	ends.Each(func(o kadm.ListedOffset) { want += o.Offset })
	out := map[string]string{}
	for int64(len(out)) < want {
		f := c.PollFetches(deadline(t))
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) { out[fmt.Sprintf("%d@%d", r.Partition, r.Offset)] = string(r.Value) })
	}
	return out
}

// A killed process loses nothing that it acknowledged, round after round, and a group
// goes on where it was.
func TestKilledNodeKeepsWhatItAcknowledged(t *testing.T) {
	fs := vfs.NewMem()
	acked := map[string]bool{}
	for round := range 5 {
		n := start(t, options{fs: fs})
		c := connect(t, n, kgo.ProducerBatchMaxBytes(600))
		if round == 0 {
			create(t, c, "t", 3)
		}
		var mu sync.Mutex
		for i := range 200 {
			v := fmt.Sprintf("%d-%d", round, i)
			c.Produce(context.Background(), &kgo.Record{Topic: "t", Key: []byte(v), Value: []byte(v)}, func(_ *kgo.Record, err error) {
				if err == nil {
					mu.Lock()
					acked[v] = true
					mu.Unlock()
				}
			})
		}
		if round%2 == 0 {
			if err := c.Flush(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
		n.Abandon()
		c.Close()
	}
	n := start(t, options{fs: fs})
	defer n.Close(deadline(t))
	count := map[string]int{}
	for _, v := range read(t, n, "t") {
		count[v]++
	}
	for v := range acked {
		if count[v] != 1 {
			t.Errorf("acknowledged record %s is there %d times", v, count[v])
		}
	}
}

// Power loss: with flush.messages=1 an acknowledged record is on the disk.
func TestPowerLossKeepsWhatWasSynced(t *testing.T) {
	for seed := range uint64(4) {
		fs := vfs.NewMem()
		n := start(t, options{fs: fs, config: map[string]string{"log.flush.interval.messages": "1"}})
		c := connect(t, n, kgo.ProducerBatchMaxBytes(600))
		create(t, c, "t", 2)
		var acked []string
		for i := range 40 {
			v := fmt.Sprintf("v%d", i)
			if err := c.ProduceSync(deadline(t), &kgo.Record{Topic: "t", Key: []byte(v), Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			acked = append(acked, v)
		}
		after := fs.Crash(rand.New(rand.NewPCG(seed, 1)))
		n.Abandon()
		c.Close()
		n = start(t, options{fs: after})
		seen := map[string]int{}
		for _, v := range read(t, n, "t") {
			seen[v]++
		}
		for _, v := range acked {
			if seen[v] != 1 {
				t.Errorf("seed %d: synced record %s is there %d times", seed, v, seen[v])
			}
		}
		n.Close(deadline(t))
	}
}

// A full disk refuses appends with an error, goes on serving, and heals by itself (B89).
func TestFullDiskRefusesAndHeals(t *testing.T) {
	log := &syncBuffer{}
	fs := vfs.NewFault(vfs.NewMem())
	n := start(t, options{fs: fs, log: log})
	defer n.Close(deadline(t))
	c := connect(t, n, kgo.RequestRetries(0), kgo.RecordRetries(0), kgo.DisableIdempotentWrite())
	create(t, c, "t", 1)
	record := func() error {
		return c.ProduceSync(deadline(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr()
	}
	if err := record(); err != nil {
		t.Fatal(err)
	}
	fs.SetSpace(&vfs.Space{Total: 1 << 30, Free: 1 << 20})
	awaitErr(t, record, kerr.KafkaStorageError)
	if got := read(t, n, "t"); len(got) < 1 {
		t.Error("reads stopped with the appends")
	}
	if !strings.Contains(log.String(), "runnel.log.dir.min.free.bytes") {
		t.Error("the log does not name the key")
	}
	fs.SetSpace(&vfs.Space{Total: 1 << 30, Free: 1 << 29})
	awaitErr(t, record, nil)
}

// awaitErr repeats f until its error is want; the free space is looked at every 200 ms.
func awaitErr(t *testing.T, f func() error, want error) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		err := f()
		if want == nil && err == nil || want != nil && errors.Is(err, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still %v, want %v", err, want)
		}
	}
}

// One of two directories fails: its partitions are offline, the others serve on.
func TestOneDirectoryFails(t *testing.T) {
	log := &syncBuffer{}
	fs := vfs.NewFault(vfs.NewMem())
	n := start(t, options{fs: fs, log: log, config: map[string]string{"log.dirs": "/a,/b"}})
	defer n.Close(deadline(t))
	c := connect(t, n, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
	create(t, c, "t", 8)
	fs.Script(vfs.FailWhen(func(op vfs.Op) bool { return strings.HasPrefix(op.Name, "/b/") }, syscall.EIO))
	ok, offline := 0, 0
	for p := range int32(8) {
		err := c.ProduceSync(deadline(t), &kgo.Record{Topic: "t", Partition: p, Value: []byte("x")}).FirstErr()
		if err == nil {
			ok++
		} else {
			offline++
		}
	}
	if ok != 4 || offline != 4 {
		t.Errorf("%d partitions serve and %d do not; want 4 and 4", ok, offline)
	}
	if !strings.Contains(log.String(), "log directory is offline") || !strings.Contains(log.String(), "/b") {
		t.Errorf("the log does not name the directory: %s", log)
	}
}

// Replicas are sent to and fro between directories, faster than they arrive, while they
// are written to, trimmed, deleted and made again: every one of them goes on serving and
// has what was acknowledged.
func TestMovesAtAnyMoment(t *testing.T) {
	log := &syncBuffer{}
	n := start(t, options{fs: vfs.NewMem(), log: log, config: map[string]string{"log.dirs": "/a,/b", "log.segment.bytes": "1048576"}})
	defer n.Close(deadline(t))
	c := connect(t, n, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	admin := kadm.NewClient(c)
	create(t, c, "t", 2)
	create(t, c, "again", 2)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	every := func(f func(turn int)) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		})
	}
	for i := range 2 { // two clients that disagree
		every(func(turn int) {
			var to kadm.AlterReplicaLogDirsReq
			to.Add([]string{"/a", "/b"}[(turn+i)%2], kadm.TopicsSet{"t": {0: {}, 1: {}}, "again": {0: {}, 1: {}}})
			admin.AlterAllReplicaLogDirs(deadline(t), to)
		})
	}
	every(func(turn int) {
		admin.DeleteTopic(deadline(t), "again")
		admin.CreateTopic(deadline(t), 2, 1, nil, "again")
	})
	every(func(turn int) {
		var offsets kadm.Offsets
		offsets.AddOffset("t", 1, int64(turn), -1)
		admin.DeleteRecords(deadline(t), offsets)
	})
	for _, p := range []int32{0, 1} { // readers notice nothing
		every(func(int) {
			req := kmsg.NewPtrListOffsetsRequest()
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = "t"
			part := kmsg.NewListOffsetsRequestTopicPartition()
			part.Partition, part.Timestamp = p, 1
			topic.Partitions = append(topic.Partitions, part)
			req.Topics = append(req.Topics, topic)
			r, err := req.RequestWith(deadline(t), c)
			if err != nil || r.Topics[0].Partitions[0].ErrorCode != 0 {
				t.Errorf("looking for a time in t-%d: %v, %+v", p, err, r)
			}
		})
		every(func(int) {
			r := connect(t, n, kgo.KeepRetryableFetchErrors(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {p: kgo.NewOffset().AtStart()}}))
			defer r.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			for ctx.Err() == nil {
				r.PollFetches(ctx).EachError(func(topic string, p int32, err error) {
					if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, kerr.OffsetOutOfRange) {
						t.Errorf("reading %s-%d: %v", topic, p, err)
					}
				})
			}
		})
	}
	for i := range 150 {
		var records []*kgo.Record
		for j := range 6 {
			records = append(records, &kgo.Record{Topic: "t", Partition: int32(j % 2), Value: fmt.Appendf(nil, "%d", 3*i+j/2)})
		}
		if err := c.ProduceSync(deadline(t), records...).FirstErr(); err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
	}
	close(stop)
	wg.Wait()
	for p := range int32(2) {
		if err := c.ProduceSync(deadline(t), &kgo.Record{Topic: "again", Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
			t.Errorf("again-%d: %v", p, err)
		}
	}
	starts, err := admin.ListStartOffsets(deadline(t), "t")
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(2) {
		from, _ := starts.Lookup("t", p)
		r := connect(t, n, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {p: kgo.NewOffset().At(from.Offset)}}))
		for want := from.Offset; want < 450; {
			f := r.PollFetches(deadline(t))
			if err := f.Err(); err != nil {
				t.Fatalf("t-%d: %v", p, err)
			}
			f.EachRecord(func(got *kgo.Record) {
				if got.Offset != want || string(got.Value) != strconv.FormatInt(want, 10) {
					t.Fatalf("t-%d: %q at %d, want %d", p, got.Value, got.Offset, want)
				}
				want++
			})
		}
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("%s", log)
	}
}

// The metadata directory fails: the node ends, with a clear error.
func TestMetadataDirectoryFails(t *testing.T) {
	fs := vfs.NewFault(vfs.NewMem())
	died := make(chan error, 1)
	n := start(t, options{fs: fs, fatal: func(err error) { died <- err }})
	c := connect(t, n, kgo.RequestRetries(0))
	fs.Script(vfs.FailFrom(1, syscall.EIO))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, "t")
	select {
	case err := <-died:
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("died of %v", err)
		}
	case <-deadline(t).Done():
		t.Fatal("the node lives on without its metadata")
	}
	<-n.Done()
	if n.Err() == nil {
		t.Error("Err is nil")
	}
}

// A start that the disk fails at any operation either succeeds or says why, and leaves
// nothing that keeps the next one from starting.
func TestStartSurvivesAFailureAtAnyOperation(t *testing.T) {
	for at := 1; ; at += 3 {
		mem := vfs.NewMem()
		fs := vfs.NewFault(mem)
		fs.Script(vfs.FailNth(at, syscall.EIO))
		began := time.Now()
		n, err := tryStart(t, options{fs: fs})
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("a failure at operation %d made the start wait %v: %v", at, d, err)
		}
		count := fs.Count()
		if err == nil {
			n.Close(deadline(t))
		}
		fs.Script()
		n, err = tryStart(t, options{fs: mem})
		if err != nil {
			t.Fatalf("after a failure at operation %d: %v", at, err)
		}
		n.Close(deadline(t))
		if at > count {
			return
		}
	}
}
