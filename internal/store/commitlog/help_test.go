package commitlog

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
)

var (
	t0    = time.UnixMilli(1_700_000_000_000)
	topic = ids.UUID{7: 7}
)

func small() *config.Log {
	c := config.DefaultLog()
	c.SegmentBytes = 1000
	c.IndexIntervalBytes = 100
	return c
}

func options(fs vfs.FS, cfg *config.Log) Options {
	return Options{FS: fs, Dir: "d/t-0", TP: ids.TopicPartition{Topic: "t"}, TopicID: topic, Config: cfg,
		Now: func() time.Time { return t0 }, ProducerExpiryMs: 86400000}
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, _, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// batch has n records, "value I" counting from the batch's number.
func batch(number, n int, ts int64) record.Batch {
	b := record.Builder{Timestamp: ts}
	for i := range n {
		b.AddAt(ts+int64(i), fmt.Appendf(nil, "k%d", number%7), fmt.Appendf(nil, "value %d of batch %d", i, number))
	}
	return b.Build()
}

func idempotent(pid int64, epoch int16, seq int32, n int, txn bool) record.Batch {
	b := record.Builder{HasProducer: true, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq, Timestamp: t0.UnixMilli()}
	if txn {
		b.Attributes |= record.TransactionalBit
	}
	for i := range n {
		b.Add([]byte("k"), fmt.Appendf(nil, "%d", i))
	}
	return b.Build()
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

func add(t testing.TB, l *Log, b record.Batch, epoch int32) Appended {
	t.Helper()
	a, err := l.Append(record.Trust(b), epoch, t0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// readAll gives all batches of [from, upper) by ordinary reads.
func readAll(t testing.TB, l *Log, from, upper int64, maxBytes int) []record.Batch {
	t.Helper()
	var out []record.Batch
	for from < upper {
		r, err := l.Read(from, upper, maxBytes, true)
		if err != nil {
			t.Fatalf("read at %d: %v", from, err)
		}
		raw, err := r.Region.ReadAll()
		r.Region.Done()
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 {
			break
		}
		got := 0
		for len(raw) > 0 {
			b, rest, err := record.Next(raw)
			if err != nil {
				break // cut by maxBytes
			}
			if !b.ValidCRC() {
				t.Fatalf("batch at %d fails its checksum", b.BaseOffset())
			}
			if b.LastOffset() < from {
				t.Fatalf("batch %d..%d below %d", b.BaseOffset(), b.LastOffset(), from)
			}
			out, raw, from = append(out, b), rest, b.NextOffset()
			got++
		}
		if got == 0 {
			t.Fatalf("read at %d gave no whole batch", from)
		}
	}
	return out
}

// checkWhole reads everything and checks that offsets have no hole.
func checkWhole(t testing.TB, l *Log) []record.Batch {
	t.Helper()
	o := l.Offsets()
	all := readAll(t, l, o.LogStart, o.End, 1<<20)
	next := o.LogStart
	for i, b := range all {
		if b.BaseOffset() != next && !(i == 0 && b.BaseOffset() <= next) {
			t.Fatalf("hole: batch at %d, expected %d", b.BaseOffset(), next)
		}
		next = b.NextOffset()
	}
	if next != o.End {
		t.Fatalf("batches end at %d, the log at %d", next, o.End)
	}
	return all
}
