package producer

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
)

func data(offset int64, pid int64, epoch int16, seq int32, n int, txn bool) record.Batch {
	b := record.Builder{BaseOffset: offset, HasProducer: true, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq, Timestamp: 1000 + offset}
	if txn {
		b.Attributes |= record.TransactionalBit
	}
	for range n {
		b.Add([]byte("k"), []byte("v"))
	}
	return b.Build()
}

func marker(offset int64, pid int64, epoch int16, coordinator int32, abort bool) record.Batch {
	b := record.Builder{BaseOffset: offset, HasProducer: true, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: -1,
		Timestamp: 1000 + offset, Attributes: record.TransactionalBit | record.ControlBit}
	key := []byte{0, 0, 0, 1}
	if abort {
		key[3] = 0
	}
	b.Add(key, binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(coordinator)))
	return b.Build()
}

func TestSequenceRules(t *testing.T) {
	type step struct {
		b    record.Batch
		err  error // nil: accepted and applied
		dup  int64 // base offset of the first result, or -1
		mode Rules
	}
	ok := func(b record.Batch) step { return step{b: b, dup: -1} }
	for name, steps := range map[string][]step{
		"in order": {ok(data(0, 1, 0, 0, 3, false)), ok(data(3, 1, 0, 3, 1, false)),
			{b: data(4, 1, 0, 5, 1, false), err: kerr.OutOfOrderSequenceNumber}},
		"unknown producer starts anywhere": {ok(data(0, 1, 4, 77, 1, false))},
		"unknown producer under transaction version 2": {
			{b: data(0, 1, 4, 77, 1, false), err: kerr.OutOfOrderSequenceNumber, mode: Rules{FirstSequenceZero: true}}},
		"new epoch starts at 0": {ok(data(0, 1, 0, 0, 3, false)), {b: data(3, 1, 1, 3, 1, false), err: kerr.OutOfOrderSequenceNumber}, ok(data(3, 1, 1, 0, 1, false)),
			{b: data(4, 1, 0, 3, 1, false), err: kerr.InvalidProducerEpoch}},
		"wrap": {ok(data(0, 1, 0, math.MaxInt32-1, 2, false)), ok(data(2, 1, 0, 0, 1, false))},
		"wrap inside a batch": {ok(data(0, 1, 0, math.MaxInt32, 3, false)), {b: data(9, 1, 0, math.MaxInt32, 3, false), dup: 0},
			ok(data(3, 1, 0, 2, 1, false))},
		"duplicates of the last five": {ok(data(0, 1, 0, 0, 2, false)), ok(data(2, 1, 0, 2, 1, false)), ok(data(3, 1, 0, 3, 1, false)), ok(data(4, 1, 0, 4, 1, false)),
			ok(data(5, 1, 0, 5, 1, false)), {b: data(9, 1, 0, 0, 2, false), dup: 0}, ok(data(6, 1, 0, 6, 1, false)),
			{b: data(9, 1, 0, 0, 2, false), err: kerr.OutOfOrderSequenceNumber}, {b: data(9, 1, 0, 4, 1, false), dup: 4}},
		"a marker with a new epoch starts at 0": {ok(data(0, 1, 0, 0, 1, true)), ok(marker(1, 1, 1, 0, false)), {b: data(2, 1, 1, 1, 1, true), err: kerr.OutOfOrderSequenceNumber},
			ok(data(2, 1, 1, 0, 1, true))},
		"coordinator writes have no sequence": {ok(data(0, 1, 0, -1, 1, true)), ok(data(1, 1, 0, -1, 1, true)), {b: data(2, 1, -1, -1, 1, true), err: kerr.InvalidProducerEpoch}},
	} {
		t.Run(name, func(t *testing.T) {
			var s State
			for i, st := range steps {
				d, isDup, err := s.Check(st.b, st.mode)
				if !errors.Is(err, st.err) || st.err == nil && err != nil {
					t.Fatalf("step %d: %v, want %v", i, err, st.err)
				}
				if err != nil {
					continue
				}
				if isDup != (st.dup >= 0) || isDup && d.BaseOffset != st.dup {
					t.Fatalf("step %d: duplicate %t %+v, want base %d", i, isDup, d, st.dup)
				}
				if !isDup {
					s.Apply(st.b, 0)
				}
			}
		})
	}
}

