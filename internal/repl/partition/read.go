package partition

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/vfs"
	"runnel/internal/store/commitlog"
	"runnel/internal/store/producer"
)

// Isolation says up to where a reader sees.
type Isolation int8

const (
	Uncommitted Isolation = iota // up to the high watermark
	Committed                    // up to the last stable offset, with the aborted list
	LogEnd                       // everything: a replica
)

// Fetch is one partition of a fetch request.
type Fetch struct {
	Offset           int64
	MaxBytes         int
	AtLeastOne       bool  // return the first batch even if it is larger than MaxBytes
	CurrentEpoch     int32 // -1 skips the check
	LastFetchedEpoch int32 // -1 skips the divergence check
	Isolation        Isolation
	FollowerOK       bool // a consumer of v11+: any replica may answer
}

// Fetched is the answer. Offsets are -1 with an error. Records pins a file range.
type Fetched struct {
	Err           error
	HighWatermark int64
	LastStable    int64
	LogStart      int64
	Records       vfs.Region
	Aborted       []commitlog.AbortedTxn
	Diverging     *Divergence
}

// Divergence tells a reader where its history and ours part.
type Divergence struct {
	Epoch     int32
	EndOffset int64
}

func failed(err error) Fetched {
	return Fetched{Err: err, HighWatermark: -1, LastStable: -1, LogStart: -1}
}

// Fetch answers one partition of a fetch (semantics.md 6.2). It takes no lock.
func (p *Partition) Fetch(f Fetch) Fetched {
	out := p.fetch(f)
	if p.moved(out.Err) {
		out = p.fetch(f)
	}
	p.stats.FetchRequests.Add(1)
	if out.Err != nil {
		p.stats.FailedFetch.Add(1)
	} else {
		p.stats.BytesOut.Add(out.Records.Len)
	}
	return out
}

// moved says that a read met the log that a move between directories just took out of
// service. When it returns the state holds the log in its place.
func (p *Partition) moved(err error) bool {
	if !errors.Is(err, commitlog.ErrClosed) {
		return false
	}
	p.mu.Lock() // whoever replaces a log holds it until the state says so
	defer p.mu.Unlock()
	return true
}

func (p *Partition) fetch(f Fetch) Fetched {
	check := p.Leading
	if f.FollowerOK {
		check = p.Readable
	}
	s, err := check(f.CurrentEpoch)
	if err != nil {
		return failed(err)
	}
	o := s.Log.Offsets()
	out := Fetched{HighWatermark: o.HighWatermark, LastStable: o.LastStable, LogStart: o.LogStart}
	if f.LastFetchedEpoch >= 0 {
		if d, err := diverges(s, f); err != nil {
			return failed(err)
		} else if d != nil {
			out.Diverging = d
			return out
		}
	}
	if f.Offset < o.LogStart || f.Offset > o.End {
		return failed(fmt.Errorf("offset %d is not between %d and %d: %w", f.Offset, o.LogStart, o.End, kerr.OffsetOutOfRange))
	}
	upper := bound(o, f.Isolation)
	if f.Offset >= upper || f.MaxBytes <= 0 && !f.AtLeastOne {
		if f.Isolation == Committed {
			out.Aborted = []commitlog.AbortedTxn{}
		}
		return out
	}
	read, err := s.Log.Read(f.Offset, upper, f.MaxBytes, f.AtLeastOne)
	if err != nil {
		if bad := s.Log.Failed(); bad != nil {
			p.Fail(bad)
		}
		return failed(err)
	}
	out.Records = read.Region
	if f.Isolation == Committed {
		out.Aborted, err = s.Log.AbortedTxns(f.Offset, read.Upper())
		if err != nil {
			read.Region.Done()
			return failed(err)
		}
		if out.Aborted == nil {
			out.Aborted = []commitlog.AbortedTxn{}
		}
	}
	return out
}

func bound(o commitlog.Offsets, i Isolation) int64 {
	switch i {
	case Committed:
		return o.LastStable
	case LogEnd:
		return o.End
	}
	return o.HighWatermark
}

func diverges(s *State, f Fetch) (*Divergence, error) {
	epoch, end := s.Log.EpochEnd(f.LastFetchedEpoch)
	switch {
	case epoch < 0 || end < 0:
		return nil, kerr.OffsetOutOfRange
	case epoch < f.LastFetchedEpoch || end < f.Offset:
		return &Divergence{epoch, end}, nil
	}
	return nil, nil
}

// HighWatermark, LogStart and Read serve coordinators that load their partition.
func (p *Partition) HighWatermark() int64 {
	if s := p.state.Load(); s.Log != nil {
		return s.Log.Offsets().HighWatermark
	}
	return 0
}

func (p *Partition) LogStart() int64 {
	if s := p.state.Load(); s.Log != nil {
		return s.Log.Offsets().LogStart
	}
	return 0
}

// Read copies whole batches from an offset on, below the high watermark; empty at it.
func (p *Partition) Read(from int64, maxBytes int) ([]byte, error) {
	b, err := p.read(from, maxBytes)
	if p.moved(err) {
		b, err = p.read(from, maxBytes)
	}
	return b, err
}

