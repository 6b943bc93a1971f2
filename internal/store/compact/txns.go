package compact

import (
	"sort"

	"runnel/internal/kit/record"
	"runnel/internal/store/commitlog"
	"runnel/internal/store/producer"
)

// txnTracker follows transactions while batches go by in order, to tell aborted data
// and needless markers.
type txnTracker struct {
	ahead     []commitlog.AbortedTxn // by first offset; not reached yet
	aborted   map[int64]*abortedTxn  // by producer
	committed map[int64]bool         // producers with data in an open, committed transaction
	// kept is called for aborted transactions of which data was seen: their entry is
	// still needed.
	kept func(commitlog.AbortedTxn) error
}

type abortedTxn struct {
	commitlog.AbortedTxn
	seen bool // a data batch of it is still there
}

func newTxnTracker(kept func(commitlog.AbortedTxn) error) *txnTracker {
	return &txnTracker{aborted: map[int64]*abortedTxn{}, committed: map[int64]bool{}, kept: kept}
}

// expect adds transactions from the aborted transaction indexes.
func (t *txnTracker) expect(txns []commitlog.AbortedTxn) {
	t.ahead = append(t.ahead, txns...)
	sort.Slice(t.ahead, func(i, j int) bool { return t.ahead[i].First < t.ahead[j].First })
}

func (t *txnTracker) reach(offset int64) {
	for len(t.ahead) > 0 && t.ahead[0].First <= offset {
		a := t.ahead[0]
		t.ahead = t.ahead[1:]
		if have := t.aborted[a.ProducerID]; have == nil || have.Last < a.First {
			t.aborted[a.ProducerID] = &abortedTxn{AbortedTxn: a}
		}
	}
}

// see looks at the next batch: drop says that its records are of no use to anyone, because
// they were aborted, or because it is a marker of a transaction without batches.
func (t *txnTracker) see(b record.Batch) (drop bool, err error) {
	t.reach(b.LastOffset())
	if !b.IsControl() {
		if !b.IsTransactional() {
			return false, nil
		}
		if a := t.aborted[b.ProducerID()]; a != nil && b.BaseOffset() < a.Last {
			a.seen = true
			return true, nil
		}
		t.committed[b.ProducerID()] = true
		return false, nil
	}
	if b.Count() == 0 {
		return true, nil
	}
	m, ok := producer.ReadMarker(b)
	if !ok {
		return false, nil
	}
	pid := b.ProducerID()
	if !m.Abort {
		had := t.committed[pid]
		delete(t.committed, pid)
		return !had, nil
	}
	a := t.aborted[pid]
	delete(t.aborted, pid)
	if a == nil || !a.seen {
		return true, nil
	}
	return false, t.kept(a.AbortedTxn)
}
