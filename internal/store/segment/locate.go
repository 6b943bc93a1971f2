package segment

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"

	"runnel/internal/kit/record"
)

const (
	indexWidth = 8
	timeWidth  = 12
)

// Spot is where a batch lies.
type Spot struct {
	Base, Last int64 // offsets
	Position   int64
	Size       int32
}

type spot = Spot

// ringSize is how many of the newest batches are found without reading anything: the
// place where followers and consumers at the tail read.
const ringSize = 64

// ring remembers the newest batches in order. It is empty, and small, until the first
// append.
type ring struct {
	mu struct {
		sync.Mutex
		spots []spot
		start int
	}
}

func (r *ring) add(s spot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.mu.spots); n < ringSize {
		if n == cap(r.mu.spots) {
			grown := make([]spot, n, max(4, 2*n))
			copy(grown, r.mu.spots)
			r.mu.spots = grown
		}
		r.mu.spots = append(r.mu.spots, s)
		return
	}
	r.mu.spots[r.mu.start] = s
	r.mu.start = (r.mu.start + 1) % ringSize
}

func (r *ring) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.spots, r.mu.start = nil, 0
}

// find gives the first batch whose last offset is not below offset, if the ring reaches
// back that far.
func (r *ring) find(offset int64) (spot, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.mu.spots)
	if n == 0 || offset < r.mu.spots[r.mu.start].Base {
		return spot{}, false
	}
	i := sort.Search(n, func(i int) bool { return r.mu.spots[(r.mu.start+i)%n].Last >= offset })
	if i == n {
		return spot{}, false
	}
	return r.mu.spots[(r.mu.start+i)%n], true
}

func (s *Segment) addIndex(last, at int64) {
	var e [indexWidth]byte
	be.PutUint32(e[:], uint32(last-s.base))
	be.PutUint32(e[4:], uint32(at))
	s.index.append(e[:])
}

// addTime appends the current maximum if it is above the last entry's.
func (s *Segment) addTime() {
	s.max.Lock()
	ts, off := s.max.timestamp, s.max.offset
	s.max.Unlock()
	var e [timeWidth]byte
	if ok, err := s.times.last(e[:]); err != nil || ok && int64(be.Uint64(e[:])) >= ts || ts < 0 {
		return
	}
	be.PutUint64(e[:], uint64(ts))
	be.PutUint32(e[8:], uint32(off-s.base))
	s.times.append(e[:])
}

func timeEntry(e []byte, base int64) (ts, offset int64) {
	return int64(be.Uint64(e)), base + int64(be.Uint32(e[8:]))
}

// Locate finds the first batch within limit bytes whose last offset is not below offset.
func (s *Segment) Locate(offset, limit int64) (at Spot, found bool, err error) {
	if at, ok := s.recent.find(offset); ok {
		return at, at.Position+int64(at.Size) <= limit, nil
	}
	from := s.floor(offset, limit)
	at, found, err = s.scanFor(offset, from, limit)
	if from > 0 && (err != nil && isCorrupt(err) || err == nil && found && at.Position == from && at.Base > offset) {
		// The index pointed between batches, or too far: it is wrong, so do without it.
		return s.scanFor(offset, 0, limit)
	}
	return at, found, err
}

func isCorrupt(err error) bool {
	return errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrShort)
}

// floor is a position at or before the batch that holds offset, by the index.
func (s *Segment) floor(offset, limit int64) int64 {
	rel := offset - s.base
	if rel <= 0 {
		return 0
	}
	var e [indexWidth]byte
	i, err := s.index.search(e[:], func(e []byte) bool { return int64(be.Uint32(e)) <= rel })
	if err != nil || i < 0 {
		return 0
	}
	if pos := int64(be.Uint32(e[4:])); pos < limit {
		return pos
	}
	return 0
}

func (s *Segment) scanFor(offset, from, limit int64) (at Spot, found bool, err error) {
	err = s.Headers(from, limit, func(pos int64, b record.Batch) (bool, error) {
		if b.LastOffset() < offset {
			return true, nil
		}
		at, found = Spot{b.BaseOffset(), b.LastOffset(), pos, int32(b.Size())}, true
		return false, nil
	})
	return at, found, err
}

var headerBuffers = sync.Pool{New: func() any { b := make([]byte, 4096); return &b }}

