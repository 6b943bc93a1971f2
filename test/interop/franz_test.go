//go:build interop

package interop

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFranz makes the journey with franz-go: all codecs, two members that share, commits that a successor goes on from.
func TestFranz(t *testing.T) {
	ctx := limited(t, time.Minute)
	b := broker(t)
	open := func(opts ...kgo.Opt) *kgo.Client {
		c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Addr), kgo.DefaultProduceTopic("journey"))...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	admin := open()
	defer admin.Close()
	if r, err := kadm.NewClient(admin).CreateTopic(ctx, 4, 1, nil, "journey"); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		c := open(kgo.ProducerBatchCompression(codec))
		for n := range 200 {
			c.Produce(ctx, &kgo.Record{Key: fmt.Appendf(nil, "%d", n), Value: fmt.Appendf(nil, "%d-%d", i, n)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		c.Flush(ctx)
		c.Close()
	}
	seen := map[string]int{}
	counts := [2]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	total := 200 * len(codecs)
	for m := range 2 {
		wg.Go(func() {
			c := open(kgo.ConsumerGroup("travellers"), kgo.ConsumeTopics("journey"), kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll())
			defer c.Close()
			for ctx.Err() == nil {
				mu.Lock()
				done := len(seen) >= total
				mu.Unlock()
				if done {
					if err := c.CommitMarkedOffsets(ctx); err != nil {
						t.Error(err)
					}
					return
				}
				poll := c.PollRecords(limited(t, 500*time.Millisecond), 50)
				mu.Lock()
				poll.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++; counts[m]++; c.MarkCommitRecords(r) })
				mu.Unlock()
				c.AllowRebalance()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	if len(seen) != total {
		t.Fatalf("%d of %d values were read", len(seen), total)
	}
	next := open(kgo.ConsumerGroup("travellers"), kgo.ConsumeTopics("journey"))
	defer next.Close()
	admin.ProduceSync(ctx, &kgo.Record{Value: []byte("later")})
	f := next.PollFetches(ctx)
	if rs := f.Records(); len(rs) != 1 || string(rs[0].Value) != "later" {
		t.Errorf("the group goes on with %d records: %v", len(rs), f.Errors())
	}
}
