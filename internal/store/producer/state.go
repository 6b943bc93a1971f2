package producer

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
)

// Window is how many batches of a producer are remembered: a duplicate of any of them is
// answered with its first result.
const Window = 5

// None is the absent offset.
const None = int64(-1)

// Remembered is one batch of the window.
type Remembered struct {
	LastSequence int32
	OffsetDelta  int32
	LastOffset   int64
	Timestamp    int64
}

func (r Remembered) firstSequence() int32 {
	if r.LastSequence < r.OffsetDelta {
		return int32(int64(math.MaxInt32) - int64(r.OffsetDelta-r.LastSequence) + 1)
	}
	return r.LastSequence - r.OffsetDelta
}

// Entry is what the partition knows of one producer.
type Entry struct {
	ProducerID       int64
	Epoch            int16
	CoordinatorEpoch int32
	LastTimestamp    int64
	TxnFirstOffset   int64 // None without an open transaction
	LastSequence     int32 // of the newest remembered batch, or -1
	LastOffset       int64 // likewise; None without one
	OffsetDelta      int32
}

type entry struct {
	epoch       int16
	n           int8 // remembered batches
	head        int8 // index of the oldest
	coordinator int32
	timestamp   int64 // of the records
	seen        int64 // the broker's time of the last append, by which the entry expires
	txnFirst    int64
	batches     [Window]Remembered
}

func (e *entry) last() (Remembered, bool) {
	if e.n == 0 {
		return Remembered{LastSequence: -1, LastOffset: None}, false
	}
	return e.batches[(e.head+e.n-1)%Window], true
}

func (e *entry) remember(r Remembered) {
	if e.n == Window {
		e.batches[e.head] = r
		e.head = (e.head + 1) % Window
		return
	}
	e.batches[(e.head+e.n)%Window] = r
	e.n++
}

// setEpoch starts a new window where the epoch is new.
func (e *entry) setEpoch(epoch int16) {
	if e.epoch != epoch {
		e.epoch, e.n, e.head = epoch, 0, 0
	}
}

// Txn is one transaction: of one producer, from the first record on. Last is the offset
// of its marker once completed.
type Txn struct {
	ProducerID  int64
	First, Last int64
	Aborted     bool
}

// State is one partition's producers. The zero value is empty and small.
type State struct {
	producers map[int64]*entry
	open      []Txn // by first offset
	completed []Txn // whose markers may not be replicated yet, by first offset
	end       int64 // batches below it were applied
}

// End is the offset up to which batches were applied; SetEnd moves it where a log begins
// without them.
func (s *State) End() int64       { return s.end }
func (s *State) SetEnd(end int64) { s.end = end }

// Len is the number of known producers.
func (s *State) Len() int { return len(s.producers) }

// Rules of a leader's check beyond the ordinary ones.
type Rules struct {
	// BumpedMarkers demands of a marker an epoch above the producer's (transaction.version 2).
	BumpedMarkers bool
	// FirstSequenceZero demands that a producer without state begins at sequence 0.
	FirstSequenceZero bool
}

// Duplicate is the first result of a batch that came again.
type Duplicate struct{ BaseOffset, LastOffset, Timestamp int64 }

// Check says whether a leader may append b: dup is set if b is already in the log.
func (s *State) Check(b record.Batch, r Rules) (dup Duplicate, isDup bool, err error) {
	pid := b.ProducerID()
	if pid < 0 {
		return dup, false, nil
	}
	e := s.producers[pid]
	if b.IsControl() {
		return dup, false, checkMarker(b, e, r)
	}
	epoch, seq := b.ProducerEpoch(), b.BaseSequence()
	if e == nil {
		if r.FirstSequenceZero && seq > 0 {
			return dup, false, fmt.Errorf("producer %d is unknown here and starts at sequence %d instead of 0: %w", pid, seq, kerr.OutOfOrderSequenceNumber)
		}
		return dup, false, nil
	}
	if seq >= 0 && epoch == e.epoch {
		if d, ok := e.find(seq, b.LastSequence()); ok {
			return d, true, nil
		}
	}
	if epoch < e.epoch {
		return dup, false, fmt.Errorf("producer %d came with epoch %d, below its current %d: %w", pid, epoch, e.epoch, kerr.InvalidProducerEpoch)
	}
	if seq < 0 { // a coordinator's transactional write carries no sequence
		return dup, false, nil
	}
	return dup, false, checkSequence(pid, epoch, seq, e)
}

