package segment

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
)

var t0 = time.UnixMilli(1_700_000_000_000)

func batchAt(base int64, n int, ts int64) record.Batch {
	b := record.Builder{BaseOffset: base, Timestamp: ts}
	for range n {
		b.Add(nil, []byte("some value of a record"))
	}
	return b.Build()
}

// filled is a segment with batches, some offsets left out as compaction does.
func filled(t testing.TB, m vfs.FS, rnd *rand.Rand, n int) (*Segment, []record.Batch) {
	t.Helper()
	s := Open(m, "", 1000, 0, t0)
	if err := s.Create(t0); err != nil {
		t.Fatal(err)
	}
	next := int64(1000)
	var all []record.Batch
	for range n {
		if rnd.IntN(3) == 0 {
			next += rnd.Int64N(20)
		}
		b := batchAt(next, 1+rnd.IntN(4), rnd.Int64N(100_000))
		if err := s.Append(b, 150); err != nil {
			t.Fatal(err)
		}
		all, next = append(all, b), b.NextOffset()
	}
	return s, all
}

func checkLocate(t *testing.T, s *Segment, all []record.Batch, what string) {
	t.Helper()
	pos, i := int64(0), 0
	for off := int64(1000); off < all[len(all)-1].NextOffset()+3; off++ {
		for i < len(all) && all[i].LastOffset() < off {
			pos += int64(len(all[i]))
			i++
		}
		at, found, err := s.Locate(off, s.Size())
		if err != nil || found != (i < len(all)) || found && (at.Position != pos || at.Base != all[i].BaseOffset()) {
			t.Fatalf("%s: offset %d is at %+v %t %v, want byte %d", what, off, at, found, err, pos)
		}
	}
	for ts := int64(-1); ts < 100_001; ts += 501 {
		want := int64(-1)
		for _, b := range all {
			if b.MaxTimestamp() >= ts {
				want = b.BaseOffset()
				break
			}
		}
		at, found, err := s.FindTime(ts, 1000, s.Size())
		if err != nil || found != (want >= 0) || found && at.Base != want {
			t.Fatalf("%s: time %d is at %+v %t %v, want %d", what, ts, at, found, err, want)
		}
	}
}

// Whatever the offset index says, lookups equal a scan: it is only a hint.
func TestLocateEqualsScanWithAnyIndex(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m := vfs.NewMem()
		s, all := filled(t, m, rnd, 150)
		checkLocate(t, s, all, "written")
		if err := s.FinishIndexes(true); err != nil {
			t.Fatal(err)
		}
		again := func() *Segment { return Open(m, "", 1000, s.Size(), t0) }
		checkLocate(t, again(), all, "reopened")
		if end, err := again().EndOffset(); err != nil || end != all[len(all)-1].NextOffset() {
			t.Fatalf("end %d, %v", end, err)
		}
		// A preallocated tail of zeros, a file cut anywhere, and garbage positions.
		index := s.name(IndexSuffix)
		h, _ := m.OpenFile(index, vfs.ReadWrite)
		size, _ := h.Size()
		h.Truncate(size - 3)
		checkLocate(t, again(), all, "cut")
		for i := int64(0); i < size/8; i++ {
			if rnd.IntN(3) == 0 {
				var e [4]byte
				be.PutUint32(e[:], rnd.Uint32N(uint32(s.Size())))
				h.WriteAt(e[:], i*8+4)
			}
		}
		h.Close()
		wrong := again()
		for _, b := range all { // ordered positions no longer hold, but batches are found
			at, found, err := wrong.Locate(b.BaseOffset(), s.Size())
			if err != nil || !found || at.Last < b.BaseOffset() {
				t.Fatalf("garbage index: %d at %+v %t %v", b.BaseOffset(), at, found, err)
			}
		}
		r, err := again().Recover(150, func(record.Batch) error { return nil })
		if err != nil || r.Truncated != 0 || r.Next != all[len(all)-1].NextOffset() {
			t.Fatalf("recover: %+v, %v", r, err)
		}
	}
}

func TestRecoverFindsTheLastWholeBatch(t *testing.T) {
	for name, damage := range map[string]func(h vfs.File, size int64){
		"cut header": func(h vfs.File, size int64) { h.Truncate(size + 20) },
		"zeros":      func(h vfs.File, size int64) { h.Truncate(size + 5000) },
		"garbage": func(h vfs.File, size int64) {
			h.WriteAt([]byte("this is not a record batch, it is longer than a header and no more"), size)
		},
		"cut batch":  func(h vfs.File, size int64) { b := batchAt(9000, 3, 1); h.WriteAt(b[:len(b)-2], size) },
		"bad crc":    func(h vfs.File, size int64) { b := batchAt(9000, 3, 1); b[len(b)-1] ^= 1; h.WriteAt(b, size) },
		"old offset": func(h vfs.File, size int64) { h.WriteAt(batchAt(1000, 3, 1), size) },
	} {
		m := vfs.NewMem()
		s, all := filled(t, m, rand.New(rand.NewPCG(1, 1)), 20)
		h, _ := m.OpenFile(s.name(LogSuffix), vfs.ReadWrite)
		damage(h, s.Size())
		size, _ := h.Size()
		again := Open(m, "", 1000, size, t0)
		n := 0
		r, err := again.Recover(150, func(record.Batch) error { n++; return nil })
		if err != nil || r.Truncated != size-s.Size() || n != 20 || r.Next != all[19].NextOffset() || r.Cause == nil {
			t.Errorf("%s: %+v, %d batches, %v", name, r, n, err)
		}
	}
}

