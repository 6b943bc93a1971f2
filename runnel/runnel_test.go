package runnel_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"runnel/runnel"
)

// A broker for a test: started in milliseconds, gone when the test ends.
func Example() {
	ctx := context.Background()
	broker, err := runnel.Start(ctx, runnel.Options{})
	if err != nil {
		panic(err)
	}
	defer broker.Close()

	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Bootstrap()), kgo.ConsumeTopics("greetings"), kgo.AllowAutoTopicCreation())
	if err != nil {
		panic(err)
	}
	defer client.Close()

	record := &kgo.Record{Topic: "greetings", Value: []byte("hello")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		panic(err)
	}
	for _, r := range client.PollFetches(ctx).Records() {
		fmt.Printf("%s at offset %d\n", r.Value, r.Offset)
	}
	// Output: hello at offset 0
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, o runnel.Options) *runnel.Node {
	t.Helper()
	n, err := runnel.Start(deadline(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func client(t *testing.T, n *runnel.Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Bootstrap())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func createTopic(t *testing.T, c *kgo.Client, topic string, partitions int32) {
	t.Helper()
	r, err := kadm.NewClient(c).CreateTopic(deadline(t), partitions, 1, nil, topic)
	if err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
}

func produce(t *testing.T, c *kgo.Client, topic string, from, n int) {
	t.Helper()
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", from+i), Value: fmt.Appendf(nil, "v%d", from+i)})
	}
	if err := c.ProduceSync(deadline(t), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// consume reads n records and returns how often each value was seen.
func consume(t *testing.T, c *kgo.Client, n int) map[string]int {
	t.Helper()
	seen := map[string]int{}
	ctx := deadline(t)
	for got := 0; got < n; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++; got++ })
	}
	return seen
}

func TestStartAndCloseLeaveNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t)
	n := start(t, runnel.Options{})
	c := client(t, n, kgo.ConsumeTopics("t"), kgo.ConsumerGroup("g"))
	createTopic(t, c, "t", 3)
	produce(t, c, "t", 0, 10)
	consume(t, c, 10)
	c.Close()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal("a second Close:", err)
	}
}

func TestDirKeepsRecordsOffsetsAndConfigs(t *testing.T) {
	dir := t.TempDir()
	n := start(t, runnel.Options{Dir: dir})
	c := client(t, n, kgo.ConsumeTopics("t"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit())
	createTopic(t, c, "t", 4)
	adm := kadm.NewClient(c)
	retention := "123456"
	if _, err := adm.AlterTopicConfigs(deadline(t), []kadm.AlterConfig{{Name: "retention.ms", Value: &retention}}, "t"); err != nil {
		t.Fatal(err)
	}
	produce(t, c, "t", 0, 100)
	consume(t, c, 100)
	if err := c.CommitUncommittedOffsets(deadline(t)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}

	n = start(t, runnel.Options{Dir: dir})
	defer n.Close()
	c = client(t, n, kgo.ConsumeTopics("t"), kgo.ConsumerGroup("g"))
	defer c.Close()
	produce(t, c, "t", 100, 50)
	seen := consume(t, c, 50)
	for i := 100; i < 150; i++ {
		if seen[fmt.Sprintf("v%d", i)] != 1 {
			t.Errorf("v%d was read %d times after the restart", i, seen[fmt.Sprintf("v%d", i)])
		}
	}
	configs, err := kadm.NewClient(c).DescribeTopicConfigs(deadline(t), "t")
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range configs[0].Configs {
		if cfg.Key == "retention.ms" && cfg.MaybeValue() != retention {
			t.Errorf("retention.ms is %s after the restart", cfg.MaybeValue())
		}
	}
}

func TestTwoNodesShareNothing(t *testing.T) {
	a, b := start(t, runnel.Options{}), start(t, runnel.Options{})
	defer a.Close()
	defer b.Close()
	ca, cb := client(t, a), client(t, b)
	defer ca.Close()
	defer cb.Close()
	createTopic(t, ca, "only-in-a", 1)
	topics, err := kadm.NewClient(cb).ListTopics(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if topics.Has("only-in-a") {
		t.Error("a topic of one node is in the other")
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    runnel.Options
		want string
	}{
		{"misspelt key", runnel.Options{Config: map[string]string{"num.partition": "3"}}, `did you mean "num.partitions"?`},
		{"bad value", runnel.Options{Config: map[string]string{"num.partitions": "0"}}, "num.partitions=0: must be at least 1"},
		{"bad address", runnel.Options{Addr: "127.0.0.1"}, "listeners"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := runnel.Start(deadline(t), tc.o)
			if err == nil {
				n.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want ...%s...", err, tc.want)
			}
		})
	}
}

func TestPortInUseTouchesNothing(t *testing.T) {
	n := start(t, runnel.Options{})
	defer n.Close()
	dir := t.TempDir() + "/data"
	_, err := runnel.Start(deadline(t), runnel.Options{Dir: dir, Addr: n.Bootstrap()})
	if err == nil || !strings.Contains(err.Error(), n.Bootstrap()) {
		t.Fatalf("got %v", err)
	}
	m, err := runnel.Start(deadline(t), runnel.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal("the directory was left unusable:", err)
	}
	m.Close()
}

func TestDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	n := start(t, runnel.Options{Dir: dir})
	defer n.Close()
	_, err := runnel.Start(deadline(t), runnel.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
}

func TestWrongIdentityIsRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, runnel.Options{Dir: dir, Config: map[string]string{"cluster.id": "first-cluster"}}).Close()
	for key, want := range map[string]string{"cluster.id=other": "belong to cluster first-cluster", "node.id=7": "belongs to node 1"} {
		k, v, _ := strings.Cut(key, "=")
		cfg := map[string]string{k: v}
		if k == "node.id" {
			cfg["controller.quorum.voters"] = "7@127.0.0.1:0"
		}
		n, err := runnel.Start(deadline(t), runnel.Options{Dir: dir, Config: cfg})
		if err == nil {
			n.Close()
			t.Fatalf("%s: started", key)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