func checkSequence(pid int64, epoch int16, seq int32, e *entry) error {
	if epoch != e.epoch {
		if seq != 0 && e.epoch != record.NoEpoch {
			return fmt.Errorf("producer %d starts epoch %d at sequence %d instead of 0: %w", pid, epoch, seq, kerr.OutOfOrderSequenceNumber)
		}
		return nil
	}
	last, _ := e.last()
	if want := nextSequence(last.LastSequence); seq != want {
		return fmt.Errorf("producer %d epoch %d sent sequence %d, expected %d: %w", pid, epoch, seq, want, kerr.OutOfOrderSequenceNumber)
	}
	return nil
}

func nextSequence(last int32) int32 {
	if last == math.MaxInt32 {
		return 0
	}
	return last + 1
}

func (e *entry) find(first, last int32) (Duplicate, bool) {
	for i := range e.n {
		r := e.batches[(e.head+i)%Window]
		if r.LastSequence == last && r.firstSequence() == first {
			return Duplicate{r.LastOffset - int64(r.OffsetDelta), r.LastOffset, r.Timestamp}, true
		}
	}
	return Duplicate{}, false
}

// Marker is the decoded control record of a transaction's end.
type Marker struct {
	Abort            bool
	CoordinatorEpoch int32
}

// ReadMarker decodes a control batch; ok is false for control records of other kinds.
func ReadMarker(b record.Batch) (m Marker, ok bool) {
	if b.Count() < 1 || b.Codec() != record.None {
		return m, false
	}
	r, err := record.ReadRecord(b.Payload(), false)
	if err != nil || len(r.Key) < 4 {
		return m, false
	}
	switch int16(binary.BigEndian.Uint16(r.Key[2:])) {
	case 0:
		m.Abort = true
	case 1:
	default:
		return m, false
	}
	if len(r.Value) >= 6 {
		m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
	}
	return m, true
}

func checkMarker(b record.Batch, e *entry, r Rules) error {
	m, ok := ReadMarker(b)
	if !ok || e == nil {
		return nil
	}
	pid, epoch := b.ProducerID(), b.ProducerEpoch()
	fenced := epoch < e.epoch
	if r.BumpedMarkers && epoch == e.epoch && e.txnFirst != None && epoch != math.MaxInt16 {
		fenced = true
	}
	if fenced {
		return fmt.Errorf("marker of producer %d carries epoch %d, its current epoch is %d: %w", pid, epoch, e.epoch, kerr.InvalidProducerEpoch)
	}
	if m.CoordinatorEpoch < e.coordinator {
		return fmt.Errorf("marker of producer %d carries coordinator epoch %d, the last one was %d: %w", pid, m.CoordinatorEpoch, e.coordinator, kerr.TransactionCoordinatorFenced)
	}
	return nil
}

// Ended is a transaction that Apply saw ending. LastStable is what the aborted
// transaction index wants: the first offset of the oldest other open one, or the offset
// after the marker.
type Ended struct {
	Txn
	LastStable int64
}

// Apply takes in a batch of the log, its offsets stamped; now is the broker's time in ms.
func (s *State) Apply(b record.Batch, now int64) (ended Ended, ok bool) {
	if next := b.NextOffset(); next > s.end {
		s.end = next
	}
	pid := b.ProducerID()
	if pid < 0 {
		return ended, false
	}
	if b.IsControl() {
		m, isMarker := ReadMarker(b)
		if !isMarker {
			return ended, false
		}
		return s.applyMarker(b, m, now)
	}
	e := s.entry(pid, b.ProducerEpoch())
	e.setEpoch(b.ProducerEpoch())
	e.timestamp, e.seen = b.MaxTimestamp(), now
	e.remember(Remembered{b.LastSequence(), b.LastOffsetDelta(), b.LastOffset(), b.MaxTimestamp()})
	if b.IsTransactional() && e.txnFirst == None {
		e.txnFirst = b.BaseOffset()
		s.open = insert(s.open, Txn{ProducerID: pid, First: e.txnFirst})
	}
	return ended, false
}

