package data

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
	"runnel/internal/repl/replica"
	"runnel/internal/serve/api"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/logstore"
	"runnel/internal/wire"
)

// broker is the record handlers over real logs in memory, without sockets.
type broker struct {
	t     *testing.T
	data  *Data
	table *replica.Table
	img   *image.Image
	store *logstore.Store
	rng   *rand.Rand
}

var topicID = ids.UUID{9: 7}

func newBroker(t *testing.T, slots int, overrides map[string]string) *broker {
	fs := vfs.NewMem()
	rng := rand.New(rand.NewPCG(1, 2))
	fs.MkdirAll("/d")
	if err := logstore.Format(fs, "/d", checkpoint.MetaProperties{Version: 1, ClusterID: "c", NodeID: 1, DirectoryID: ids.UUID{1: 1}}); err != nil {
		t.Fatal(err)
	}
	layers := &config.Layers{}
	b := &broker{t: t, img: image.Empty(), rng: rng}
	var err error
	b.store, _, err = logstore.Open(context.Background(), logstore.Options{
		FS: fs, Dirs: []string{"/d"}, ClusterID: "c", NodeID: 1, Config: func(string) *config.Log { return layers.Topic(overrides) },
		Now: time.Now, Random: rng.Uint64, ProducerExpiryMs: 86400000,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.table = replica.New(replica.Options{NodeID: 1, Store: b.store, Layers: func() *config.Layers { return layers }, MaxDecompressed: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	records := []metarec.Record{&metarec.Topic{Name: "t", TopicID: topicID}}
	for p := range int32(3) {
		records = append(records, &metarec.Partition{PartitionID: p, TopicID: topicID, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1})
	}
	for k, v := range overrides {
		records = append(records, &metarec.Config{ResourceType: image.TopicConfig, ResourceName: "t", Name: k, Value: &v})
	}
	img, delta, err := b.img.Apply(records, int64(len(records)), 0)
	if err != nil {
		t.Fatal(err)
	}
	b.img = img
	b.table.Apply(img, delta)
	b.data = New(Options{NodeID: 1, Image: func() *image.Image { return b.img }, Replicas: b.table, Now: time.Now, Random: rng.Uint64, FetchMax: 50 << 20, SessionSlots: slots})
	t.Cleanup(func() { b.store.Close(-1) })
	return b
}

func (b *broker) request(body kmsg.Request, version int16) *api.Request {
	body.SetVersion(version)
	return &api.Request{Header: wire.Header{Key: body.Key(), Version: version}, Body: body}
}

// produce appends one batch of n records of size bytes and gives its answer.
func (b *broker) produce(partition int32, n, size int, change func(*record.Builder)) kmsg.ProduceResponseTopicPartition {
	b.t.Helper()
	nb := record.Builder{Timestamp: time.Now().UnixMilli()}
	if change != nil {
		change(&nb)
	}
	for i := range n {
		nb.Add(fmt.Appendf(nil, "k%d", i), bytes.Repeat([]byte{'v'}, size))
	}
	return b.send(partition, nb.Build(), 9)
}

func (b *broker) send(partition int32, batch []byte, version int16) kmsg.ProduceResponseTopicPartition {
	b.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 1000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rt.Topic, rp.Partition, rp.Records = "t", partition, batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	reply := b.data.produce(context.Background(), b.request(req, version))
	if reply.Body == nil {
		b.t.Fatalf("no answer: %+v", reply)
	}
	return reply.Body.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

type ask struct {
	session, epoch int32
	maxWait        int32
	minBytes       int32
	maxBytes       int32
	parts          map[int32]int64 // offset by partition
	partMax        int32
	forget         []int32
	isolation      int8
}

func (b *broker) fetch(a ask) *wire.FetchResponse {
	b.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.SessionID, req.SessionEpoch, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = a.session, a.epoch, a.maxWait, a.minBytes, 1<<20, a.isolation
	if a.maxBytes > 0 {
		req.MaxBytes = a.maxBytes
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic = "t"
	var order []int32
	for p := range a.parts {
		order = append(order, p)
	}
	slices.Sort(order)
	for _, p := range order {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, a.parts[p], 1<<20
		if a.partMax > 0 {
			rp.PartitionMaxBytes = a.partMax
		}
		t.Partitions = append(t.Partitions, rp)
	}
	if len(t.Partitions) > 0 {
		req.Topics = append(req.Topics, t)
	}
	if len(a.forget) > 0 {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.Partitions = "t", a.forget
		req.ForgottenTopics = append(req.ForgottenTopics, f)
	}
	reply := b.data.fetch(context.Background(), b.request(req, 11))
	b.t.Cleanup(reply.Release)
	return reply.Fetch
}

func parts(r *wire.FetchResponse) map[int32]*wire.FetchPartition {
	out := map[int32]*wire.FetchPartition{}
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			out[r.Topics[i].Partitions[j].Index] = &r.Topics[i].Partitions[j]
		}
	}
	return out
}

func offsets(t *testing.T, p *wire.FetchPartition) []int64 {
	t.Helper()
	raw, err := p.Records.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []int64
	for len(raw) > 0 {
		batch, rest, err := record.Next(raw)
		if err != nil {
			break // a batch cut at the limit
		}
		out = append(out, batch.BaseOffset())
		raw = rest
	}
	return out
}

func TestFetchInsideABatch(t *testing.T) { // B34
	b := newBroker(t, 10, nil)
	b.produce(0, 2, 10, nil)
	b.produce(0, 2, 10, nil)
	for offset, want := range map[int64][]int64{0: {0, 2}, 1: {0, 2}, 2: {2}, 3: {2}, 4: nil} {
		p := parts(b.fetch(ask{epoch: -1, parts: map[int32]int64{0: offset}}))[0]
		if got := offsets(t, p); !slices.Equal(got, want) || p.HighWatermark != 4 {
			t.Errorf("fetch at %d gives batches %v, want %v", offset, got, want)
		}
	}
	if p := parts(b.fetch(ask{epoch: -1, parts: map[int32]int64{0: 5}}))[0]; p.ErrorCode != kerr.OffsetOutOfRange.Code || p.HighWatermark != -1 {
		t.Errorf("beyond the end: %+v", p)
	}
}

func TestFirstBatchLargerThanTheLimits(t *testing.T) { // B36
	b := newBroker(t, 10, nil)
	b.produce(0, 1, 5000, nil)
	b.produce(1, 1, 5000, nil)
	got := parts(b.fetch(ask{epoch: -1, maxBytes: 1, partMax: 1, parts: map[int32]int64{0: 0, 1: 0, 2: 0}}))
	if got[0].Records.Len < 5000 || got[1].Records.Len != 0 || got[1].HighWatermark != 1 {
		t.Errorf("lengths %d and %d, high watermark %d", got[0].Records.Len, got[1].Records.Len, got[1].HighWatermark)
	}
}

func TestLongPollWakesOnAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, 10, nil)
		for _, session := range []bool{false, true} {
			epoch := int32(-1)
			if session {
				epoch = 0
			}
			at := b.table.Get(ids.TopicPartition{Topic: "t"}).End()
			began := time.Now()
			done := make(chan *wire.FetchResponse, 1)
			go func() {
				done <- b.fetch(ask{epoch: epoch, maxWait: 5000, minBytes: 1, parts: map[int32]int64{0: at, 1: 0}})
			}()
			time.Sleep(time.Second)
			b.produce(0, 1, 10, nil)
			r := <-done
			if d := time.Since(began); d != time.Second {
				t.Errorf("session %v: the poll came back after %v", session, d)
			}
			if p := parts(r)[0]; p.Records.Len == 0 {
				t.Errorf("session %v: no records", session)
			}
		}
		// Nothing comes: the answer leaves when the wait is over.
		began := time.Now()
		b.fetch(ask{epoch: -1, maxWait: 700, minBytes: 1, parts: map[int32]int64{2: 0}})
		if d := time.Since(began); d != 700*time.Millisecond {
			t.Errorf("an idle poll took %v", d)
		}
		// min bytes: one small batch is not enough, a second one is.
		done := make(chan *wire.FetchResponse, 1)
		go func() { done <- b.fetch(ask{epoch: -1, maxWait: 60000, minBytes: 250, parts: map[int32]int64{2: 0}}) }()
		b.produce(2, 1, 100, nil)
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("answered below min bytes")
		default:
		}
		b.produce(2, 1, 100, nil)
		if got := offsets(t, parts(<-done)[2]); !slices.Equal(got, []int64{0, 1}) {
			t.Errorf("batches %v", got)
		}
	})
}