func (p *Partition) read(from int64, maxBytes int) ([]byte, error) {
	s, err := p.Leading(-1)
	if err != nil {
		return nil, err
	}
	hw := s.Log.Offsets().HighWatermark
	if from >= hw {
		return nil, nil
	}
	r, err := s.Log.Read(from, hw, maxBytes, true)
	if err != nil {
		return nil, err
	}
	defer r.Region.Done()
	return r.Region.ReadAll()
}

// Special timestamps of ListOffsets.
const (
	Latest                = int64(-1)
	Earliest              = int64(-2)
	MaxTimestamp          = int64(-3)
	EarliestLocal         = int64(-4)
	LatestTiered          = int64(-5)
	EarliestPendingUpload = int64(-6)
)

// OffsetTime is an answer of ListOffsets; -1 where there is none.
type OffsetTime struct {
	Offset, Timestamp int64
	Epoch             int32
}

var noOffset = OffsetTime{-1, -1, -1}

// ListOffset finds the offset for a time or a special timestamp (semantics.md 7).
func (p *Partition) ListOffset(ts int64, epoch int32, isolation Isolation, followerOK bool) (OffsetTime, error) {
	at, err := p.listOffset(ts, epoch, isolation, followerOK)
	if p.moved(err) {
		at, err = p.listOffset(ts, epoch, isolation, followerOK)
	}
	return at, err
}

func (p *Partition) listOffset(ts int64, epoch int32, isolation Isolation, followerOK bool) (OffsetTime, error) {
	check := p.Leading
	if followerOK {
		check = p.Readable
	}
	s, err := check(epoch)
	if err != nil {
		return noOffset, err
	}
	o := s.Log.Offsets()
	upper := bound(o, isolation)
	switch ts {
	case Latest:
		if isolation != LogEnd && o.HighWatermark < s.EpochStart {
			return noOffset, kerr.OffsetNotAvailable
		}
		return OffsetTime{upper, -1, s.LeaderEpoch}, nil
	case Earliest, EarliestLocal:
		e := s.Log.EpochFor(o.LogStart)
		return OffsetTime{o.LogStart, -1, e}, nil
	case LatestTiered, EarliestPendingUpload:
		return noOffset, nil // without tiering nothing is tiered
	}
	var found commitlog.OffsetTime
	var ok bool
	if ts == MaxTimestamp {
		found, ok, err = s.Log.MaxTimestamp()
	} else {
		found, ok, err = s.Log.OffsetForTimestamp(ts)
	}
	if err != nil {
		return noOffset, err
	}
	if !ok || found.Offset >= upper {
		return noOffset, nil
	}
	return OffsetTime{found.Offset, found.Timestamp, found.Epoch}, nil
}

// EpochEnd answers OffsetForLeaderEpoch (semantics.md 9).
func (p *Partition) EpochEnd(asked, currentEpoch int32) (int32, int64, error) {
	s, err := p.Leading(currentEpoch)
	if err != nil {
		return -1, -1, err
	}
	if asked < -1 {
		// Epochs below every known one end where the first known one starts.
		asked, end := s.Log.EpochEnd(-2)
		return asked, end, nil
	}
	e, end := s.Log.EpochEnd(asked)
	return e, end, nil
}

// DeleteRecords raises the log start to offset, -1 meaning the high watermark, and gives
// the new low watermark (semantics.md 10).
func (p *Partition) DeleteRecords(offset int64) (low int64, err error) {
	c := p.conf.Load()
	if c.Compact && !c.Delete {
		return -1, fmt.Errorf("cleanup.policy is compact; records are deleted only under a policy with delete: %w", kerr.PolicyViolation)
	}
	p.mu.Lock()
	s, err := p.Leading(-1)
	if err != nil {
		p.mu.Unlock()
		return -1, err
	}
	hw := s.Log.Offsets().HighWatermark
	if offset == -1 {
		offset = hw
	}
	if offset < 0 || offset > hw {
		p.mu.Unlock()
		return -1, fmt.Errorf("offset %d is not between 0 and the high watermark %d: %w", offset, hw, kerr.OffsetOutOfRange)
	}
	err = s.Log.RaiseLogStart(offset)
	low = s.Log.Offsets().LogStart
	p.mu.Unlock()
	p.watch.fire()
	if err != nil {
		if failed := s.Log.Failed(); failed != nil {
			p.Fail(failed)
		}
		return -1, err
	}
	return low, nil
}

// Producers lists the idempotent producers that the log knows.
func (p *Partition) Producers() ([]producer.Entry, error) {
	s, err := p.Readable(-1)
	if err != nil {
		return nil, err
	}
	return s.Log.Producers(), nil
}

// Size is the bytes of the log on disk.
func (p *Partition) Size() int64 {
	if s := p.state.Load(); s.Log != nil {
		return s.Log.Size()
	}
	return 0
}

// End is the log's end offset; 0 while it is not open.
func (p *Partition) End() int64 {
	if s := p.state.Load(); s.Log != nil {
		return s.Log.Offsets().End
	}
	return 0
}
