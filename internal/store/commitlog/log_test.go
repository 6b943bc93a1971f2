package commitlog

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
)

func TestAppendReadReopen(t *testing.T) {
	for _, clean := range []bool{true, false} {
		m := vfs.NewMem()
		o := options(m, small())
		l := mustOpen(t, o)
		var want [][]byte
		for i := range 100 {
			b := batch(i, 1+i%5, t0.UnixMilli()+int64(i))
			add(t, l, b, int32(i/30))
			want = append(want, append([]byte(nil), b...))
		}
		if l.Segments() < 5 {
			t.Fatalf("only %d segments", l.Segments())
		}
		check := func(l *Log) {
			t.Helper()
			for _, size := range []int{1, 150, 700, 1 << 20} {
				got := readAll(t, l, 0, l.Offsets().End, size)
				if len(got) != len(want) {
					t.Fatalf("%d batches with %d bytes a read, want %d", len(got), size, len(want))
				}
				for i := range got {
					if !bytes.Equal(got[i], want[i]) {
						t.Fatalf("batch %d differs", i)
					}
				}
			}
			for _, b := range checkWhole(t, l) { // every offset is found
				for off := b.BaseOffset(); off <= b.LastOffset(); off++ {
					r, err := l.Read(off, l.Offsets().End, 1, true)
					if err != nil || r.BaseOffset != b.BaseOffset() {
						t.Fatalf("read at %d: base %d, %v", off, r.BaseOffset, err)
					}
					r.Region.Done()
				}
			}
			if e := l.EpochEntries(); len(e) != 4 || l.LatestEpoch() != 3 {
				t.Fatalf("epochs %v", e)
			}
		}
		check(l)
		before := l.Offsets()
		o.Clean = clean
		if clean {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		l2, rec, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if clean != (rec.SegmentsScanned == 0) {
			t.Errorf("clean %t: %d segments scanned", clean, rec.SegmentsScanned)
		}
		if got := l2.Offsets(); got.End != before.End || got.LogStart != 0 {
			t.Fatalf("offsets %+v, before %+v", got, before)
		}
		check(l2)
		a := add(t, l2, batch(100, 1, t0.UnixMilli()), 3)
		if a.BaseOffset != before.End {
			t.Fatalf("next append at %d, want %d", a.BaseOffset, before.End)
		}
	}
}

func TestReadBounds(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), small()))
	for i := range 40 {
		add(t, l, batch(i, 2, t0.UnixMilli()), 0)
	}
	for _, x := range []struct {
		from, upper int64
		err         error
	}{{-1, 80, kerr.OffsetOutOfRange}, {81, 90, kerr.OffsetOutOfRange}, {80, 80, nil}, {10, 10, nil}, {10, 4, nil}} {
		r, err := l.Read(x.from, x.upper, 100, true)
		if !errors.Is(err, x.err) || r.Region.Len != 0 {
			t.Errorf("%+v: %d bytes, %v", x, r.Region.Len, err)
		}
	}
	// Nothing at or above upper is ever given, wherever it lies.
	for upper := int64(2); upper <= 80; upper += 2 {
		for from := int64(0); from < upper; from += 3 {
			got := readAll(t, l, from, upper, 1<<20)
			if last := got[len(got)-1].NextOffset(); last != upper {
				t.Fatalf("read [%d, %d) ended at %d", from, upper, last)
			}
			if n := l.Bytes(from, upper, 50); n != 50 {
				t.Fatalf("bytes of [%d, %d): %d", from, upper, n)
			}
		}
	}
	if n := l.Bytes(80, 80, 50); n != 0 {
		t.Errorf("bytes at the end: %d", n)
	}
	if r, _ := l.Read(0, 80, 1, false); r.Region.Len != 1 {
		t.Errorf("without atLeastOne: %d bytes", r.Region.Len)
	}
}

