package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
)

var be = binary.BigEndian

// ErrGone says that the segment was deleted while someone looked for it.
var ErrGone = errors.New("segment is deleted")

// Segment is one segment. Create or Load gives it its files.
type Segment struct {
	fs    vfs.FS
	base  int64
	where atomic.Pointer[place]

	size    atomic.Int64
	created int64 // ms, by the broker's clock
	modTime atomic.Int64

	index, times table
	txns         txnIndex

	// Of the writer.
	sinceIndex int64
	firstTime  int64 // max timestamp of the first batch; notRead before it is known
	dirty      bool  // the .log holds bytes that no sync covered; under the log's lock

	max struct {
		sync.Mutex
		known     bool
		timestamp int64 // largest in the segment, -1 without any
		offset    int64 // last offset of its batch
	}
	recent ring
	handle struct {
		sync.Mutex
		kept *pinned // the active segment keeps its file open
		gone bool
	}
}

const notRead = math.MinInt64

// Open gives a segment over existing or future files without touching them. size is the
// length of the .log.
func Open(fsys vfs.FS, dir string, base, size int64, modTime time.Time) *Segment {
	return open(fsys, dir, "", base, size, modTime)
}

// OpenCleaned is a segment under construction: all its names end in .cleaned.
func OpenCleaned(fsys vfs.FS, dir string, base int64) *Segment {
	return open(fsys, dir, CleanedSuffix, base, 0, time.Time{})
}

func open(fsys vfs.FS, dir, suffix string, base, size int64, modTime time.Time) *Segment {
	s := &Segment{fs: fsys, base: base, firstTime: notRead, created: modTime.UnixMilli(), dirty: size > 0}
	s.where.Store(&place{dir, suffix})
	s.size.Store(size)
	s.modTime.Store(modTime.UnixMilli())
	s.index = table{of: s, suffix: IndexSuffix, width: indexWidth}
	s.times = table{of: s, suffix: TimeIndexSuffix, width: timeWidth}
	s.txns = txnIndex{table: table{of: s, suffix: TxnIndexSuffix, width: txnWidth}}
	return s
}

// OpenSwap is a rewritten segment that a crash left before its last rename.
func OpenSwap(fsys vfs.FS, dir string, base, size int64) *Segment {
	return open(fsys, dir, SwapSuffix, base, size, time.Time{})
}

// place is where the files are: suffix, if any, ends every name.
type place struct{ dir, suffix string }

func (s *Segment) name(suffix string) string {
	w := s.where.Load()
	return path.Join(w.dir, Stem(s.base)+suffix+w.suffix)
}

// Moved tells the segment that its directory was renamed.
func (s *Segment) Moved(dir string) { s.where.Store(&place{dir, s.where.Load().suffix}) }

