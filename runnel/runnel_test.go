package runnel

import (
	"context"
	"fmt"
	"testing"
	"time"
	"log/slog"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kadm"
)

func TestSmoke(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	began := time.Now()
	b, err := Start(ctx, Options{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("started in", time.Since(began), b.Bootstrap())
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Bootstrap()), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	r, err := adm.CreateTopics(ctx, 3, 1, nil, "t")
	fmt.Println(r, err)
	for i := range 10 {
		if err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint("v", i))).FirstErr(); err == nil {
			t.Fatal("no topic")
		}
		res := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(fmt.Sprint("v", i))})
		if err := res.FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for n < 10 {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		n += f.NumRecords()
	}
	fmt.Println("consumed", n, time.Since(began))
	began = time.Now()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("closed in", time.Since(began))
}
