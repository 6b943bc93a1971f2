package compact

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/commitlog"
)

var t0 = time.UnixMilli(1_700_000_000_000)

func open(t testing.TB, fs vfs.FS, recoveryPoint int64) *commitlog.Log {
	t.Helper()
	cfg := config.DefaultLog()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 1500, 200
	cfg.Compact, cfg.Delete = true, false
	cfg.DeleteRetentionMs = 1000
	l, _, err := commitlog.Open(commitlog.Options{FS: fs, Dir: "d/c-0", TP: ids.TopicPartition{Topic: "c"}, TopicID: ids.UUID{1}, Config: cfg,
		Now: func() time.Time { return t0 }, RecoveryPoint: recoveryPoint, ProducerExpiryMs: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type rec struct {
	off        int64
	key, value string // value "-" is null
}

func add(t testing.TB, l *commitlog.Log, b record.Batch) int64 {
	t.Helper()
	a, err := l.Append(record.Trust(b), 0, t0)
	if err != nil {
		t.Fatal(err)
	}
	l.AdvanceHighWatermark(a.LastOffset + 1)
	return a.BaseOffset
}

// contents reads the records, as read_committed would see them if committed is set.
func contents(t testing.TB, l *commitlog.Log, committed bool) []rec {
	t.Helper()
	o := l.Offsets()
	aborted, err := l.AbortedTxns(o.LogStart, o.End)
	if err != nil {
		t.Fatal(err)
	}
	var out []rec
	last := int64(-1)
	for from := o.LogStart; from < o.End; {
		r, err := l.Read(from, o.End, 1<<20, true)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := r.Region.ReadAll()
		r.Region.Done()
		if len(raw) == 0 {
			break
		}
		for len(raw) > 0 {
			b, rest, err := record.Next(raw)
			if err != nil || !b.ValidCRC() {
				t.Fatalf("batch at %d: %v", from, err)
			}
			if b.BaseOffset() <= last {
				t.Fatalf("offset %d after %d", b.BaseOffset(), last)
			}
			last, raw, from = b.LastOffset(), rest, b.NextOffset()
			if b.IsControl() || committed && abortedBatch(aborted, b) {
				continue
			}
			payload := b.Payload()
			if b.Codec() != record.None {
				payload, _ = record.Decompress(nil, b.Codec(), payload, 1<<20)
			}
			for range b.Count() {
				rr, err := record.ReadRecord(payload, true)
				if err != nil {
					t.Fatal(err)
				}
				payload = payload[rr.Size:]
				v := "-"
				if rr.Value != nil {
					v = string(rr.Value)
				}
				if ts := b.BaseTimestamp() + rr.TimestampDelta; ts != t0.UnixMilli() {
					t.Fatalf("timestamp %d", ts)
				}
				out = append(out, rec{b.BaseOffset() + int64(rr.OffsetDelta), string(rr.Key), v})
			}
		}
	}
	return out
}

func abortedBatch(aborted []commitlog.AbortedTxn, b record.Batch) bool {
	for _, a := range aborted {
		if b.IsTransactional() && a.ProducerID == b.ProducerID() && b.BaseOffset() >= a.First && b.LastOffset() <= a.Last {
			return true
		}
	}
	return false
}

func clean(t testing.TB, l *commitlog.Log, checkpoint int64, now time.Time) Result {
	t.Helper()
	p, err := Inspect(l, checkpoint, now)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Pass(context.Background(), p, Options{MapBytes: 1 << 20}, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func values(recs []rec) map[string]string {
	m := map[string]string{}
	for _, r := range recs {
		m[r.key] = r.value
	}
	return m
}

func marker(pid int64, epoch int16, abort bool) record.Batch {
	b := record.Builder{HasProducer: true, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: -1, Timestamp: t0.UnixMilli(),
		Attributes: record.TransactionalBit | record.ControlBit}
	key := []byte{0, 0, 0, 1}
	if abort {
		key[3] = 0
	}
	b.Add(key, binary.BigEndian.AppendUint32([]byte{0, 0}, 0))
	return b.Build()
}

// write puts random keyed records, tombstones, codecs and transactions in the log.
func write(t testing.TB, l *commitlog.Log, rnd *rand.Rand, n int) {
	seqs, open := map[int64]int32{}, map[int64]bool{}
	for i := range n {
		b := record.Builder{Timestamp: t0.UnixMilli(), Codec: record.Codec(rnd.IntN(5))}
		pid := int64(rnd.IntN(4))
		if pid > 0 {
			b.HasProducer, b.ProducerID, b.BaseSequence = true, pid, seqs[pid]
			if pid > 1 {
				b.Attributes = record.TransactionalBit
				open[pid] = true
			}
		}
		k := 1 + rnd.IntN(4)
		for j := range k {
			key := fmt.Appendf(nil, "key-%d", rnd.IntN(12))
			if rnd.IntN(6) == 0 {
				b.Add(key, nil)
			} else {
				b.Add(key, fmt.Appendf(nil, "value %d.%d", i, j), record.Header{Key: []byte("h"), Value: []byte{byte(i)}})
			}
		}
		seqs[pid] += int32(k)
		add(t, l, b.Build())
		if pid > 1 && rnd.IntN(3) == 0 {
			add(t, l, marker(pid, 0, rnd.IntN(2) == 0))
			delete(open, pid)
		}
	}
	for pid := range open {
		add(t, l, marker(pid, 0, true))
	}
}

func TestCompactionKeepsWhatReadersNeed(t *testing.T) {
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		m := vfs.NewMem()
		l := open(t, m, 0)
		write(t, l, rnd, 120)
		l.Roll(t0)
		before, end := contents(t, l, true), l.Offsets().End
		byOffset := map[int64]rec{}
		for _, r := range before {
			byOffset[r.off] = r
		}
		check := func(l *commitlog.Log, tombstonesGone bool) {
			t.Helper()
			after := contents(t, l, true)
			want := values(before)
			if tombstonesGone {
				for k, v := range want {
					if v == "-" {
						delete(want, k)
					}
				}
			}
			if got := values(after); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: newest values\n%v\nwant\n%v", seed, got, want)
			}
			seen := map[string]bool{}
			for _, r := range after {
				if byOffset[r.off] != r {
					t.Fatalf("seed %d: record %+v was %+v", seed, r, byOffset[r.off])
				}
				if seen[r.key] {
					t.Fatalf("seed %d: key %s twice", seed, r.key)
				}
				seen[r.key] = true
			}
			if l.Offsets().End != end {
				t.Fatalf("seed %d: end %d, was %d", seed, l.Offsets().End, end)
			}
		}
		producers := l.Producers()
		r := clean(t, l, -1, t0)
		if r.EndOffset != end || r.BytesAfter >= r.BytesBefore {
			t.Fatalf("seed %d: %+v, log ends at %d", seed, r, end)
		}
		check(l, false)
		clean(t, l, -1, t0) // the horizons are set; tombstones stay until then
		check(l, false)
		clean(t, l, -1, t0.Add(time.Minute))
		check(l, true)
		if !reflect.DeepEqual(l.Producers(), producers) {
			t.Fatalf("seed %d: producers changed", seed)
		}
		// Recovery from the segments alone knows the same producers and transactions.
		infos, _ := m.ReadDir("d/c-0")
		for _, i := range infos {
			if len(i.Name) > 9 && i.Name[len(i.Name)-9:] == ".snapshot" {
				m.Remove("d/c-0/" + i.Name)
			}
		}
		again := open(t, m, end)
		check(again, true)
		for _, p := range again.Producers() {
			if p.TxnFirstOffset != -1 {
				t.Fatalf("seed %d: a transaction hangs after compaction: %+v", seed, p)
			}
		}
		if again.Offsets().LastStable != again.Offsets().HighWatermark {
			t.Fatalf("seed %d: %+v", seed, again.Offsets())
		}
	}
}

func TestAFullMapEndsThePassEarly(t *testing.T) {
	l := open(t, vfs.NewMem(), 0)
	for i := range 200 {
		b := record.Builder{Timestamp: t0.UnixMilli()}
		b.Add(fmt.Appendf(nil, "key-%d", i%100), fmt.Appendf(nil, "%d", i))
		add(t, l, b.Build())
	}
	l.Roll(t0)
	want := values(contents(t, l, true))
	checkpoint := int64(-1)
	for range 20 {
		p, _ := Inspect(l, checkpoint, t0)
		if p.CleanableBytes == 0 {
			break
		}
		r, err := Pass(context.Background(), p, Options{MapBytes: 40 * slotBytes}, t0)
		if err != nil || r.EndOffset <= checkpoint {
			t.Fatalf("no progress: %+v, %v", r, err)
		}
		checkpoint = r.EndOffset
	}
	if checkpoint != 200 {
		t.Fatalf("ended at %d", checkpoint)
	}
	if got := values(contents(t, l, true)); !reflect.DeepEqual(got, want) {
		t.Fatalf("%d keys, want %d", len(got), len(want))
	}
}

func TestOpenTransactionsAndLagBoundThePass(t *testing.T) {
	l := open(t, vfs.NewMem(), 0)
	for i := range 60 {
		b := record.Builder{Timestamp: t0.UnixMilli()}
		b.Add([]byte("k"), fmt.Appendf(nil, "value %d", i))
		add(t, l, b.Build())
	}
	txn := record.Builder{Timestamp: t0.UnixMilli(), HasProducer: true, ProducerID: 9, Attributes: record.TransactionalBit}
	txn.Add([]byte("k"), []byte("x"))
	at := add(t, l, txn.Build())
	for range 60 {
		b := record.Builder{Timestamp: t0.UnixMilli()}
		b.Add([]byte("k"), []byte("some later value"))
		add(t, l, b.Build())
	}
	p, err := Inspect(l, -1, t0)
	if err != nil || p.FirstUncleanable != at {
		t.Fatalf("uncleanable from %d, the open transaction is at %d, %v", p.FirstUncleanable, at, err)
	}
	cfg := *l.Config()
	cfg.MinCompactionLagMs = 10_000
	l.SetConfig(&cfg)
	if p, _ := Inspect(l, -1, t0.Add(5*time.Second)); p.CleanableBytes != 0 {
		t.Fatalf("min.compaction.lag.ms ignored: %+v", p)
	}
}

func TestAPassGivesUpWhenTheLogChanges(t *testing.T) {
	m := vfs.NewMem()
	l := open(t, m, 0)
	write(t, l, rand.New(rand.NewPCG(1, 1)), 100)
	p, _ := Inspect(l, -1, t0)
	if err := l.TruncateTo(l.Offsets().End - 1); err != nil {
		t.Fatal(err)
	}
	before := contents(t, l, false)
	if _, err := Pass(context.Background(), p, Options{MapBytes: 1 << 20}, t0); !errors.Is(err, commitlog.ErrChanged) {
		t.Fatalf("pass over a truncated log: %v", err)
	}
	if got := contents(t, l, false); !reflect.DeepEqual(got, before) {
		t.Fatal("the log changed")
	}
	infos, _ := m.ReadDir("d/c-0")
	for _, i := range infos {
		if len(i.Name) > 8 && i.Name[len(i.Name)-8:] == ".cleaned" {
			t.Errorf("%s was left", i.Name)
		}
	}
}

// A crash at any operation of a pass leaves a log with the same newest values.
func TestCrashAtEveryOperationOfAPass(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	m := vfs.NewMem()
	l := open(t, m, 0)
	write(t, l, rnd, 60)
	l.Roll(t0)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	m.SyncDir("")
	want, end := values(contents(t, l, true)), l.Offsets().End
	var crashes []*vfs.Mem
	m.OnOp(func(op vfs.Op) {
		if op.Kind.Changes() {
			crashes = append(crashes, m.Crash(rnd), m.Crash(nil))
		}
	})
	clean(t, l, -1, t0)
	m.OnOp(nil)
	crashes = append(crashes, m.Crash(nil))
	for i, c := range crashes {
		l2 := open(t, c, end)
		if got := values(contents(t, l2, true)); !reflect.DeepEqual(got, want) || l2.Offsets().End != end {
			t.Fatalf("crash %d of %d: end %d want %d\n%v\nwant\n%v", i, len(crashes), l2.Offsets().End, end, got, want)
		}
	}
	if len(crashes) < 40 {
		t.Fatalf("only %d crashes", len(crashes))
	}
}