func TestFollowerAppends(t *testing.T) {
	leader := mustOpen(t, options(vfs.NewMem(), small()))
	for i := range 60 {
		add(t, leader, batch(i, 3, t0.UnixMilli()), int32(i/20))
	}
	m := vfs.NewMem()
	follower := mustOpen(t, options(m, small()))
	for end := leader.Offsets().End; follower.Offsets().End < end; {
		r, err := leader.Read(follower.Offsets().End, end, 777, true)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := r.Region.ReadAll()
		r.Region.Done()
		if _, err := follower.AppendAsIs(raw); err != nil {
			t.Fatal(err)
		}
	}
	a, b := checkWhole(t, leader), checkWhole(t, follower)
	if len(a) != len(b) {
		t.Fatalf("%d batches, the leader has %d", len(b), len(a))
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			t.Fatalf("batch %d differs", i)
		}
	}
	if e := follower.EpochEntries(); len(e) != 3 {
		t.Errorf("epochs %v", e)
	}
	if _, err := follower.AppendAsIs(a[3]); !errors.Is(err, ErrOffsets) {
		t.Errorf("an old batch again: %v", err)
	}
	bad := append([]byte(nil), a[0]...)
	record.Batch(bad).SetBaseOffset(1000)
	bad[len(bad)-1] ^= 1
	if _, err := follower.AppendAsIs(bad); !errors.Is(err, kerr.CorruptMessage) {
		t.Errorf("a damaged batch: %v", err)
	}
}

func TestTruncateAndEpochs(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		m := vfs.NewMem()
		o := options(m, small())
		l := mustOpen(t, o)
		var model []record.Batch
		epoch := int32(0)
		for step := range 60 {
			switch k := rnd.IntN(10); {
			case k < 6:
				b := batch(step, 1+rnd.IntN(4), t0.UnixMilli())
				add(t, l, b, epoch)
				model = append(model, append(record.Batch(nil), b...))
			case k == 6:
				epoch++
				l.AssignEpoch(epoch, l.Offsets().End)
			case k == 7 && len(model) > 0:
				to := rnd.Int64N(l.Offsets().End + 3)
				if err := l.TruncateTo(to); err != nil {
					t.Fatal(err)
				}
				for len(model) > 0 && model[len(model)-1].LastOffset() >= to {
					model = model[:len(model)-1]
				}
			case k == 8:
				if err := l.Flush(); err != nil || l.Offsets().Durable != l.Offsets().End {
					t.Fatalf("flush: %v, %+v", err, l.Offsets())
				}
			case k == 9:
				o.Clean = rnd.IntN(2) == 0
				o.RecoveryPoint = l.Offsets().Durable
				if o.Clean {
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
				}
				l = mustOpen(t, o)
			}
			got := checkWhole(t, l)
			if len(got) != len(model) {
				t.Fatalf("seed %d step %d: %d batches, want %d", seed, step, len(got), len(model))
			}
			for i := range got {
				if !bytes.Equal(got[i], model[i]) {
					t.Fatalf("seed %d step %d: batch %d differs", seed, step, i)
				}
				if e := l.EpochFor(got[i].BaseOffset()); e != got[i].LeaderEpoch() {
					t.Fatalf("seed %d step %d: epoch of %d is %d, want %d", seed, step, got[i].BaseOffset(), e, got[i].LeaderEpoch())
				}
			}
		}
	}
}

func TestTruncateFullyMovesEverything(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), small()))
	for i := range 40 {
		add(t, l, batch(i, 2, t0.UnixMilli()), 1)
	}
	l.AdvanceHighWatermark(50)
	if err := l.TruncateFully(500); err != nil {
		t.Fatal(err)
	}
	if o := l.Offsets(); o != (Offsets{500, 500, 500, 500, 500}) {
		t.Fatalf("%+v", o)
	}
	if len(l.EpochEntries()) != 0 || len(l.Producers()) != 0 {
		t.Fatal("epochs or producers stayed")
	}
	if a := add(t, l, batch(1, 1, t0.UnixMilli()), 2); a.BaseOffset != 500 {
		t.Fatalf("append at %d", a.BaseOffset)
	}
}