func TestOldFormatIsRefusedNotCut(t *testing.T) {
	m := vfs.NewMem()
	msg := make([]byte, 34) // one message of magic 1: offset, size, crc, magic, attributes, time, key, value
	be.PutUint64(msg, 1000)
	be.PutUint32(msg[8:], 22)
	msg[16] = 1
	be.PutUint32(msg[26:], 0xffffffff)
	be.PutUint32(msg[30:], 0xffffffff)
	be.PutUint32(msg[12:], ieee(msg[16:]))
	h, _ := m.OpenFile(Stem(1000)+LogSuffix, vfs.ReadWrite|vfs.Create)
	h.WriteAt(msg, 0)
	if _, err := Open(m, "", 1000, 34, t0).Recover(150, func(record.Batch) error { return nil }); !errors.Is(err, errOldFormat) {
		t.Fatal(err)
	}
}

// The binary search over a file and a tail equals a walk.
func TestTableSearch(t *testing.T) {
	m := vfs.NewMem()
	s := Open(m, "", 0, 0, t0)
	tab := &s.index
	tab.begin()
	const n = 3 * tailEntries
	for i := range n + 100 {
		var e [8]byte
		be.PutUint32(e[:], uint32(2*i))
		if err := tab.append(e[:]); err != nil {
			t.Fatal(err)
		}
	}
	for v := -1; v < 2*(n+110); v += 7 {
		var e [8]byte
		i, err := tab.search(e[:], func(e []byte) bool { return int(be.Uint32(e)) <= v })
		want := min(v/2, n+99)
		if v < 0 {
			want = -1
		}
		if err != nil || i != want || i >= 0 && int(be.Uint32(e[:])) != 2*i {
			t.Fatalf("search %d: entry %d, want %d, %v", v, i, want, err)
		}
	}
	if err := tab.truncate(700); err != nil {
		t.Fatal(err)
	}
	if l, _ := tab.len(); l != 700 {
		t.Fatalf("%d entries after truncation", l)
	}
	// What takes the place of cut entries is found, not what a search before remembers.
	for i := range n {
		var e [8]byte
		be.PutUint32(e[:], uint32(2*700+20*i))
		if err := tab.append(e[:]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time from the page that the first left
		for i := 690; i < 720; i++ {
			want := 2 * i
			if i >= 700 {
				want = 2*700 + 20*(i-700)
			}
			var e [8]byte
			got, err := tab.search(e[:], func(e []byte) bool { return int(be.Uint32(e)) <= want })
			if err != nil || got != i || int(be.Uint32(e[:])) != want {
				t.Fatalf("after the cut: search %d: entry %d of %d, want %d, %v", want, got, be.Uint32(e[:]), i, err)
			}
		}
	}
}

// The next search near the last one reads no file.
func TestTableRemembersItsPage(t *testing.T) {
	m := vfs.NewMem()
	s := Open(m, "", 0, 0, t0)
	tab := &s.index
	tab.begin()
	for i := range 4 * tailEntries {
		var e [8]byte
		be.PutUint32(e[:], uint32(i))
		if err := tab.append(e[:]); err != nil {
			t.Fatal(err)
		}
	}
	var buf [8]byte
	find := func(v int) (int, error) {
		return tab.search(buf[:], func(e []byte) bool { return int(be.Uint32(e)) <= v })
	}
	if i, err := find(300); i != 300 || err != nil {
		t.Fatal(i, err)
	}
	p := tab.recall() // held: the page is weak
	if err := m.Remove(tab.name()); err != nil {
		t.Fatal(err)
	}
	if i, err := find(301); i != 301 || err != nil {
		t.Errorf("entry %d, %v", i, err)
	}
	if i, err := find(1500); err == nil {
		t.Errorf("entry %d of a file that is gone", i)
	}
	runtime.KeepAlive(p)
}

func TestAbortedIndexBounds(t *testing.T) {
	m := vfs.NewMem()
	s := Open(m, "", 0, 0, t0)
	if err := s.Create(t0); err != nil {
		t.Fatal(err)
	}
	for _, a := range []AbortedTxn{{1, 0, 10, 5}, {2, 5, 20, 21}, {3, 30, 40, 41}} {
		if err := s.AddAborted(a); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		from, upper int64
		want        int
		done        bool
	}{{0, 4, 1, true}, {0, 6, 2, true}, {11, 30, 1, true}, {21, 30, 0, true}, {0, 100, 3, false}, {41, 100, 0, false}} {
		got, done, err := s.Aborted(x.from, x.upper, nil)
		if err != nil || len(got) != x.want || done != x.done {
			t.Errorf("[%d, %d): %v done %t, %v", x.from, x.upper, got, done, err)
		}
	}
	if err := s.CheckAborted(); err != nil {
		t.Fatal(err)
	}
	h, _ := m.OpenFile(s.name(TxnIndexSuffix), vfs.ReadWrite)
	h.WriteAt([]byte{9}, 0)
	if err := Open(m, "", 0, 0, t0).CheckAborted(); err == nil {
		t.Fatal("a broken index passed")
	}
}