// Headers walks the batches in [from, limit) and shows the first HeaderSize bytes of
// each; Size tells the batch's real length. see returns false to stop. A batch that does
// not fit below limit gives ErrShort.
func (s *Segment) Headers(from, limit int64, see func(pos int64, header record.Batch) (bool, error)) error {
	if from >= limit {
		return nil
	}
	p, err := s.pin()
	if err != nil {
		return err
	}
	defer p.done()
	hold := headerBuffers.Get().(*[]byte)
	defer headerBuffers.Put(hold)
	buf, have, start := *hold, 0, from // buf[:have] holds the file from start on
	for pos := from; pos < limit; {
		if limit-pos < record.HeaderSize {
			return s.broken(pos, record.ErrShort)
		}
		if pos-start+record.HeaderSize > int64(have) {
			n, err := p.file.ReadAt(buf[:min(int64(len(buf)), limit-pos)], pos)
			if n < record.HeaderSize {
				if err == nil || err == io.EOF {
					return s.broken(pos, record.ErrShort)
				}
				return err
			}
			have, start = n, pos
		}
		h := record.Batch(buf[pos-start : pos-start+record.HeaderSize])
		n, err := record.HeaderBatchSize(h)
		if err != nil {
			return s.broken(pos, err)
		}
		if int64(n) > limit-pos {
			return s.broken(pos, record.ErrShort)
		}
		if more, err := see(pos, h); err != nil || !more {
			return err
		}
		pos += int64(n)
	}
	return nil
}

func (s *Segment) broken(pos int64, err error) error {
	return fmt.Errorf("%s at byte %d: %w", s.name(LogSuffix), pos, err)
}

// Batches walks the whole batches in [from, limit). The bytes are valid only during see.
func (s *Segment) Batches(from, limit int64, see func(pos int64, b record.Batch) (bool, error)) error {
	p, err := s.pin()
	if err != nil {
		return err
	}
	defer p.done()
	buf := make([]byte, min(256<<10, max(limit-from, 0)))
	var have []byte
	for pos := from; pos < limit; {
		b, rest, err := record.Next(have)
		if errors.Is(err, record.ErrShort) {
			want := int64(record.LogOverhead + 5)
			if len(have) >= int(want) {
				n, err := record.HeaderBatchSize(have)
				if err != nil {
					return s.broken(pos, err)
				}
				want = int64(n)
			}
			if want > limit-pos {
				return s.broken(pos, record.ErrShort)
			}
			if want > int64(len(buf)) {
				buf = make([]byte, want)
			}
			n, err := p.file.ReadAt(buf[:min(int64(len(buf)), limit-pos)], pos)
			if int64(n) < want {
				if err == nil || err == io.EOF {
					return s.broken(pos, record.ErrShort)
				}
				return err
			}
			have = buf[:n]
			continue
		}
		if err != nil {
			return s.broken(pos, err)
		}
		if more, err := see(pos, b); err != nil || !more {
			return err
		}
		have, pos = rest, pos+int64(len(b))
	}
	return nil
}

// FindTime finds the first batch at or after offset from whose max timestamp is not below
// ts.
func (s *Segment) FindTime(ts, from, limit int64) (at Spot, found bool, err error) {
	var e [timeWidth]byte
	start := int64(0)
	i, err := s.times.search(e[:], func(e []byte) bool { return int64(be.Uint64(e)) < ts })
	if err == nil && i >= 0 {
		// Everything up to the entry's batch is older than ts.
		_, off := timeEntry(e[:], s.base)
		start = s.floor(max(off, from), limit)
	} else {
		start = s.floor(from, limit)
	}
	scan := func(start int64) error {
		return s.Headers(start, limit, func(pos int64, b record.Batch) (bool, error) {
			if b.LastOffset() < from || b.MaxTimestamp() < ts {
				return true, nil
			}
			at, found = Spot{b.BaseOffset(), b.LastOffset(), pos, int32(b.Size())}, true
			return false, nil
		})
	}
	err = scan(start)
	if isCorrupt(err) && start > 0 {
		found = false
		err = scan(0)
	}
	return at, found, err
}

// UpperBound is the offset of the first index entry at or after position, by which a
// fetch bounds the aborted transactions it needs; ok is false without one.
func (s *Segment) UpperBound(position int64) (int64, bool) {
	var e [indexWidth]byte
	n, err := s.index.len()
	if err != nil || n == 0 {
		return 0, false
	}
	// The entry after the last one below position.
	i, err := s.index.search(e[:], func(e []byte) bool { return int64(be.Uint32(e[4:])) < position })
	if err != nil || i+1 >= n {
		return 0, false
	}
	if err := s.index.get(i+1, e[:]); err != nil {
		return 0, false
	}
	return s.base + int64(be.Uint32(e[:])), true
}
