package commitlog

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
)

// history is every batch a log ever held, by base offset; several where it was cut.
type history map[int64][][]byte

func (h history) note(b record.Batch) {
	h[b.BaseOffset()] = append(h[b.BaseOffset()], append([]byte(nil), b...))
}

func (h history) has(b record.Batch) bool {
	for _, x := range h[b.BaseOffset()] {
		if bytes.Equal(x, b) {
			return true
		}
	}
	return false
}

// life drives a log through appends, transactions, rolls, flushes, retention, truncation
// and its close. step is called before each action; an error of an action is given to
// fail, which may stop the life.
func life(l *Log, rnd *rand.Rand, wrote func(record.Batch), step func(), fail func(err error, cutting bool) bool) {
	seq := map[int64]int32{}
	for i := range 70 {
		step()
		var err error
		cutting := false
		put := func(b record.Batch) {
			var a Appended
			if a, err = l.Append(record.Trust(b), int32(i/25), t0.Add(time.Duration(i)*time.Second)); err == nil && !a.Duplicate {
				wrote(b)
			}
		}
		switch k := rnd.IntN(20); {
		case k < 9:
			put(batch(i, 1+rnd.IntN(4), t0.UnixMilli()+int64(i)))
		case k < 12:
			pid := int64(1 + rnd.IntN(2))
			put(idempotent(pid, 0, seq[pid], 2, true))
			if err == nil {
				seq[pid] += 2
			}
		case k == 12:
			put(marker(int64(1+rnd.IntN(2)), 0, rnd.IntN(2) == 0))
		case k == 13 || k == 14:
			err = l.Flush()
		case k == 15:
			err = l.FlushInactive()
		case k == 16:
			err = l.Roll(t0)
		case k == 17:
			l.AdvanceHighWatermark(l.Offsets().End - 5)
			if err = l.RaiseLogStart(max(0, l.Offsets().HighWatermark-30)); err == nil {
				_, err = l.DeleteOld(t0)
			}
		case k == 18:
			_, err = l.RemoveDoomed(t0.Add(time.Hour))
		case k == 19:
			cutting = true
			err = l.TruncateTo(max(l.Offsets().LogStart, l.Offsets().End-int64(rnd.IntN(30))))
			clear(seq)
			for _, p := range l.Producers() {
				seq[p.ProducerID] = p.LastSequence + 1
			}
		}
		if err != nil && fail(err, cutting) {
			return
		}
	}
	step()
	if err := l.Close(); err != nil {
		fail(err, false)
	}
}

func TestCrashAtEveryOperation(t *testing.T) {
	points := 0
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		m := vfs.NewMem()
		m.MkdirAll("d")
		m.SyncDir("")
		o := options(m, small())
		checkpointed := int64(0) // the recovery point in a checkpoint: written now and then
		o.Lowered = func(_ *Log, rp int64) error { checkpointed = min(checkpointed, rp); return nil }
		l := mustOpen(t, o)
		all := history{}
		type crash struct {
			disk                    *vfs.Mem
			durable, start, recover int64
			op                      vfs.Op
		}
		var crashes []crash
		m.OnOp(func(op vfs.Op) {
			if op.Kind.Changes() {
				off := l.Offsets()
				for _, r := range []*rand.Rand{nil, rnd, rnd} {
					crashes = append(crashes, crash{m.Crash(r), off.Durable, off.LogStart, checkpointed, op})
				}
			}
		})
		// What an append is about to write counts as written: the crash may keep it.
		pending := func(b record.Batch) { all.note(b) }
		life(l, rnd, pending, func() {
			if rnd.IntN(4) == 0 {
				checkpointed = l.Offsets().Durable
			}
		}, func(err error, _ bool) bool { t.Fatal(err); return true })
		m.OnOp(nil)
		final := checkAfterClose(t, o, m)
		_ = final
		for i, c := range crashes {
			co := o
			co.FS, co.RecoveryPoint, co.Lowered = c.disk, c.recover, nil
			l2, _, err := Open(co)
			if err != nil {
				if errors.Is(err, ErrNoIdentity) && c.durable == 0 {
					continue
				}
				t.Fatalf("seed %d crash %d before %+v (durable %d, recovery point %d): %v", seed, i, c.op, c.durable, c.recover, err)
			}
			off := l2.Offsets()
			if off.End < c.durable {
				t.Fatalf("seed %d crash %d before %+v: the log ends at %d, %d was durable", seed, i, c.op, off.End, c.durable)
			}
			next := int64(-1)
			for _, b := range readAll(t, l2, off.LogStart, off.End, 1<<20) {
				if !all.has(b) {
					t.Fatalf("seed %d crash %d before %+v: batch at %d was never written", seed, i, c.op, b.BaseOffset())
				}
				if next >= 0 && b.BaseOffset() != next && b.BaseOffset() > c.start {
					t.Fatalf("seed %d crash %d before %+v: a hole from %d to %d", seed, i, c.op, next, b.BaseOffset())
				}
				next = b.NextOffset()
			}
			if a, err := l2.Append(record.Trust(batch(0, 1, t0.UnixMilli())), 9, t0); err != nil || a.BaseOffset != off.End {
				t.Fatalf("seed %d crash %d: append after it: %+v, %v", seed, i, a, err)
			}
			points++
		}
	}
	if points < 1000 {
		t.Fatalf("only %d crashes", points)
	}
}