func TestDuplicatesAndTransactions(t *testing.T) {
	m := vfs.NewMem()
	o := options(m, small())
	l := mustOpen(t, o)
	first := add(t, l, idempotent(5, 0, 0, 3, true), 0)
	if d := add(t, l, idempotent(5, 0, 0, 3, true), 0); !d.Duplicate || d.BaseOffset != first.BaseOffset || d.LastOffset != 2 {
		t.Fatalf("duplicate: %+v", d)
	}
	if _, err := l.Append(record.Trust(idempotent(5, 0, 9, 1, true)), 0, t0); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		t.Fatalf("a gap: %v", err)
	}
	add(t, l, batch(0, 2, t0.UnixMilli()), 0)
	l.AdvanceHighWatermark(5)
	if o := l.Offsets(); o.LastStable != 0 || o.HighWatermark != 5 {
		t.Fatalf("open transaction: %+v", o)
	}
	add(t, l, marker(5, 0, true), 0)
	if o := l.Offsets(); o.LastStable != 0 {
		t.Fatalf("marker above the high watermark: %+v", o)
	}
	l.AdvanceHighWatermark(6)
	if o := l.Offsets(); o.LastStable != 6 {
		t.Fatalf("aborted: %+v", o)
	}
	want := AbortedTxn{ProducerID: 5, First: 0, Last: 5, LastStable: 6}
	check := func(l *Log) {
		t.Helper()
		got, err := l.AbortedTxns(0, 6)
		if err != nil || len(got) != 1 || got[0] != want {
			t.Fatalf("aborted %+v, %v", got, err)
		}
	}
	check(l)
	l2 := mustOpen(t, o) // killed
	check(l2)
	if d := add(t, l2, idempotent(5, 0, 0, 3, true), 0); !d.Duplicate || d.BaseOffset != 0 {
		t.Fatalf("duplicate after recovery: %+v", d)
	}
	l2.Close()
	o.Clean = true
	check(mustOpen(t, o))
}

func TestRetention(t *testing.T) {
	for name, x := range map[string]struct {
		set  func(*Options)
		hw   int64
		now  time.Time
		left int64 // log start after it
	}{
		"nothing old":                       {func(o *Options) {}, 60, t0, 0},
		"time, all segments, active rolled": {func(o *Options) { o.Config.RetentionMs = 1000 }, 60, t0.Add(time.Hour), 60},
		"exact age stays":                   {func(o *Options) { o.Config.RetentionMs = 1000 }, 60, t0.Add(time.Second), 0},
		"not replicated":                    {func(o *Options) { o.Config.RetentionMs = 1000 }, 0, t0.Add(time.Hour), 0},
		"compacted only":                    {func(o *Options) { o.Config.RetentionMs = 1000; o.Config.Delete = false; o.Config.Compact = true }, 60, t0.Add(time.Hour), 0},
		"size":                              {func(o *Options) { o.Config.RetentionBytes = 2000 }, 60, t0, -1},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(vfs.NewMem(), small())
			x.set(&o)
			l := mustOpen(t, o)
			for i := range 60 {
				add(t, l, batch(i, 1, t0.UnixMilli()), 0)
			}
			l.AdvanceHighWatermark(x.hw)
			if _, err := l.DeleteOld(x.now); err != nil {
				t.Fatal(err)
			}
			off := l.Offsets()
			if x.left >= 0 && off.LogStart != x.left {
				t.Fatalf("log start %d, want %d", off.LogStart, x.left)
			}
			if x.left < 0 && (l.Size() < 2000 || l.Size() > 3000) {
				t.Fatalf("size %d after retention.bytes=2000", l.Size())
			}
			checkWhole(t, l)
			if n, err := l.DeleteOld(x.now); n != 0 || err != nil {
				t.Fatalf("a second pass deleted %d, %v", n, err)
			}
			l.RemoveDoomed(x.now.Add(time.Hour))
			infos, _ := o.FS.ReadDir(o.Dir)
			for _, i := range infos {
				if bytes.HasSuffix([]byte(i.Name), []byte(".deleted")) {
					t.Errorf("%s is still there", i.Name)
				}
			}
			if a := add(t, l, batch(0, 1, t0.UnixMilli()), 0); a.BaseOffset != 60 {
				t.Errorf("append at %d", a.BaseOffset)
			}
		})
	}
}

func TestRaiseLogStart(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), small()))
	for i := range 60 {
		add(t, l, batch(i, 1, t0.UnixMilli()), 0)
	}
	l.AdvanceHighWatermark(30)
	if err := l.RaiseLogStart(31); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Fatalf("past the high watermark: %v", err)
	}
	if err := l.RaiseLogStart(25); err != nil {
		t.Fatal(err)
	}
	if n, _ := l.DeleteOld(t0); n == 0 || l.Offsets().LogStart != 25 {
		t.Fatalf("%d segments deleted, %+v", n, l.Offsets())
	}
	if _, err := l.Read(24, 60, 1, true); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Fatalf("read below the start: %v", err)
	}
	checkWhole(t, l)
}

