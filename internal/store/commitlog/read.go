package commitlog

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/segment"
)

// Read is what a fetch gets: a pinned range of whole bytes of one segment, which may end
// inside a batch.
type Read struct {
	Region vfs.Region
	// BaseOffset is the base of the first batch, which may be below the offset asked for.
	BaseOffset int64

	next int64            // no offset in the region is at or above it
	cut  *segment.Segment // if the region ends before its segment does
}

// Upper bounds the offsets in the region, for AbortedTxns. It is found only when asked for: most fetches are not
// read_committed, and it costs a search of the index.
func (r Read) Upper() int64 {
	if r.cut != nil {
		if u, ok := r.cut.UpperBound(r.Region.Off + r.Region.Len); ok {
			return min(r.next, u)
		}
	}
	return r.next
}

// Read gives the batches from the one that holds offset on, up to upper (exclusive; where
// a batch begins) and at most maxBytes, or one whole batch if that is larger and
// atLeastOne is set. Nothing to read gives an empty region. Offsets outside the log are
// OFFSET_OUT_OF_RANGE.
func (l *Log) Read(offset, upper int64, maxBytes int, atLeastOne bool) (Read, error) {
	for {
		cuts := l.cuts.Load()
		r, err := l.readOnce(offset, upper, maxBytes, atLeastOne)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, segment.ErrGone) && (!isDiskErr(err) || l.cuts.Load() == cuts) {
			return r, l.settleRead(err)
		}
		// Deleted, rewritten or cut meanwhile: the published list says what is there now.
	}
}

func (l *Log) readOnce(offset, upper int64, maxBytes int, atLeastOne bool) (Read, error) {
	v := l.pub.load()
	if err := l.Failed(); err != nil {
		return Read{}, err
	}
	if l.ended.Load() {
		return Read{}, fmt.Errorf("log %s: %w", l.Dir(), ErrClosed)
	}
	if err := v.inRange(offset); err != nil {
		return Read{}, err
	}
	upper = min(upper, v.End)
	for i := v.floor(offset); i < len(v.segments) && offset < upper && v.segments[i].Base() < upper; i++ {
		s, limit := v.segments[i], v.limit(i)
		at, found, err := s.Locate(offset, limit)
		if err != nil {
			return Read{}, &diskError{err}
		}
		if !found {
			continue // the rest of this segment was compacted away
		}
		if at.Base >= upper {
			break
		}
		end, err := v.position(i, upper)
		if err != nil {
			return Read{}, &diskError{err}
		}
		n := min(end-at.Position, int64(maxBytes))
		if atLeastOne {
			n = max(n, int64(at.Size))
		}
		if n <= 0 {
			break
		}
		region, err := s.Region(at.Position, n)
		if err != nil {
			return Read{}, &diskError{err}
		}
		r := Read{Region: region, BaseOffset: at.Base, next: v.next(i)}
		if at.Position+n < limit {
			r.cut = s
		}
		return r, nil
	}
	return Read{BaseOffset: offset, next: offset}, nil
}

// diskError marks what a file gave, to be told from refusals.
type diskError struct{ err error }

func (e *diskError) Error() string { return e.err.Error() }
func (e *diskError) Unwrap() error { return e.err }

func isDiskErr(err error) bool {
	var d *diskError
	return errors.As(err, &d)
}

// settleRead ends the log if its disk gave the error.
func (l *Log) settleRead(err error) error {
	var d *diskError
	if errors.As(err, &d) {
		return l.readErr(d.err)
	}
	return err
}

func (v *view) inRange(offset int64) error {
	if offset < v.LogStart || offset > v.End {
		return fmt.Errorf("offset %d is outside the log, %d to %d: %w", offset, v.LogStart, v.End, kerr.OffsetOutOfRange)
	}
	return nil
}

// position is where in segment i the batches below upper end.
func (v *view) position(i int, upper int64) (int64, error) {
	limit := v.limit(i)
	if upper >= v.next(i) {
		return limit, nil
	}
	at, found, err := v.segments[i].Locate(upper, limit)
	if err != nil || !found {
		return limit, err
	}
	return at.Position, nil
}

// readErr keeps what is not the disk's fault apart from what is.
func (l *Log) readErr(err error) error {
	if errors.Is(err, segment.ErrGone) {
		return err
	}
	if errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrShort) {
		return l.Fail(fmt.Errorf("%w: %w", kerr.CorruptMessage, err))
	}
	return l.Fail(err)
}

// Bytes counts, cheaply and at most to limit, what a Read of [offset, upper) could give. If
// the offsets lie in different segments there is enough: limit.
func (l *Log) Bytes(offset, upper, limit int64) int64 {
	v := l.pub.load()
	upper = min(upper, v.End)
	if offset >= upper || offset < v.LogStart {
		return 0
	}
	i := v.floor(offset)
	if upper > v.next(i) {
		return limit
	}
	at, found, err := v.segments[i].Locate(offset, v.limit(i))
	if err != nil || !found {
		return limit // let the read find out
	}
	end, err := v.position(i, upper)
	if err != nil {
		return limit
	}
	return max(0, min(end-at.Position, limit))
}

// AbortedTxn is a transaction whose records a read_committed consumer must skip.
type AbortedTxn = segment.AbortedTxn

// AbortedTxns lists the aborted transactions with records in [from, upper).
func (l *Log) AbortedTxns(from, upper int64) ([]AbortedTxn, error) {
	v := l.pub.load()
	var out []AbortedTxn
	for i := v.floor(from); i < len(v.segments); i++ {
		var done bool
		var err error
		if out, done, err = v.segments[i].Aborted(from, upper, out); err != nil {
			if isNotExist(err) || errors.Is(err, segment.ErrGone) {
				return l.AbortedTxns(max(from, l.Offsets().LogStart), upper)
			}
			return nil, l.readErr(err)
		}
		if done {
			break
		}
	}
	return out, nil
}
