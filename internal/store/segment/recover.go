package segment

import (
	"errors"
	"fmt"
	"io/fs"

	"runnel/internal/kit/record"
)

// HasIndex reports whether the offset index file exists; without it the segment has to be
// recovered.
func (s *Segment) HasIndex() (bool, error) {
	if err := s.index.load(); err != nil {
		return false, err
	}
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	return s.index.mu.exists, nil
}

// errOldFormat refuses what must not be cut off as garbage.
var errOldFormat = errors.New("holds messages of the formats before Apache Kafka 0.11 (magic 0 and 1), which are not supported; let Apache Kafka 3.x rewrite the topic first")

// Recovered is the outcome of Recover.
type Recovered struct {
	Bytes     int64 // scanned
	Truncated int64 // cut off after the last valid batch
	Next      int64 // offset after the last valid batch, or the base
	Cause     error // why it was cut, nil if it was not
}

// Recover checks every batch from the start, rebuilds offset and time index and finds
// where the valid batches end; it does not cut. see is called for each valid batch, in
// order. The aborted transaction index is emptied: see's caller fills it again.
func (s *Segment) Recover(interval int64, see func(record.Batch) error) (r Recovered, err error) {
	for _, t := range []*table{&s.index, &s.times, &s.txns.table} {
		if err := t.truncate(0); err != nil {
			return r, err
		}
	}
	s.recent.clear()
	s.sinceIndex, s.firstTime, r.Next = 0, notRead, s.base
	s.setMax(-1, s.base)
	size, end := s.Size(), int64(0)
	next := s.base
	err = s.Batches(0, size, func(pos int64, b record.Batch) (bool, error) {
		switch {
		case !b.ValidCRC():
			return false, s.broken(pos, fmt.Errorf("%w: checksum %08x, stored %08x", record.ErrCorrupt, b.ComputeCRC(), b.StoredCRC()))
		case b.BaseOffset() < next || b.LastOffsetDelta() < 0 || b.LastOffset()-s.base > 1<<31-1:
			return false, s.broken(pos, fmt.Errorf("%w: offsets %d to %d after %d", record.ErrCorrupt, b.BaseOffset(), b.LastOffset(), next-1))
		}
		s.noteBatch(b, pos, interval)
		next, end = b.NextOffset(), pos+int64(len(b))
		return true, see(b)
	})
	r.Bytes, r.Next = size, next
	switch {
	case err == nil:
		return r, nil
	case !isCorrupt(err):
		return r, err
	case s.oldFormatAt(end):
		return r, fmt.Errorf("%s %w", s.name(LogSuffix), errOldFormat)
	}
	r.Truncated, r.Cause = size-end, err
	return r, nil
}

// oldFormatAt looks for a message of magic 0 or 1 with a sensible length, so that such a
// log is refused and not cut to nothing.
func (s *Segment) oldFormatAt(pos int64) bool {
	p, err := s.pin()
	if err != nil {
		return false
	}
	defer p.done()
	var h [26]byte
	if readFull(p.file, h[:], pos) != nil {
		return false
	}
	length, magic := int32(be.Uint32(h[8:])), h[16]
	if magic > 1 || length < 14 || int64(length)+record.LogOverhead > s.Size()-pos || int64(be.Uint64(h[:])) < s.base {
		return false
	}
	body := make([]byte, length-4)
	if readFull(p.file, body, pos+16) != nil {
		return false
	}
	return ieee(body) == be.Uint32(h[12:])
}

// Cut drops the bytes from position at on without touching the indexes, which Recover
// has rebuilt for what stays.
func (s *Segment) Cut(at int64) error {
	if err := s.KeepOpen(); err != nil {
		return err
	}
	if err := s.handle.kept.file.Truncate(at); err != nil {
		return err
	}
	s.size.Store(at)
	s.dirty = true
	return nil
}

// EndOffset is the offset after the last batch, found from the last index entry on.
func (s *Segment) EndOffset() (int64, error) {
	var e [indexWidth]byte
	from := int64(0)
	if ok, err := s.index.last(e[:]); err != nil {
		return 0, err
	} else if ok {
		if p := int64(be.Uint32(e[4:])); p < s.Size() {
			from = p
		}
	}
	scan := func(from int64) (int64, error) {
		next := s.base
		err := s.Headers(from, s.Size(), func(_ int64, b record.Batch) (bool, error) {
			next = b.NextOffset()
			return true, nil
		})
		return next, err
	}
	next, err := scan(from)
	if from > 0 && (isCorrupt(err) || err == nil && next <= s.base) {
		return scan(0)
	}
	return next, err
}

// RemoveIndexes deletes index files that have no .log.
func (s *Segment) RemoveIndexes() error {
	for _, suffix := range Files[1:] {
		if err := s.fs.Remove(s.name(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