func checkAfterClose(t *testing.T, o Options, m *vfs.Mem) Offsets {
	t.Helper()
	o.FS, o.Clean, o.Lowered = m.Crash(nil), true, nil // a clean close survives a power loss
	l, rec, err := Open(o)
	if err != nil || rec.SegmentsScanned != 0 {
		t.Fatalf("after a clean close: %+v, %v", rec, err)
	}
	return l.Offsets()
}

// A full disk at any operation refuses that action and nothing else.
func TestFullDiskAtEveryOperation(t *testing.T) {
	for n := 1; ; n++ {
		rnd := rand.New(rand.NewPCG(4, 4))
		f := vfs.NewFault(vfs.NewMem())
		o := options(f, small())
		l := mustOpen(t, o)
		hit := false
		count := 0
		f.Script(func(_ int, op vfs.Op) vfs.Verdict {
			switch op.Kind {
			case vfs.OpWrite, vfs.OpCreate:
				if count++; count == n {
					hit = true
					return vfs.Verdict{Err: syscall.ENOSPC, Short: op.Len / 2}
				}
			}
			return vfs.Verdict{}
		})
		written := int64(0)
		life(l, rnd, func(record.Batch) { written++ }, func() {}, func(err error, cutting bool) bool {
			if !vfs.IsFull(err) {
				t.Fatalf("operation %d: %v", n, err)
			}
			if !errors.Is(err, kerr.KafkaStorageError) && !l.mu.closed {
				t.Fatalf("operation %d: %v is no KAFKA_STORAGE_ERROR", n, err)
			}
			if l.Failed() != nil {
				t.Fatalf("operation %d: the log failed: %v", n, l.Failed())
			}
			if !l.mu.closed {
				checkWhole(t, l)
				add(t, l, batch(1, 1, t0.UnixMilli()), 9)
			}
			return true
		})
		f.Script()
		end := l.Offsets().End
		l2, rec, err := Open(o)
		if err != nil || rec.TruncatedBytes != 0 || l2.Offsets().End != end {
			t.Fatalf("operation %d: reopened at %d of %d, %+v, %v", n, l2.Offsets().End, end, rec, err)
		}
		checkWhole(t, l2)
		if !hit {
			if n < 40 {
				t.Fatalf("only %d operations", n)
			}
			return
		}
	}
}

// An I/O error at any operation loses nothing that was acknowledged while the process
// lives: either the log fails, or the action was done without.
func TestIOErrorAtEveryOperation(t *testing.T) {
	for n := 1; ; n++ {
		rnd := rand.New(rand.NewPCG(6, 6))
		f := vfs.NewFault(vfs.NewMem())
		o := options(f, small())
		l := mustOpen(t, o)
		all := history{}
		f.Script(vfs.FailNth(n, syscall.EIO))
		acked := int64(0)
		life(l, rnd, func(b record.Batch) { all.note(b); acked = b.NextOffset() }, func() { acked = min(acked, l.Offsets().End) }, func(err error, cutting bool) bool {
			if !errors.Is(err, syscall.EIO) {
				t.Fatalf("operation %d: %v", n, err)
			}
			if cutting { // what it was asked to drop may be gone
				acked = 0
			}
			if l.Failed() == nil && !l.mu.closed {
				if _, err := l.Append(record.Trust(batch(1, 1, t0.UnixMilli())), 9, t0); err != nil {
					t.Fatalf("operation %d: the log did not fail, but: %v", n, err)
				}
			}
			return true
		})
		done := f.Count() < n
		f.Script()
		if l.Failed() != nil {
			if _, err := l.Append(record.Trust(batch(1, 1, t0.UnixMilli())), 9, t0); !errors.Is(err, kerr.KafkaStorageError) {
				t.Fatalf("operation %d: append to a failed log: %v", n, err)
			}
			if err := l.Flush(); !errors.Is(err, kerr.KafkaStorageError) {
				t.Fatalf("operation %d: flush of a failed log: %v", n, err)
			}
		}
		l2, _, err := Open(o)
		if err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		if end := l2.Offsets().End; end < min(acked, l.Offsets().End) {
			t.Fatalf("operation %d: reopened at %d, %d was acknowledged", n, end, acked)
		}
		if done {
			if n < 60 {
				t.Fatalf("only %d operations", n)
			}
			return
		}
	}
}