func TestMarkerRules(t *testing.T) {
	var s State
	s.Apply(data(0, 1, 5, 0, 1, true), 0)
	for _, x := range []struct {
		b    record.Batch
		mode Rules
		want error
	}{
		{marker(1, 1, 4, 0, true), Rules{}, kerr.InvalidProducerEpoch},
		{marker(1, 1, 5, 0, true), Rules{}, nil},
		{marker(1, 1, 5, 0, true), Rules{BumpedMarkers: true}, kerr.InvalidProducerEpoch},
		{marker(1, 1, 6, 0, true), Rules{BumpedMarkers: true}, nil},
	} {
		if _, _, err := s.Check(x.b, x.mode); !errors.Is(err, x.want) {
			t.Errorf("epoch %d, %+v: %v, want %v", x.b.ProducerEpoch(), x.mode, err, x.want)
		}
	}
	s.Apply(marker(1, 1, 6, 3, true), 0)
	if _, _, err := s.Check(marker(2, 1, 6, 3, true), Rules{BumpedMarkers: true}); err != nil {
		t.Errorf("a repeated marker without an open transaction: %v", err)
	}
	if _, _, err := s.Check(marker(2, 1, 6, 2, true), Rules{}); !errors.Is(err, kerr.TransactionCoordinatorFenced) {
		t.Errorf("a marker of an older coordinator: %v", err)
	}
}

func TestFirstUnstable(t *testing.T) {
	var s State
	s.Apply(data(0, 1, 0, 0, 2, true), 0)
	s.Apply(data(2, 2, 0, 0, 2, true), 0)
	if got := s.FirstUnstable(4); got != 0 {
		t.Fatalf("two open: %d", got)
	}
	e, ok := s.Apply(marker(4, 1, 0, 0, true), 0)
	if !ok || !e.Aborted || e.First != 0 || e.Last != 4 || e.LastStable != 2 {
		t.Fatalf("ended %+v %t", e, ok)
	}
	if got := s.FirstUnstable(4); got != 0 {
		t.Fatalf("marker not replicated: %d", got)
	}
	if got := s.FirstUnstable(5); got != 2 {
		t.Fatalf("marker replicated: %d", got)
	}
	e, _ = s.Apply(marker(5, 2, 0, 0, false), 0)
	if e.Aborted || e.LastStable != 6 {
		t.Fatalf("commit: %+v", e)
	}
	if got := s.FirstUnstable(6); got != None {
		t.Fatalf("all done: %d", got)
	}
	if _, ok := s.Apply(marker(6, 2, 0, 0, true), 0); ok {
		t.Fatal("a marker without a transaction ended one")
	}
}

func TestSnapshotRoundTrip(t *testing.T) {
	var s State
	s.Apply(data(0, 1, 2, 7, 3, false), 0)
	s.Apply(data(3, 9, 0, 0, 1, true), 0)
	s.Apply(marker(4, 12, 1, 8, true), 0)
	snap := s.Snapshot()
	if len(snap) != 10+3*46 {
		t.Fatalf("%d bytes", len(snap))
	}
	var back State
	if err := back.Load(snap, 5, 100); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back.Entries(), s.Entries()) || back.End() != 5 || back.FirstUnstable(5) != 3 {
		t.Fatalf("%+v\nwant %+v", back.Entries(), s.Entries())
	}
	if d, isDup, _ := back.Check(data(9, 1, 2, 7, 3, false), Rules{}); !isDup || d.BaseOffset != 0 {
		t.Error("the last batch's duplicate is not seen after a reload")
	}
	for i := range snap {
		bad := append([]byte(nil), snap...)
		bad[i] ^= 0x40
		if err := back.Load(bad, 5, 0); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
	}
}

func TestExpiryFollowsTheBrokersTime(t *testing.T) {
	var s State
	s.Apply(data(0, 1, 0, 0, 1, false), 10_000) // its records are from 1970
	s.Apply(data(1, 2, 0, 0, 1, true), 10_000)
	if n := s.Expire(10_500, 1000); n != 0 {
		t.Fatal("expired early")
	}
	if n := s.Expire(11_001, 1000); n != 1 || s.Len() != 1 {
		t.Fatalf("dropped %d; a producer with an open transaction stays", n)
	}
}

func FuzzLoad(f *testing.F) {
	var s State
	s.Apply(data(0, 1, 0, 0, 1, true), 0)
	f.Add(s.Snapshot())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 6 { // let the fuzzer past the checksum
			b = append([]byte(nil), b...)
			be.PutUint32(b[2:], record.CRC(b[6:]))
		}
		var s State
		if s.Load(b, 0, 0) == nil {
			var again State
			if err := again.Load(s.Snapshot(), 0, 0); err != nil || !reflect.DeepEqual(again.Entries(), s.Entries()) {
				t.Fatalf("not stable: %v", err)
			}
		}
	})
}