func TestSessionsAnswerOnlyNews(t *testing.T) { // KIP-227
	b := newBroker(t, 10, nil)
	b.produce(0, 1, 10, nil)
	r := b.fetch(ask{epoch: 0, parts: map[int32]int64{0: 0, 1: 0, 2: 0}})
	if r.SessionID == 0 || len(parts(r)) != 3 {
		t.Fatalf("session %d, %d partitions", r.SessionID, len(parts(r)))
	}
	id := r.SessionID
	// The client moves on in partition 0; nothing is new.
	r = b.fetch(ask{session: id, epoch: 1, parts: map[int32]int64{0: 1}})
	if len(parts(r)) != 0 || r.SessionID != id {
		t.Fatalf("news where there is none: %v", parts(r))
	}
	b.produce(2, 1, 10, nil)
	r = b.fetch(ask{session: id, epoch: 2})
	if p := parts(r); len(p) != 1 || p[2] == nil || p[2].Records.Len == 0 {
		t.Fatalf("got %v", p)
	}
	// Not named and not consumed: it is given again.
	r = b.fetch(ask{session: id, epoch: 3})
	if p := parts(r); len(p) != 1 || p[2] == nil {
		t.Fatalf("got %v", p)
	}
	r = b.fetch(ask{session: id, epoch: 4, forget: []int32{2}})
	if len(parts(r)) != 0 {
		t.Fatalf("a forgotten partition is answered: %v", parts(r))
	}
	// An error is told each time.
	r = b.fetch(ask{session: id, epoch: 5, parts: map[int32]int64{0: 99}})
	if p := parts(r)[0]; p == nil || p.ErrorCode != kerr.OffsetOutOfRange.Code {
		t.Fatalf("got %v", parts(r))
	}
	r = b.fetch(ask{session: id, epoch: 6})
	if p := parts(r)[0]; p == nil || p.ErrorCode != kerr.OffsetOutOfRange.Code {
		t.Fatalf("the error is not told again: %v", parts(r))
	}
}

