package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// HeaderSize is the length of a batch without records; LogOverhead is the part before
// and including batchLength, which batchLength does not count.
const (
	HeaderSize  = 61
	LogOverhead = 12
	crcStart    = 21
)

// Attribute bits.
const (
	CodecMask        = 0x07
	LogAppendTimeBit = 0x08
	TransactionalBit = 0x10
	ControlBit       = 0x20
	DeleteHorizonBit = 0x40
)

// NoProducer, NoEpoch, NoSequence and NoTimestamp are the absent values.
const (
	NoProducer  = int64(-1)
	NoEpoch     = int16(-1)
	NoSequence  = int32(-1)
	NoTimestamp = int64(-1)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC is the CRC-32C that batches, producer snapshots and others use.
func CRC(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Batch is one whole batch: len(b) == b.Size(). Accessors do not check lengths; get
// batches from Next, which does.
type Batch []byte

var be = binary.BigEndian

func (b Batch) BaseOffset() int64          { return int64(be.Uint64(b)) }
func (b Batch) SetBaseOffset(o int64)      { be.PutUint64(b, uint64(o)) }
func (b Batch) Size() int                  { return LogOverhead + int(int32(be.Uint32(b[8:]))) }
func (b Batch) LeaderEpoch() int32         { return int32(be.Uint32(b[12:])) }
func (b Batch) SetLeaderEpoch(e int32)     { be.PutUint32(b[12:], uint32(e)) }
func (b Batch) Magic() int8                { return int8(b[16]) }
func (b Batch) StoredCRC() uint32          { return be.Uint32(b[17:]) }
func (b Batch) Attributes() int16          { return int16(be.Uint16(b[21:])) }
func (b Batch) Codec() Codec               { return Codec(b[22] & CodecMask) }
func (b Batch) IsLogAppendTime() bool      { return b[22]&LogAppendTimeBit != 0 }
func (b Batch) IsTransactional() bool      { return b[22]&TransactionalBit != 0 }
func (b Batch) IsControl() bool            { return b[22]&ControlBit != 0 }
func (b Batch) HasDeleteHorizon() bool     { return b[22]&DeleteHorizonBit != 0 }
func (b Batch) LastOffsetDelta() int32     { return int32(be.Uint32(b[23:])) }
func (b Batch) BaseTimestamp() int64       { return int64(be.Uint64(b[27:])) }
func (b Batch) MaxTimestamp() int64        { return int64(be.Uint64(b[35:])) }
func (b Batch) ProducerID() int64          { return int64(be.Uint64(b[43:])) }
func (b Batch) ProducerEpoch() int16       { return int16(be.Uint16(b[51:])) }
func (b Batch) BaseSequence() int32        { return int32(be.Uint32(b[53:])) }
func (b Batch) Count() int32               { return int32(be.Uint32(b[57:])) }
func (b Batch) LastOffset() int64          { return b.BaseOffset() + int64(b.LastOffsetDelta()) }
func (b Batch) NextOffset() int64          { return b.LastOffset() + 1 }
func (b Batch) Payload() []byte            { return b[HeaderSize:] }
func (b Batch) SetAttributes(a int16)      { be.PutUint16(b[21:], uint16(a)) }
func (b Batch) SetLastOffsetDelta(d int32) { be.PutUint32(b[23:], uint32(d)) }
func (b Batch) SetBaseTimestamp(t int64)   { be.PutUint64(b[27:], uint64(t)) }
func (b Batch) SetMaxTimestamp(t int64)    { be.PutUint64(b[35:], uint64(t)) }
func (b Batch) SetProducer(id int64, epoch int16, baseSequence int32) {
	be.PutUint64(b[43:], uint64(id))
	be.PutUint16(b[51:], uint16(epoch))
	be.PutUint32(b[53:], uint32(baseSequence))
}

// LastSequence is baseSequence + lastOffsetDelta, wrapping after MaxInt32 to 0; -1
// without a sequence.
func (b Batch) LastSequence() int32 { return AddSequence(b.BaseSequence(), b.LastOffsetDelta()) }

// AddSequence advances a sequence number with Kafka's wrap from MaxInt32 to 0.
func AddSequence(seq, n int32) int32 {
	if seq == NoSequence {
		return NoSequence
	}
	if int64(seq)+int64(n) > math.MaxInt32 {
		return int32(int64(seq) + int64(n) - math.MaxInt32 - 1)
	}
	return seq + n
}

// ComputeCRC is the checksum the batch should carry; StampCRC stores it.
func (b Batch) ComputeCRC() uint32 { return crc32.Checksum(b[crcStart:], castagnoli) }
func (b Batch) StampCRC()          { be.PutUint32(b[17:], b.ComputeCRC()) }
func (b Batch) ValidCRC() bool     { return b.ComputeCRC() == b.StoredCRC() }

// ErrShort says that the bytes end inside a batch; ErrCorrupt that they cannot be one.
var (
	ErrShort   = errors.New("bytes end inside a record batch")
	ErrCorrupt = errors.New("not a record batch")
)

// Next takes the first batch off buf without checking its CRC. Magic 0 and 1 message
// sets, which only very old logs hold, give ErrCorrupt.
func Next(buf []byte) (b Batch, rest []byte, err error) {
	if len(buf) < LogOverhead+5 {
		return nil, buf, ErrShort
	}
	n, err := HeaderBatchSize(buf)
	if err != nil {
		return nil, buf, err
	}
	if n > len(buf) {
		return nil, buf, ErrShort
	}
	return Batch(buf[:n:n]), buf[n:], nil
}

// HeaderBatchSize reads the whole size of the batch that starts with head, which needs
// at least 17 bytes.
func HeaderBatchSize(head []byte) (int, error) {
	length := int32(be.Uint32(head[8:]))
	if length < HeaderSize-LogOverhead {
		return 0, fmt.Errorf("%w: batch length %d is below the minimum of %d", ErrCorrupt, length, HeaderSize-LogOverhead)
	}
	if magic := int8(head[16]); magic != 2 {
		return 0, fmt.Errorf("%w: magic is %d, want 2", ErrCorrupt, magic)
	}
	if int64(length)+LogOverhead > math.MaxInt32 {
		return 0, fmt.Errorf("%w: batch length %d is too large", ErrCorrupt, length)
	}
	return int(length) + LogOverhead, nil
}
