package segment

import (
	"fmt"
)

const txnWidth = 34

// AbortedTxn is one entry of the aborted transaction index.
type AbortedTxn struct {
	ProducerID  int64
	First, Last int64 // Last is the marker's offset
	LastStable  int64
}

type txnIndex struct{ table }

func encodeTxn(a AbortedTxn) []byte {
	b := make([]byte, 2, txnWidth) // version 0
	b = be.AppendUint64(b, uint64(a.ProducerID))
	b = be.AppendUint64(b, uint64(a.First))
	b = be.AppendUint64(b, uint64(a.Last))
	return be.AppendUint64(b, uint64(a.LastStable))
}

func decodeTxn(e []byte) AbortedTxn {
	return AbortedTxn{int64(be.Uint64(e[2:])), int64(be.Uint64(e[10:])), int64(be.Uint64(e[18:])), int64(be.Uint64(e[26:]))}
}

// AddAborted notes an aborted transaction whose marker lies in this segment. It is written
// through: consumers must not see its records as committed after a restart.
func (s *Segment) AddAborted(a AbortedTxn) error {
	if err := s.txns.append(encodeTxn(a)); err != nil {
		return err
	}
	return s.txns.flush(false)
}

// Aborted collects the transactions that a fetch of [from, upper) must know. done says
// that later segments have no more of them.
func (s *Segment) Aborted(from, upper int64, into []AbortedTxn) (out []AbortedTxn, done bool, err error) {
	n, err := s.txns.len()
	if err != nil || n == 0 {
		return into, false, err
	}
	all, err := s.txns.all()
	if err != nil {
		return into, false, err
	}
	for ; len(all) >= txnWidth; all = all[txnWidth:] {
		a := decodeTxn(all)
		if a.Last >= from && a.First < upper {
			into = append(into, a)
		}
		if a.LastStable >= upper {
			return into, true, nil
		}
	}
	return into, false, nil
}

// all reads the file and the tail.
func (t *table) all() ([]byte, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	b := make([]byte, t.mu.n*t.width, t.mu.n*t.width+len(t.mu.tail))
	if len(b) > 0 {
		f, err := t.open()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if err := readFull(f, b, 0); err != nil {
			return nil, err
		}
	}
	return append(b, t.mu.tail...), nil
}

// CheckAborted reads the aborted transaction index and says what is wrong with it.
func (s *Segment) CheckAborted() error {
	info, err := s.fs.Stat(s.txns.name())
	if err != nil {
		return nil // most segments have none
	}
	if info.Size%txnWidth != 0 {
		return fmt.Errorf("%s has %d bytes, no multiple of %d", s.txns.name(), info.Size, txnWidth)
	}
	if err := s.txns.load(); err != nil {
		return err
	}
	all, err := s.txns.all()
	if err != nil {
		return err
	}
	last := int64(-1)
	for ; len(all) > 0; all = all[txnWidth:] {
		a := decodeTxn(all)
		if be.Uint16(all) != 0 || a.Last <= last || a.First > a.Last || a.First < 0 {
			return fmt.Errorf("%s holds an entry out of order: %+v", s.txns.name(), a)
		}
		last = a.Last
	}
	return nil
}
