package commitlog

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
)

// Readers, a writer, flushes and retention at the same time: every reader sees whole
// batches at the offsets it asked for, below the bound it gave.
func TestConcurrentUse(t *testing.T) {
	cfg := small()
	cfg.RetentionBytes = 6000
	l := mustOpen(t, options(vfs.NewMem(), cfg))
	const total = 3000
	stop := make(chan struct{})
	var readers, others sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			from := int64(0)
			for from < total {
				o := l.Offsets()
				if o.LogStart > o.HighWatermark || o.LastStable > o.HighWatermark || o.HighWatermark > o.End || o.Durable > o.End {
					t.Errorf("offsets out of order: %+v", o)
					return
				}
				r, err := l.Read(from, o.HighWatermark, 500, true)
				if errors.Is(err, kerr.OffsetOutOfRange) {
					from = l.Offsets().LogStart
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				raw, err := r.Region.ReadAll()
				r.Region.Done()
				if err != nil {
					t.Error(err)
					return
				}
				for len(raw) > 0 {
					b, rest, err := record.Next(raw)
					if err != nil {
						break
					}
					if !b.ValidCRC() || b.BaseOffset() != from || b.NextOffset() > o.HighWatermark {
						t.Errorf("batch at %d, wanted %d below %d", b.BaseOffset(), from, o.HighWatermark)
						return
					}
					raw, from = rest, b.NextOffset()
				}
			}
		})
	}
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := l.Flush(); err != nil {
				t.Error(err)
				return
			}
			if _, err := l.DeleteOld(t0.Add(time.Second)); err != nil {
				t.Error(err)
				return
			}
			l.RemoveDoomed(t0.Add(time.Hour))
			l.OffsetForTimestamp(t0.UnixMilli() + 50)
		}
	})
	for i := range total {
		a := add(t, l, batch(i, 1, t0.UnixMilli()+int64(i)), 0)
		if a.BaseOffset != int64(i) {
			t.Fatalf("offset %d given twice or left out, want %d", a.BaseOffset, i)
		}
		l.AdvanceHighWatermark(a.LastOffset + 1)
	}
	readers.Wait()
	close(stop)
	others.Wait()
	checkWhole(t, l)
}

// A reader that pinned a region reads it to its end although the segment is deleted.
func TestPinnedRegionOutlivesItsSegment(t *testing.T) {
	cfg := small()
	cfg.RetentionMs = 1
	l := mustOpen(t, options(vfs.NewMem(), cfg))
	for i := range 50 {
		add(t, l, batch(i, 1, t0.UnixMilli()), 0)
	}
	r, err := l.Read(0, 50, 500, true)
	if err != nil {
		t.Fatal(err)
	}
	l.AdvanceHighWatermark(50)
	if _, err := l.DeleteOld(t0.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	l.RemoveDoomed(t0.Add(2 * time.Hour))
	raw, err := r.Region.ReadAll()
	r.Region.Done()
	if err != nil || len(raw) != 500 {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	if b, _, err := record.Next(raw); err != nil || !b.ValidCRC() || b.BaseOffset() != 0 {
		t.Fatalf("%v", err)
	}
}

func TestFlushMessagesBoundsWhatIsNotDurable(t *testing.T) {
	m := vfs.NewMem()
	cfg := small()
	cfg.FlushMessages = 3
	o := options(m, cfg)
	m.MkdirAll("d")
	m.SyncDir("")
	l := mustOpen(t, o)
	for i := range 30 {
		add(t, l, batch(i, 1, t0.UnixMilli()), 0)
		off := l.Offsets()
		if off.End-off.Durable >= 3 {
			t.Fatalf("%+v with flush.messages=3", off)
		}
		o.FS = m.Crash(nil)
		if l2 := mustOpen(t, o); l2.Offsets().End < off.Durable {
			t.Fatalf("ends at %d, durable was %d", l2.Offsets().End, off.Durable)
		}
	}
}

func BenchmarkAppend16K(b *testing.B) {
	cfg := small()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 1<<30, 4096
	l := mustOpen(b, Options{FS: vfs.OS{}, Dir: b.TempDir() + "/t-0", Config: cfg, Now: time.Now, TopicID: topic})
	bt := record.Builder{Timestamp: t0.UnixMilli()}
	bt.Add(nil, make([]byte, 16<<10))
	c := record.Trust(bt.Build())
	b.SetBytes(16 << 10)
	b.ReportAllocs()
	for b.Loop() {
		a, err := l.Append(c, 0, t0)
		if err != nil {
			b.Fatal(err)
		}
		l.AdvanceHighWatermark(a.LastOffset + 1)
	}
}

func BenchmarkReadTail(b *testing.B) {
	cfg := small()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 1<<30, 4096
	l := mustOpen(b, Options{FS: vfs.OS{}, Dir: b.TempDir() + "/t-0", Config: cfg, Now: time.Now, TopicID: topic})
	for i := range 1000 {
		add(b, l, batch(i, 10, t0.UnixMilli()), 0)
	}
	end := l.Offsets().End
	b.ReportAllocs()
	for b.Loop() {
		r, err := l.Read(end-10, end, 1<<20, true)
		if err != nil {
			b.Fatal(err)
		}
		r.Region.Done()
	}
}

func BenchmarkReadCold(b *testing.B) {
	cfg := small()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 1<<20, 4096
	l := mustOpen(b, Options{FS: vfs.OS{}, Dir: b.TempDir() + "/t-0", Config: cfg, Now: time.Now, TopicID: topic})
	for i := range 20000 {
		add(b, l, batch(i, 10, t0.UnixMilli()), 0)
	}
	end := l.Offsets().End
	b.ReportAllocs()
	i := int64(0)
	for b.Loop() {
		i = (i + 7919) % end
		r, err := l.Read(i, end, 1<<20, true)
		if err != nil {
			b.Fatal(err)
		}
		r.Region.Done()
	}
}