func TestSessionErrors(t *testing.T) { // B39
	b := newBroker(t, 2, nil)
	all := map[int32]int64{0: 0, 1: 0}
	if r := b.fetch(ask{epoch: -1, parts: all}); r.SessionID != 0 {
		t.Error("a sessionless fetch made a session")
	}
	first := b.fetch(ask{epoch: 0, parts: all}).SessionID
	second := b.fetch(ask{epoch: 0, parts: all}).SessionID
	if first == 0 || second == 0 || first == second {
		t.Fatalf("sessions %d and %d", first, second)
	}
	// Both are young and as large: no room, and the client goes on without.
	if r := b.fetch(ask{epoch: 0, parts: map[int32]int64{0: 0}}); r.SessionID != 0 || r.ErrorCode != 0 {
		t.Errorf("session %d error %d", r.SessionID, r.ErrorCode)
	}
	for _, tc := range []struct {
		session, epoch int32
		want           *kerr.Error
	}{{first + 12345, 1, kerr.FetchSessionIDNotFound}, {first, 7, kerr.InvalidFetchSessionEpoch}, {0, 3, kerr.FetchSessionIDNotFound}} {
		if r := b.fetch(ask{session: tc.session, epoch: tc.epoch}); r.ErrorCode != tc.want.Code {
			t.Errorf("session %d epoch %d: error %d, want %s", tc.session, tc.epoch, r.ErrorCode, tc.want.Message)
		}
	}
	if r := b.fetch(ask{session: first, epoch: -1, parts: all}); r.SessionID != 0 || len(parts(r)) != 2 {
		t.Error("closing a session answers as a full fetch")
	}
	if r := b.fetch(ask{session: first, epoch: 1}); r.ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("a closed session answers with %d", r.ErrorCode)
	}
	if n, _ := b.data.Sessions(); n != 1 {
		t.Errorf("%d sessions are left", n)
	}
}

func TestSessionEpochWraps(t *testing.T) {
	if nextEpoch(2147483647) != 1 || nextEpoch(1) != 2 {
		t.Error("the epoch after the largest is 1")
	}
}

func TestProduceRefusals(t *testing.T) {
	b := newBroker(t, 10, map[string]string{"max.message.bytes": "1000", "cleanup.policy": "compact"})
	good := b.produce(0, 1, 10, nil)
	if good.ErrorCode != 0 || good.BaseOffset != 0 {
		t.Fatalf("%+v", good)
	}
	if r := b.produce(0, 1, 2000, nil); r.ErrorCode != kerr.MessageTooLarge.Code || r.BaseOffset != -1 { // B10
		t.Errorf("too large: %+v", r)
	}
	nb := record.Builder{Timestamp: time.Now().UnixMilli()}
	nb.Add(nil, []byte("x"))
	if r := b.send(0, nb.Build(), 9); r.ErrorCode != kerr.InvalidRecord.Code || len(r.ErrorRecords) != 1 { // B16
		t.Errorf("keyless: %+v", r)
	}
	if r := b.produce(7, 1, 10, nil); r.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("unknown partition: %+v", r)
	}
	if r := b.send(0, nil, 9); r.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("null records: %+v", r)
	}
	if r := b.produce(0, 1, 10, func(nb *record.Builder) { nb.Codec = record.Zstd }); r.ErrorCode != 0 {
		t.Errorf("zstd: %+v", r)
	}
	old := record.Builder{Codec: record.Zstd, Timestamp: time.Now().UnixMilli()}
	old.Add([]byte("k"), nil)
	if r := b.send(0, old.Build(), 6); r.ErrorCode != kerr.UnsupportedCompressionType.Code { // B13
		t.Errorf("zstd in v6: %+v", r)
	}
	if end := b.table.Get(ids.TopicPartition{Topic: "t"}).End(); end != 2 {
		t.Errorf("the log ends at %d: something refused was appended", end)
	}
}