// Lookup by time equals a scan of everything, for unordered timestamps and all codecs.
func TestOffsetForTimestampAgainstScan(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	cfg := small()
	cfg.SegmentMs = 1 << 60
	o := options(vfs.NewMem(), cfg)
	l := mustOpen(t, o)
	type rec struct{ off, ts int64 }
	var all []rec
	for range 80 {
		ts := 1000 + rnd.Int64N(500)
		b := record.Builder{Timestamp: ts, Codec: record.Codec(rnd.IntN(5))}
		n := 1 + rnd.IntN(4)
		base := l.Offsets().End
		for i := range n {
			rts := ts + rnd.Int64N(50) - 25
			b.AddAt(rts, nil, []byte("some value"))
			all = append(all, rec{base + int64(i), rts})
		}
		add(t, l, b.Build(), 4)
	}
	check := func(l *Log) {
		t.Helper()
		start := l.Offsets().LogStart
		for ts := int64(960); ts < 1560; ts++ {
			want := rec{-1, -1}
			for _, r := range all {
				if r.ts >= ts && r.off >= start {
					want = r
					break
				}
			}
			at, found, err := l.OffsetForTimestamp(ts)
			if err != nil || found != (want.off >= 0) || found && (at.Offset != want.off || at.Timestamp != want.ts || at.Epoch != 4) {
				t.Fatalf("timestamp %d: %+v %t %v, want %+v", ts, at, found, err, want)
			}
		}
		want := rec{-1, -1}
		for _, r := range all {
			if r.ts > want.ts {
				want = r
			}
		}
		if at, found, err := l.MaxTimestamp(); err != nil || !found || at.Offset != want.off || at.Timestamp != want.ts {
			t.Fatalf("max: %+v %v, want %+v", at, err, want)
		}
	}
	check(l)
	l.Close()
	o.Clean = true
	l = mustOpen(t, o)
	check(l)
}

func TestEmptyLogReopens(t *testing.T) {
	m := vfs.NewMem()
	o := options(m, small())
	l := mustOpen(t, o)
	l.Close()
	o.Clean = true
	l = mustOpen(t, o)
	if l.Offsets() != (Offsets{}) || l.TopicID() != topic {
		t.Fatalf("%+v %v", l.Offsets(), l.TopicID())
	}
	o.TopicID[0] = 9
	if _, _, err := Open(o); !errors.Is(err, kerr.InconsistentTopicID) {
		t.Fatalf("another topic id: %v", err)
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	m := vfs.NewMem()
	cfg := small()
	cfg.SegmentBytes = 1 << 30
	cfg.IndexIntervalBytes = 1 << 20
	l := mustOpen(t, options(m, cfg))
	b := batch(1, 10, t0.UnixMilli())
	for range 200 {
		add(t, l, b, 0)
	}
	m.OnOp(func(op vfs.Op) {
		if op.Kind != vfs.OpWrite {
			t.Errorf("append did %s %s", op.Kind, op.Name)
		}
	})
	c := record.Trust(b)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := l.Append(c, 0, t0); err != nil {
			t.Fatal(err)
		}
	}); n > 1 { // the memory file grows now and then
		t.Errorf("%v allocations per append", n)
	}
}

// A damaged batch found by a read ends the log instead of being passed on or cut.
func TestReadFindsDamage(t *testing.T) {
	m := vfs.NewMem()
	o := options(m, small())
	l := mustOpen(t, o)
	for i := range 60 {
		add(t, l, batch(i, 1, t0.UnixMilli()), 0)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	h, _ := m.OpenFile("d/t-0/00000000000000000000.log", vfs.ReadWrite)
	h.WriteAt(make([]byte, 30), 8)
	o.Clean = true
	broken := make(chan error, 1)
	o.Broken = func(_ *Log, err error) { broken <- err }
	l = mustOpen(t, o)
	if _, err := l.Read(0, 60, 100, true); !errors.Is(err, kerr.KafkaStorageError) || !errors.Is(err, kerr.CorruptMessage) {
		t.Fatal(err)
	}
	if err := <-broken; !errors.Is(err, kerr.CorruptMessage) || l.Failed() == nil {
		t.Fatal(err)
	}
}
