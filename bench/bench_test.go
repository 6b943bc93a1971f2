package main

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/record"
	"runnel/runnel"
)

// The loads and what they count, against a node in this process.
func TestLoads(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	n, err := runnel.Start(ctx, runnel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	c, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	if _, err := admin.CreateTopics(ctx, 2, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, "e2e"); err != nil {
		t.Fatal(err)
	}
	sh := shape{record.LZ4, 16, 100}
	produced, err := producing{topic: "t", partitions: 2, shape: sh, connections: 2, depth: 4, each: 40}.run(ctx, n.Bootstrap(), time.Minute)
	if err != nil || produced.requests != 80 || produced.bytes != 80*16*100 {
		t.Fatalf("produced %+v, %v", produced, err)
	}
	ends, err := admin.ListEndOffsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset != 40*16 {
			t.Errorf("partition %d ends at %d", o.Partition, o.Offset)
		}
	})
	consumed, err := consuming{topic: "t", partitions: 2, shape: sh, batches: 40, connections: 2, perFetch: 10}.run(ctx, n.Bootstrap(), 50*time.Millisecond)
	if err != nil || consumed.requests < 2 || consumed.bytes != consumed.requests*10*sh.user() {
		t.Errorf("consumed %+v, %v", consumed, err)
	}
	times, err := endToEnd{topic: "e2e", every: time.Millisecond}.run(ctx, n.Bootstrap(), 100*time.Millisecond)
	if err != nil || len(times) != 100 || times[0] <= 0 {
		t.Errorf("end to end: %d times from %v, %v", len(times), times[:min(1, len(times))], err)
	}
}

// A load that the server refuses is an error, not a fast server.
func TestRefusedLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	n, err := runnel.Start(ctx, runnel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	p := producing{topic: "absent", partitions: 1, shape: shape{record.None, 1, 10}, connections: 1, depth: 1, each: 5}
	if _, err := p.run(ctx, n.Bootstrap(), time.Second); err == nil || !strings.Contains(err.Error(), "UNKNOWN_TOPIC") {
		t.Errorf("producing to no topic gave %v", err)
	}
	l := consuming{topic: "absent", partitions: 1, shape: shape{record.None, 1, 10}, batches: 1, connections: 1, perFetch: 1}
	if _, err := l.run(ctx, n.Bootstrap(), time.Second); err == nil {
		t.Error("consuming no topic gave no error")
	}
}

// The positions that the generator patches and reads are those of the encoding.
func TestPositions(t *testing.T) {
	const topic = "some-topic"
	frame, at := fetchFrame(topic, 3, 1, 1, time.Second)
	be.PutUint64(frame[at:], 42)
	q := kmsg.NewPtrFetchRequest()
	q.Version = fetchVersion
	body := frame[4+2+2+4+2+len("bench")+1:]
	if err := q.ReadFrom(body); err != nil || q.Topics[0].Partitions[0].FetchOffset != 42 || q.Topics[0].Partitions[0].Partition != 3 {
		t.Errorf("%v %+v", err, q)
	}
	a := kmsg.NewPtrFetchResponse()
	a.Version = fetchVersion
	p := kmsg.NewFetchResponseTopicPartition()
	p.ErrorCode, p.RecordBatches = 77, make([]byte, 300)
	ft := kmsg.NewFetchResponseTopic()
	ft.Topic, ft.Partitions = topic, append(ft.Partitions, p)
	a.Topics = append(a.Topics, ft)
	out := headed(a)
	if be.Uint16(out[fetchErrorAt(topic):]) != 77 || len(out)-fetchHead(topic) != 2+300+3 {
		t.Errorf("the head of a fetch is %d of %d bytes", fetchHead(topic), len(out))
	}
	r := kmsg.NewPtrProduceResponse()
	r.Version = produceVersion
	pp := kmsg.NewProduceResponseTopicPartition()
	pp.ErrorCode = 77
	pt := kmsg.NewProduceResponseTopic()
	pt.Topic, pt.Partitions = topic, append(pt.Partitions, pp)
	r.Topics = append(r.Topics, pt)
	if out := headed(r); be.Uint16(out[produceErrorAt(topic):]) != 77 {
		t.Error("the error of a produce is elsewhere")
	}
}

func TestVerdicts(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		bar           *bar
		kafka, runnel float64
		want          string
	}{
		{nil, 1, 1, ""}, {atMost(0.5), 2, 1, "met"}, {atMost(0.5), 2, 1.1, "missed"}, {atMost(0.5), nan, 1, ""},
		{atLeast(10), 1, 11, "met"}, {atLeast(10), 1, 9, "missed"}, {below(5), nan, 4, "met"}, {below(5), 100, 6, "missed"}, {below(5), 1, nan, ""},
	} {
		r := row{bar: c.bar, values: map[string][]float64{}}
		for name, v := range map[string]float64{"kafka": c.kafka, "runnel": c.runnel} {
			if !math.IsNaN(v) {
				r.values[name] = []float64{v}
			}
		}
		if got := r.verdict(); got != c.want {
			t.Errorf("%v of %v and %v: %q, want %q", c.bar, c.kafka, c.runnel, got, c.want)
		}
	}
	var tb table
	for _, v := range []float64{3, 1, 2} {
		tb.add("runnel", "x", "s", nil, v)
	}
	if got := tb.rows[0].value("runnel"); got != 2 {
		t.Errorf("the middle of 3, 1, 2 is %v", got)
	}
	for v, want := range map[float64]string{0: "0", 1234: "1234", 12.345: "12.3", 0.012345: "0.0123", -3.21: "-3.21", nan: ""} {
		if got := figure(v); got != want {
			t.Errorf("%v prints as %q, want %q", v, got, want)
		}
	}
}
