package producer

import (
	"encoding/binary"
	"errors"
	"fmt"

	"runnel/internal/kit/record"
)

const (
	snapshotVersion = 1
	snapshotHeader  = 10
	snapshotEntry   = 46
)

var be = binary.BigEndian

// ErrSnapshot says that a snapshot file is broken: an older one, and the log, serve.
var ErrSnapshot = errors.New("broken producer snapshot")

// Snapshot encodes the state. Only the newest batch of each producer is kept.
func (s *State) Snapshot() []byte {
	entries := s.Entries()
	b := make([]byte, snapshotHeader, snapshotHeader+len(entries)*snapshotEntry)
	be.PutUint16(b, snapshotVersion)
	be.PutUint32(b[6:], uint32(len(entries)))
	for _, e := range entries {
		b = be.AppendUint64(b, uint64(e.ProducerID))
		b = be.AppendUint16(b, uint16(e.Epoch))
		b = be.AppendUint32(b, uint32(e.LastSequence))
		b = be.AppendUint64(b, uint64(e.LastOffset))
		b = be.AppendUint32(b, uint32(e.OffsetDelta))
		b = be.AppendUint64(b, uint64(e.LastTimestamp))
		b = be.AppendUint32(b, uint32(e.CoordinatorEpoch))
		b = be.AppendUint64(b, uint64(e.TxnFirstOffset))
	}
	be.PutUint32(b[2:], record.CRC(b[6:]))
	return b
}

// Load replaces the state with a snapshot taken at offset end. The producers count as
// seen at now: how long ago they wrote by the broker's clock is not in the file.
func (s *State) Load(b []byte, end, now int64) error {
	if len(b) < snapshotHeader {
		return fmt.Errorf("%w: %d bytes", ErrSnapshot, len(b))
	}
	if v := be.Uint16(b); v != snapshotVersion {
		return fmt.Errorf("%w: version %d, want %d", ErrSnapshot, v, snapshotVersion)
	}
	if got, want := record.CRC(b[6:]), be.Uint32(b[2:]); got != want {
		return fmt.Errorf("%w: checksum %08x, stored %08x", ErrSnapshot, got, want)
	}
	n := int64(be.Uint32(b[6:]))
	b = b[snapshotHeader:]
	if n*snapshotEntry != int64(len(b)) {
		return fmt.Errorf("%w: %d entries in %d bytes", ErrSnapshot, n, len(b))
	}
	fresh := State{end: end}
	for ; len(b) > 0; b = b[snapshotEntry:] {
		pid := int64(be.Uint64(b))
		if pid < 0 {
			return fmt.Errorf("%w: producer id %d", ErrSnapshot, pid)
		}
		e := fresh.entry(pid, int16(be.Uint16(b[8:])))
		e.timestamp, e.seen = int64(be.Uint64(b[26:])), now
		e.coordinator = int32(be.Uint32(b[34:]))
		if last := int64(be.Uint64(b[14:])); last >= 0 {
			e.remember(Remembered{int32(be.Uint32(b[10:])), int32(be.Uint32(b[22:])), last, e.timestamp})
		}
		if first := int64(be.Uint64(b[38:])); first >= 0 && e.txnFirst == None {
			e.txnFirst = first
			fresh.open = insert(fresh.open, Txn{ProducerID: pid, First: first})
		}
	}
	*s = fresh
	return nil
}