func TestAFailedSyncIsFinal(t *testing.T) {
	f := vfs.NewFault(vfs.NewMem())
	l := mustOpen(t, options(f, small()))
	add(t, l, batch(0, 1, t0.UnixMilli()), 0)
	once := true
	f.Script(func(_ int, op vfs.Op) vfs.Verdict {
		if op.Kind == vfs.OpSync && once && op.Name == "d/t-0/00000000000000000000.log" {
			once = false
			return vfs.Verdict{Err: syscall.EIO}
		}
		return vfs.Verdict{}
	})
	if err := l.Flush(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := l.Flush(); !errors.Is(err, kerr.KafkaStorageError) || l.Offsets().Durable != 0 {
		t.Fatalf("the second try: %v, durable %d", err, l.Offsets().Durable)
	}
}

func TestDamageBelowTheRecoveryPointIsNotCut(t *testing.T) {
	m := vfs.NewMem()
	o := options(m, small())
	l := mustOpen(t, o)
	for i := range 5 {
		add(t, l, batch(i, 1, t0.UnixMilli()), 0)
	}
	l.Abandon()
	name := "d/t-0/00000000000000000000.log"
	h, _ := m.OpenFile(name, vfs.ReadWrite)
	var b [1]byte
	h.ReadAt(b[:], 200)
	b[0] ^= 0xff
	h.WriteAt(b[:], 200)
	o.RecoveryPoint = 5
	if _, _, err := Open(o); !errors.Is(err, kerr.KafkaStorageError) {
		t.Fatalf("damage below the recovery point: %v", err)
	}
	o.RecoveryPoint = 0
	l, rec, err := Open(o)
	if err != nil || rec.TruncatedBytes == 0 || l.Offsets().End >= 5 {
		t.Fatalf("damage above it: %+v, %v", rec, err)
	}
}

// Recovery of any damaged file opens or refuses, and what it opens is whole.
func FuzzRecover(f *testing.F) {
	m := vfs.NewMem()
	l := mustOpen(f, options(m, small()))
	for i := range 8 {
		add(f, l, batch(i, 2, t0.UnixMilli()), 0)
	}
	good, _ := vfs.ReadFile(m, "d/t-0/00000000000000000000.log")
	f.Add(good, []byte{}, []byte{})
	f.Add(good[:len(good)-3], []byte{0, 0, 0, 1, 0, 0, 0, 2}, []byte{1})
	f.Add(append(bytes.Clone(good), make([]byte, 500)...), make([]byte, 80), make([]byte, 24))
	f.Fuzz(func(t *testing.T, log, index, times []byte) {
		for _, clean := range []bool{false, true} {
			m := vfs.NewMem()
			m.MkdirAll("d/t-0")
			put := func(name string, b []byte) {
				h, _ := m.OpenFile("d/t-0/"+name, vfs.ReadWrite|vfs.Create)
				h.WriteAt(b, 0)
				h.Close()
			}
			put("partition.metadata", []byte("version: 0\ntopic_id: "+topic.String()))
			put("00000000000000000000.log", log)
			put("00000000000000000000.index", index)
			put("00000000000000000000.timeindex", times)
			o := options(m, small())
			o.Clean = clean
			l, _, err := Open(o)
			if err != nil {
				continue
			}
			if clean {
				for off := l.Offsets().LogStart; off < min(l.Offsets().End, l.Offsets().LogStart+50); off++ {
					if r, err := l.Read(off, l.Offsets().End, 100, true); err == nil {
						r.Region.Done()
					}
				}
				continue
			}
			for _, b := range readAll(t, l, l.Offsets().LogStart, l.Offsets().End, 1<<20) {
				if !b.ValidCRC() {
					t.Fatal("a damaged batch survived recovery")
				}
			}
			l.OffsetForTimestamp(t0.UnixMilli())
			add(t, l, batch(1, 1, t0.UnixMilli()), 1)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