func (s *State) entry(pid int64, epoch int16) *entry {
	e := s.producers[pid]
	if e == nil {
		if s.producers == nil {
			s.producers = map[int64]*entry{}
		}
		e = &entry{epoch: epoch, coordinator: -1, timestamp: -1, txnFirst: None}
		s.producers[pid] = e
	}
	return e
}

func (s *State) applyMarker(b record.Batch, m Marker, now int64) (ended Ended, ok bool) {
	e := s.entry(b.ProducerID(), b.ProducerEpoch())
	e.setEpoch(b.ProducerEpoch())
	e.coordinator, e.timestamp, e.seen = m.CoordinatorEpoch, b.MaxTimestamp(), now
	if e.txnFirst == None {
		return ended, false
	}
	txn := Txn{b.ProducerID(), e.txnFirst, b.LastOffset(), m.Abort}
	e.txnFirst = None
	s.open = remove(s.open, txn.First)
	ended = Ended{txn, txn.Last + 1}
	if len(s.open) > 0 {
		ended.LastStable = s.open[0].First
	}
	s.completed = insert(s.completed, txn)
	return ended, true
}

func insert(list []Txn, t Txn) []Txn {
	i := sort.Search(len(list), func(i int) bool { return list[i].First >= t.First })
	list = append(list, Txn{})
	copy(list[i+1:], list[i:])
	list[i] = t
	return list
}

func remove(list []Txn, first int64) []Txn {
	i := sort.Search(len(list), func(i int) bool { return list[i].First >= first })
	if i < len(list) && list[i].First == first {
		list = append(list[:i], list[i+1:]...)
	}
	return list
}

// FirstUnstable is the first offset of the oldest transaction that is open, or whose
// marker is not below hw; None without one.
func (s *State) FirstUnstable(hw int64) int64 {
	if len(s.completed) > 0 {
		kept := s.completed[:0]
		for _, t := range s.completed {
			if t.Last >= hw {
				kept = append(kept, t)
			}
		}
		s.completed = kept
		if len(kept) == 0 {
			s.completed = nil
		}
	}
	first := None
	if len(s.open) > 0 {
		first = s.open[0].First
	}
	if len(s.completed) > 0 && (first == None || s.completed[0].First < first) {
		first = s.completed[0].First
	}
	return first
}

// OpenTxn is the first offset of the producer's open transaction, None without one.
func (s *State) OpenTxn(pid int64) int64 {
	if e := s.producers[pid]; e != nil {
		return e.txnFirst
	}
	return None
}

// TruncateHead forgets what lies below the log's start: transactions that ended there.
func (s *State) TruncateHead(start int64) {
	kept := s.completed[:0]
	for _, t := range s.completed {
		if t.Last >= start {
			kept = append(kept, t)
		}
	}
	s.completed = kept
	if s.end < start {
		s.end = start
	}
}

// Reset forgets everything; batches from end on are expected next.
func (s *State) Reset(end int64) { *s = State{end: end} }

// Expire drops producers that appended nothing for longer than expiry ms of the broker's
// time and have no open transaction. It gives the number dropped.
func (s *State) Expire(now, expiryMs int64) int {
	n := 0
	for pid, e := range s.producers {
		if e.txnFirst == None && now-e.seen > expiryMs {
			delete(s.producers, pid)
			n++
		}
	}
	if len(s.producers) == 0 {
		s.producers = nil
	}
	return n
}

// Get is one producer's entry.
func (s *State) Get(pid int64) (Entry, bool) {
	e := s.producers[pid]
	if e == nil {
		return Entry{}, false
	}
	return e.export(pid), true
}

// Entries lists all producers by id.
func (s *State) Entries() []Entry {
	out := make([]Entry, 0, len(s.producers))
	for pid, e := range s.producers {
		out = append(out, e.export(pid))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ProducerID < out[j].ProducerID })
	return out
}

func (e *entry) export(pid int64) Entry {
	last, _ := e.last()
	return Entry{pid, e.epoch, e.coordinator, e.timestamp, e.txnFirst, last.LastSequence, last.LastOffset, last.OffsetDelta}
}