// Rename gives all files another last suffix, the .log last.
func (s *Segment) Rename(suffix string) error {
	w := s.where.Load()
	to := place{w.dir, suffix}
	for i := len(Files) - 1; i >= 0; i-- {
		err := s.fs.Rename(s.name(Files[i]), path.Join(to.dir, Stem(s.base)+Files[i]+to.suffix))
		if err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	s.where.Store(&to)
	return nil
}

// Dirty reports bytes that no sync covered; the log's writer lock guards it.
func (s *Segment) Dirty() bool         { return s.dirty }
func (s *Segment) SetDirty(dirty bool) { s.dirty = dirty }

// Base is the offset in the file names, Size the length of the .log.
func (s *Segment) Base() int64 { return s.base }
func (s *Segment) Size() int64 { return s.size.Load() }

// Created is when the segment began, in ms; ModTime when its .log was last written before
// it was opened, or appended to since.
func (s *Segment) Created() int64 { return s.created }
func (s *Segment) ModTime() int64 { return s.modTime.Load() }

// SetModTime gives the .log another time: a rewritten segment keeps its source's.
func (s *Segment) SetModTime(t time.Time) error {
	s.modTime.Store(t.UnixMilli())
	return s.fs.SetModTime(s.name(LogSuffix), t)
}

// Create makes the empty .log file. A leftover of a crash is taken over and emptied.
func (s *Segment) Create(now time.Time) error {
	s.created = now.UnixMilli()
	s.modTime.Store(s.created)
	f, err := s.fs.OpenFile(s.name(LogSuffix), vfs.ReadWrite|vfs.Create|vfs.Trunc)
	if err != nil {
		return err
	}
	s.keep(f)
	s.size.Store(0)
	s.dirty = true
	s.sinceIndex, s.firstTime = 0, notRead
	s.setMax(-1, s.base)
	for _, t := range []*table{&s.index, &s.times, &s.txns.table} {
		t.begin()
	}
	return nil
}

// pinned is an open .log; the last of those who use it closes it.
type pinned struct {
	file    vfs.File
	refs    atomic.Int32
	release func() // release once, made once so that a read allocates nothing
}

func newPinned(f vfs.File) *pinned {
	p := &pinned{file: f}
	p.refs.Store(1)
	p.release = p.done
	return p
}

func (p *pinned) done() {
	if p.refs.Add(-1) == 0 {
		p.file.Close()
	}
}

func (s *Segment) keep(f vfs.File) {
	s.handle.Lock()
	old := s.handle.kept
	s.handle.kept = newPinned(f)
	s.handle.Unlock()
	if old != nil {
		old.done()
	}
}

// KeepOpen opens the .log for writing, as the active segment's is.
func (s *Segment) KeepOpen() error {
	s.handle.Lock()
	have := s.handle.kept != nil
	s.handle.Unlock()
	if have {
		return nil
	}
	f, err := s.fs.OpenFile(s.name(LogSuffix), vfs.ReadWrite)
	if err != nil {
		return err
	}
	s.keep(f)
	return nil
}

// Release lets go of the open file; readers that pinned it go on.
func (s *Segment) Release() {
	s.handle.Lock()
	old := s.handle.kept
	s.handle.kept = nil
	s.handle.Unlock()
	if old != nil {
		old.done()
	}
}

// pin gives the open .log, to be let go with its release.
func (s *Segment) pin() (*pinned, error) {
	s.handle.Lock()
	if p := s.handle.kept; p != nil {
		p.refs.Add(1)
		s.handle.Unlock()
		return p, nil
	}
	gone := s.handle.gone
	s.handle.Unlock()
	if gone {
		return nil, ErrGone
	}
	f, err := s.fs.OpenFile(s.name(LogSuffix), vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) && s.isGone() {
		return nil, ErrGone
	}
	if err != nil {
		return nil, err
	}
	return newPinned(f), nil
}

func (s *Segment) isGone() bool {
	s.handle.Lock()
	defer s.handle.Unlock()
	return s.handle.gone
}

// Region pins bytes of the .log.
func (s *Segment) Region(off, n int64) (vfs.Region, error) {
	p, err := s.pin()
	if err != nil {
		return vfs.Region{}, err
	}
	return vfs.Region{File: p.file, Off: off, Len: n, Release: p.release}, nil
}

// Append writes whole batches, whose offsets are stamped, at the end. After an error
// nothing of them is left, or the error is a *Torn and the segment must not be used.
func (s *Segment) Append(b []byte, interval int64) error {
	if err := s.KeepOpen(); err != nil {
		return err
	}
	if !s.maxKnown() {
		if err := s.loadMax(); err != nil {
			return err
		}
	}
	at := s.size.Load()
	p := s.handle.kept // the writer is the only one to change it
	s.dirty = true
	if _, err := p.file.WriteAt(b, at); err != nil {
		if terr := p.file.Truncate(at); terr != nil {
			return &Torn{Write: err, Truncate: terr}
		}
		return err
	}
	return s.note(b, at, interval)
}

// Torn says that a write failed half-way and could not be taken back.
type Torn struct{ Write, Truncate error }

func (e *Torn) Error() string {
	return fmt.Sprintf("append failed (%v) and so did cutting it off again (%v)", e.Write, e.Truncate)
}
func (e *Torn) Unwrap() []error { return []error{e.Write, e.Truncate} }

// note takes batches written at position at into the indexes. Failing to write an index
// is not an error of the append: indexes are hints.
func (s *Segment) note(b []byte, at, interval int64) error {
	for len(b) > 0 {
		batch := record.Batch(b)
		n := batch.Size()
		batch = batch[:n]
		s.noteBatch(batch, at, interval)
		s.recent.add(spot{batch.BaseOffset(), batch.LastOffset(), at, int32(n)})
		b, at = b[n:], at+int64(n)
	}
	s.size.Store(at)
	return nil
}

// noteBatch keeps the indexes' rule (ondisk.md part 8) for one batch.
func (s *Segment) noteBatch(b record.Batch, at, interval int64) {
	last := b.LastOffset()
	if s.firstTime == notRead && at == 0 {
		s.firstTime = b.MaxTimestamp()
	}
	s.max.Lock()
	if ts := b.MaxTimestamp(); ts > s.max.timestamp {
		s.max.timestamp, s.max.offset = ts, last
	}
	s.max.Unlock()
	if s.sinceIndex > interval {
		s.addIndex(last, at)
		s.addTime()
		s.sinceIndex = 0
	}
	s.sinceIndex += int64(len(b))
}

func (s *Segment) maxKnown() bool {
	s.max.Lock()
	defer s.max.Unlock()
	return s.max.known
}

func (s *Segment) setMax(ts, offset int64) {
	s.max.Lock()
	defer s.max.Unlock()
	s.max.known, s.max.timestamp, s.max.offset = true, ts, offset
}

// Max is the segment's largest timestamp (-1 without any) and the last offset of the
// batch that carries it.
func (s *Segment) Max() (timestamp, offset int64, err error) {
	if !s.maxKnown() {
		if err := s.loadMax(); err != nil {
			return -1, s.base, err
		}
	}
	s.max.Lock()
	defer s.max.Unlock()
	return s.max.timestamp, s.max.offset, nil
}

// loadMax takes the maximum from the time index and the batches after its last entry.
func (s *Segment) loadMax() error {
	ts, off := int64(-1), s.base
	var e [timeWidth]byte
	ok, err := s.times.last(e[:])
	if err != nil {
		return err
	}
	from := int64(0)
	if ok {
		ts, off = timeEntry(e[:], s.base)
		if spot, found, err := s.Locate(off, s.Size()); err == nil && found {
			from = spot.Position
		}
	}
	err = s.Headers(from, s.Size(), func(_ int64, b record.Batch) (bool, error) {
		if t := b.MaxTimestamp(); t > ts {
			ts, off = t, b.LastOffset()
		}
		return true, nil
	})
	if err != nil && !errors.Is(err, record.ErrCorrupt) && !errors.Is(err, record.ErrShort) {
		return err
	}
	s.max.Lock()
	defer s.max.Unlock()
	if !s.max.known || ts > s.max.timestamp {
		s.max.known, s.max.timestamp, s.max.offset = true, ts, off
	}
	return nil
}

// FirstTimestamp is the max timestamp of the first batch, by which a segment's age
// counts; ok is false for an empty segment.
func (s *Segment) FirstTimestamp() (ts int64, ok bool, err error) {
	if s.Size() == 0 {
		return 0, false, nil
	}
	if s.firstTime == notRead {
		err := s.Headers(0, s.Size(), func(_ int64, b record.Batch) (bool, error) {
			s.firstTime = b.MaxTimestamp()
			return false, nil
		})
		if err != nil {
			return 0, false, err
		}
	}
	return s.firstTime, true, nil
}

// Sync makes the .log durable.
func (s *Segment) Sync() error {
	p, err := s.pin()
	if err != nil {
		return err
	}
	defer p.done()
	return p.file.Sync()
}

// FinishIndexes writes the final time entry and what the indexes still hold in memory;
// sync makes them durable.
func (s *Segment) FinishIndexes(sync bool) error {
	if _, _, err := s.Max(); err != nil {
		return err
	}
	s.addTime()
	for _, t := range []*table{&s.index, &s.times} {
		if err := t.flush(sync); err != nil {
			return err
		}
		t.dropTail()
	}
	if n, err := s.txns.len(); err != nil || n == 0 {
		return err
	}
	return s.txns.flush(sync)
}

// Full reports indexes that have no room for another entry under segment.index.bytes.
func (s *Segment) Full(indexBytes int32) bool {
	n, _ := s.index.len()
	m, _ := s.times.len()
	return n >= int(indexBytes)/indexWidth || m >= int(indexBytes)/timeWidth-1
}

// IndexSizes are the lengths of the indexes in bytes.
func (s *Segment) IndexSizes() (offset, times int64) {
	n, _ := s.index.len()
	m, _ := s.times.len()
	return int64(n) * indexWidth, int64(m) * timeWidth
}

// Truncate keeps the batches before position at, the first dropped offset being from on.
func (s *Segment) Truncate(at, from int64) error {
	if err := s.KeepOpen(); err != nil {
		return err
	}
	s.recent.clear()
	if err := s.index.cut(func(e []byte) bool { return s.base+int64(be.Uint32(e)) < from && int64(be.Uint32(e[4:])) < at }); err != nil {
		return err
	}
	if err := s.times.cut(func(e []byte) bool { _, o := timeEntry(e, s.base); return o < from }); err != nil {
		return err
	}
	if err := s.txns.cut(func(e []byte) bool { return decodeTxn(e).Last < from }); err != nil {
		return err
	}
	if err := s.handle.kept.file.Truncate(at); err != nil {
		return err
	}
	s.size.Store(at)
	s.dirty = true
	s.sinceIndex = 0
	if at == 0 {
		s.firstTime = notRead
	}
	s.max.Lock()
	s.max.known = false
	s.max.Unlock()
	return s.loadMax()
}

// cut keeps the entries for which keep holds, a prefix of them.
func (t *table) cut(keep func([]byte) bool) error {
	buf := make([]byte, t.width)
	i, err := t.search(buf, keep)
	if err != nil {
		return err
	}
	return t.truncate(i + 1)
}

// Files lists the segment's suffixes.
var Files = []string{LogSuffix, IndexSuffix, TimeIndexSuffix, TxnIndexSuffix}

// Retire renames the files with .deleted at the end (which the caller removes later) and
// gives their new names.
func (s *Segment) Retire() ([]string, error) {
	s.handle.Lock()
	s.handle.gone = true
	s.handle.Unlock()
	s.Release()
	var gone []string
	for _, suffix := range Files {
		from := s.name(suffix)
		err := s.fs.Rename(from, from+DeletedSuffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return gone, err
		}
		gone = append(gone, from+DeletedSuffix)
	}
	return gone, nil
}

// Remove deletes the files at once.
func (s *Segment) Remove() error {
	s.handle.Lock()
	s.handle.gone = true
	s.handle.Unlock()
	s.Release()
	for _, suffix := range Files {
		if err := s.fs.Remove(s.name(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