func TestIdempotence(t *testing.T) { // B21, B23
	b := newBroker(t, 10, nil)
	batch := func(seq int32) kmsg.ProduceResponseTopicPartition {
		return b.produce(0, 1, 10, func(nb *record.Builder) { nb.HasProducer, nb.ProducerID, nb.BaseSequence = true, 77, seq })
	}
	for seq := range int32(6) {
		if r := batch(seq); r.ErrorCode != 0 || r.BaseOffset != int64(seq) {
			t.Fatalf("sequence %d: %+v", seq, r)
		}
	}
	for seq := int32(1); seq < 6; seq++ {
		if r := batch(seq); r.ErrorCode != 0 || r.BaseOffset != int64(seq) {
			t.Errorf("duplicate %d: %+v", seq, r)
		}
	}
	for _, seq := range []int32{0, 7} { // older than the window; a gap
		if r := batch(seq); r.ErrorCode != kerr.OutOfOrderSequenceNumber.Code {
			t.Errorf("sequence %d: %+v", seq, r)
		}
	}
	if r := b.produce(0, 1, 10, func(nb *record.Builder) { nb.HasProducer, nb.ProducerID, nb.BaseSequence = true, 78, 4711 }); r.ErrorCode != 0 {
		t.Errorf("a producer without state starts anywhere: %+v", r)
	}
	if end := b.table.Get(ids.TopicPartition{Topic: "t"}).End(); end != 7 {
		t.Errorf("the log ends at %d", end)
	}
}

func TestAcksZeroSaysNothing(t *testing.T) { // B19
	b := newBroker(t, 10, nil)
	req := kmsg.NewPtrProduceRequest()
	req.Acks = 0
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	nb := record.Builder{Timestamp: time.Now().UnixMilli()}
	nb.Add(nil, []byte("x"))
	rt.Topic, rp.Records = "t", nb.Build()
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	if r := b.data.produce(context.Background(), b.request(req, 9)); !r.None || r.Body != nil {
		t.Errorf("%+v", r)
	}
	req.Topics[0].Topic = "missing"
	if r := b.data.produce(context.Background(), b.request(req, 9)); r.Close == nil {
		t.Error("an error with acks=0 must close the connection")
	}
}

func TestListOffsetsByTime(t *testing.T) { // B46, B48
	b := newBroker(t, 10, nil)
	base := time.Now().UnixMilli() - 1000
	nb := record.Builder{Timestamp: base}
	for _, d := range []int64{10, 30, 20} {
		nb.AddAt(base+d, []byte("k"), []byte("v"))
	}
	b.send(0, nb.Build(), 9)
	ask := func(ts int64) kmsg.ListOffsetsResponseTopicPartition {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		rt.Topic, rp.Timestamp = "t", ts
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return b.data.listOffsets(context.Background(), b.request(req, 11)).Body.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	}
	for _, tc := range []struct{ ts, offset, when int64 }{
		{base + 5, 0, base + 10}, {base + 10, 0, base + 10}, {base + 11, 1, base + 30}, {base + 25, 1, base + 30}, {base + 31, -1, -1},
		{-1, 3, -1}, {-2, 0, -1}, {-3, 1, base + 30}, {-4, 0, -1}, {-5, -1, -1}, {-6, -1, -1},
	} {
		if r := ask(tc.ts); r.ErrorCode != 0 || r.Offset != tc.offset || r.Timestamp != tc.when {
			t.Errorf("time %d: offset %d at %d (error %d), want %d at %d", tc.ts-base, r.Offset, r.Timestamp-base, r.ErrorCode, tc.offset, tc.when-base)
		}
	}
	if r := ask(-7); r.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Errorf("-7: %+v", r)
	}
}

func TestDeleteRecords(t *testing.T) { // B51
	b := newBroker(t, 10, nil)
	for range 10 {
		b.produce(0, 10, 10, nil)
	}
	del := func(offset int64) (int64, int16) {
		req := kmsg.NewPtrDeleteRecordsRequest()
		rt, rp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
		rt.Topic, rp.Offset = "t", offset
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		p := b.data.deleteRecords(context.Background(), b.request(req, 2)).Body.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
		return p.LowWatermark, p.ErrorCode
	}
	for _, tc := range []struct {
		offset, low int64
		code        int16
	}{{50, 50, 0}, {50, 50, 0}, {10, 50, 0}, {101, -1, 1}, {-5, -1, 1}, {-1, 100, 0}} {
		if low, code := del(tc.offset); low != tc.low || code != tc.code {
			t.Errorf("delete to %d: low %d error %d, want %d and %d", tc.offset, low, code, tc.low, tc.code)
		}
	}
}
