package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/meta/image"
	"runnel/internal/store/commitlog"
)

var tp = ids.TopicPartition{Topic: "t", Partition: 0}

func openLog(t *testing.T, fs vfs.FS, conf *config.Log) *commitlog.Log {
	t.Helper()
	if err := fs.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	log, _, err := commitlog.Open(commitlog.Options{
		FS: fs, Dir: "/d/t-0", TP: tp, TopicID: ids.UUID{1}, Config: conf, Now: time.Now, Random: func() uint64 { return 0 }, ProducerExpiryMs: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func newPartition(t *testing.T, conf *config.Log) (*Partition, *commitlog.Log) {
	t.Helper()
	p := New(Options{TP: tp, TopicID: ids.UUID{1}, NodeID: 1, Config: conf, MaxDecompressed: 1 << 20, Admit: func(*commitlog.Log) error { return nil }})
	return p, openLog(t, vfs.NewMem(), conf)
}

func batch() record.Batch {
	b := record.Builder{Timestamp: time.Now().UnixMilli()}
	b.Add([]byte("k"), []byte("v"))
	return b.Build()
}

func want(leader, epoch, partitionEpoch int32, isr ...int32) *image.Partition {
	return &image.Partition{Replicas: []int32{1, 2, 3}, ISR: isr, Leader: leader, LeaderEpoch: epoch, PartitionEpoch: partitionEpoch}
}

func (p *Partition) mustProduce(t *testing.T, acksAll bool) Appended {
	t.Helper()
	a, _, err := p.Produce(batch(), acksAll, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The high watermark is the smallest end of the in-sync set, stands still below
// min.insync.replicas, and never goes back.
func TestHighWatermarkRules(t *testing.T) {
	conf := config.DefaultLog()
	conf.MinInsyncReplicas = 2
	p, log := newPartition(t, conf)
	if err := p.Apply(log, want(1, 5, 0, 1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		p.mustProduce(t, true)
	}
	if hw := p.HighWatermark(); hw != 0 {
		t.Fatalf("committed %d before any follower fetched", hw)
	}
	p.FollowerFetched(2, 4)
	if hw := p.HighWatermark(); hw != 0 {
		t.Fatalf("committed %d without follower 3", hw)
	}
	p.FollowerFetched(3, 2)
	if hw := p.HighWatermark(); hw != 2 {
		t.Fatalf("high watermark %d, want 2", hw)
	}
	// The slow one leaves: the shrink itself moves the high watermark (R11).
	if err := p.Apply(log, want(1, 5, 1, 1, 2)); err != nil {
		t.Fatal(err)
	}
	if hw := p.HighWatermark(); hw != 4 {
		t.Fatalf("high watermark %d after the shrink, want 4", hw)
	}
	// Under min.insync.replicas: acks=all is refused, acks=1 is appended and not committed.
	if err := p.Apply(log, want(1, 5, 2, 1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Produce(batch(), true, time.Now()); !errors.Is(err, kerr.NotEnoughReplicas) {
		t.Fatalf("acks=all under min ISR: %v", err)
	}
	a := p.mustProduce(t, false)
	if a.BaseOffset != 4 || p.HighWatermark() != 4 {
		t.Fatalf("offset %d, high watermark %d", a.BaseOffset, p.HighWatermark())
	}
	if done, err := p.Committed(3, 5); !done || !errors.Is(err, kerr.NotEnoughReplicasAfterAppend) {
		t.Errorf("committed before the shrink: %v %v", done, err)
	}
	p.FollowerFetched(3, 1) // not in sync: no influence
	if hw := p.HighWatermark(); hw != 4 {
		t.Errorf("high watermark went to %d", hw)
	}
}

func TestEpochsFence(t *testing.T) { // R7, B45
	p, log := newPartition(t, config.DefaultLog())
	if err := p.Apply(log, want(1, 5, 3, 1)); err != nil {
		t.Fatal(err)
	}
	for epoch, code := range map[int32]*kerr.Error{4: kerr.FencedLeaderEpoch, 6: kerr.UnknownLeaderEpoch} {
		if _, err := p.Leading(epoch); !errors.Is(err, code) {
			t.Errorf("epoch %d: %v", epoch, err)
		}
		if r := p.Fetch(Fetch{CurrentEpoch: epoch, LastFetchedEpoch: -1}); !errors.Is(r.Err, code) {
			t.Errorf("fetch in epoch %d: %v", epoch, r.Err)
		}
		if _, err := p.Append(batch(), epoch); err == nil {
			t.Errorf("an append in epoch %d was taken", epoch)
		}
	}
	// An older partition epoch is ignored.
	if err := p.Apply(log, want(2, 6, 2, 2)); err != nil || p.State().Role != Leader {
		t.Errorf("an older state was taken: %+v %v", p.State(), err)
	}
	if err := p.Apply(log, want(2, 6, 4, 2)); err != nil || p.State().Role != Follower {
		t.Fatalf("%+v %v", p.State(), err)
	}
	if _, _, err := p.Produce(batch(), false, time.Now()); !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("a follower took an append: %v", err)
	}
	if done, err := p.Committed(1, 5); !done || !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("waiting for an epoch that ended: %v %v", done, err)
	}
	if r := p.Fetch(Fetch{CurrentEpoch: -1, LastFetchedEpoch: -1}); !errors.Is(r.Err, kerr.NotLeaderForPartition) {
		t.Errorf("an old consumer was answered by a follower: %v", r.Err)
	}
	if r := p.Fetch(Fetch{CurrentEpoch: -1, LastFetchedEpoch: -1, FollowerOK: true}); r.Err != nil {
		t.Errorf("a newer consumer may read from a follower: %v", r.Err)
	}
}

// Each leadership starts an epoch at the log's end, even if nothing is written in it (R5).
func TestEveryLeadershipStartsAnEpoch(t *testing.T) {
	p, log := newPartition(t, config.DefaultLog())
	for i, epoch := range []int32{3, 4, 9} {
		if err := p.Apply(log, want(1, epoch, int32(i), 1)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			p.mustProduce(t, false)
		}
	}
	for asked, wantEnd := range map[int32][2]int64{9: {9, 1}, 8: {3, 1} /* epoch 4 held nothing */, 3: {3, 1}, 2: {2, 0}, 10: {-1, -1}} {
		e, end, err := p.EpochEnd(asked, -1)
		if err != nil || int64(e) != wantEnd[0] || end != wantEnd[1] {
			t.Errorf("epoch %d ends at (%d, %d), want %v (%v)", asked, e, end, wantEnd, err)
		}
	}
}

type counter struct{ n int }

func (c *counter) Changed(int32) { c.n++ }

func TestWatchersHearOfEveryChange(t *testing.T) { // P6
	p, log := newPartition(t, config.DefaultLog())
	c := &counter{}
	p.Watch(c, 7)
	p.Apply(log, want(1, 1, 0, 1))
	p.mustProduce(t, false)
	p.Fail(errors.New("disk"))
	if c.n != 3 {
		t.Errorf("%d changes heard of, want role, append and failure", c.n)
	}
	if done, err := p.Committed(1, 1); !done || !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("a waiter of a failed partition: %v %v", done, err)
	}
	p.Unwatch(c, 7)
	p.Delete()
	if c.n != 3 {
		t.Error("an ended registration was called")
	}
	if _, err := p.Leading(-1); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("a deleted partition: %v", err)
	}
}
