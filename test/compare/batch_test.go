package compare

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// epochMs dates the records of scenes: long ago, so that no broker's clock is near.
const epochMs = int64(1_500_000_000_000)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// rec is a record to produce; a nil key or value is null.
type rec struct {
	at         int64 // after epochMs
	delta      int32 // of the offset; 0 is its place in the batch
	key, value []byte
	headers    []string // name, value, name, value ...
}

func value(s string) rec    { return rec{value: []byte(s)} }
func keyed(k, s string) rec { return rec{key: []byte(k), value: []byte(s)} }
func stamped(at int64) rec  { return rec{at: at, value: fmt.Appendf(nil, "at %d", at)} }
func recs(n int) (rs []rec) {
	for i := range n {
		rs = append(rs, value(fmt.Sprintf("value %d", i)))
	}
	return rs
}

// batch is a record batch of format 2 that can be made wrong in every field. The fields that wrong sets replace what is
// right.
type batch struct {
	recs        []rec
	codec       int
	attributes  int16
	producer    int64
	epoch       int16
	sequence    int32
	magic       byte
	base        int64
	leaderEpoch int32
	count       int32 // as declared
	lastDelta   int32
	length      int32
	badCRC      bool
	payload     []byte // instead of the records
	first, max  int64
	cut         int
	trailing    []byte
}

// wrong names a deviation: a change made before encoding.
type wrong func(*batch)

const unset = int32(-1 << 31)

func pack(rs []rec, changes ...wrong) []byte {
	b := &batch{recs: rs, producer: -1, epoch: -1, sequence: -1, magic: 2, leaderEpoch: -1, count: int32(len(rs)), lastDelta: int32(len(rs) - 1), length: unset, first: epochMs, max: epochMs}
	for _, r := range rs {
		b.max = max(b.max, epochMs+r.at)
	}
	for _, c := range changes {
		c(b)
	}
	return b.encode()
}

func by(producer int64, epoch int16, sequence int32) wrong {
	return func(b *batch) { b.producer, b.epoch, b.sequence = producer, epoch, sequence }
}
func with(codec int) wrong { return func(b *batch) { b.codec = codec } }

func (b *batch) encode() []byte {
	var body []byte
	for i, r := range b.recs {
		if r.delta == 0 {
			r.delta = int32(i)
		}
		body = r.append(body)
	}
	if b.payload != nil {
		body = b.payload
	} else {
		body = squeeze(b.codec, body)
	}
	be := binary.BigEndian
	x := be.AppendUint16(nil, uint16(b.attributes)|uint16(b.codec))
	x = be.AppendUint32(x, uint32(b.lastDelta))
	x = be.AppendUint64(x, uint64(b.first))
	x = be.AppendUint64(x, uint64(b.max))
	x = be.AppendUint64(x, uint64(b.producer))
	x = be.AppendUint16(x, uint16(b.epoch))
	x = be.AppendUint32(x, uint32(b.sequence))
	x = be.AppendUint32(x, uint32(b.count))
	x = append(x, body...)
	sum := crc32.Checksum(x, crcTable)
	if b.badCRC {
		sum++
	}
	if b.length == unset {
		b.length = int32(len(x) + 9)
	}
	out := be.AppendUint64(nil, uint64(b.base))
	out = be.AppendUint32(out, uint32(b.length))
	out = be.AppendUint32(out, uint32(b.leaderEpoch))
	out = append(out, b.magic)
	out = be.AppendUint32(out, sum)
	out = append(out, x...)
	return append(out[:len(out)-b.cut], b.trailing...)
}

func (r rec) append(dst []byte) []byte {
	field := func(x, f []byte) []byte {
		if f == nil {
			return binary.AppendVarint(x, -1)
		}
		return append(binary.AppendVarint(x, int64(len(f))), f...)
	}
	x := binary.AppendVarint([]byte{0}, r.at)
	x = binary.AppendVarint(x, int64(r.delta))
	x = field(field(x, r.key), r.value)
	x = binary.AppendVarint(x, int64(len(r.headers)/2))
	for _, h := range r.headers {
		x = field(x, []byte(h))
	}
	return append(binary.AppendVarint(dst, int64(len(x))), x...)
}

// legacy makes a message set of format 0 or 1.
func legacy(magic byte, vs ...string) []byte {
	var out []byte
	for i, v := range vs {
		m := []byte{magic, 0}
		if magic == 1 {
			m = binary.BigEndian.AppendUint64(m, uint64(epochMs))
		}
		m = binary.BigEndian.AppendUint32(m, 1<<32-1)
		m = append(binary.BigEndian.AppendUint32(m, uint32(len(v))), v...)
		out = binary.BigEndian.AppendUint64(out, uint64(i))
		out = binary.BigEndian.AppendUint32(out, uint32(len(m)+4))
		out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(m))
		out = append(out, m...)
	}
	return out
}

var codecNames = []string{"none", "gzip", "snappy", "lz4", "zstd"}

var snappyHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

func squeeze(codec int, b []byte) []byte {
	var w bytes.Buffer
	var z io.WriteCloser
	switch codec {
	case 1:
		z = gzip.NewWriter(&w)
	case 2:
		block := s2.EncodeSnappy(nil, b)
		out := append(bytes.Clone(snappyHeader), 0, 0, 0, 0)
		binary.BigEndian.PutUint32(out[16:], uint32(len(block)))
		return append(out, block...)
	case 3:
		lz := lz4.NewWriter(&w)
		lz.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ConcurrencyOption(1))
		z = lz
	case 4:
		z, _ = zstd.NewWriter(&w, zstd.WithEncoderConcurrency(1))
	default:
		return b
	}
	z.Write(b)
	z.Close()
	return w.Bytes()
}

func expand(codec int, b []byte) ([]byte, error) {
	switch codec {
	case 0:
		return b, nil
	case 1:
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(z)
	case 2:
		rest, framed := bytes.CutPrefix(b, snappyHeader)
		if !framed {
			return s2.Decode(nil, b)
		}
		var out []byte
		for len(rest) >= 4 {
			n := int(binary.BigEndian.Uint32(rest))
			if n > len(rest)-4 {
				return nil, io.ErrUnexpectedEOF
			}
			block, err := s2.Decode(nil, rest[4:4+n])
			if err != nil {
				return nil, err
			}
			out, rest = append(out, block...), rest[4+n:]
		}
		return out, nil
	case 3:
		return io.ReadAll(lz4.NewReader(bytes.NewReader(b)))
	case 4:
		z, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		return io.ReadAll(z)
	}
	return nil, fmt.Errorf("codec %d", codec)
}

// readBatch and readRecord are a fetched batch as it is compared. Sizes and checksums are not: compressors differ.
type readBatch struct {
	Base          int64
	LeaderEpoch   int32
	Attributes    int16
	LastDelta     int32
	First, Max    int64
	ProducerID    int64
	ProducerEpoch int16
	Sequence      int32
	Wrong         string
	Records       []readRecord
}

type readRecord struct {
	Offset, Timestamp int64
	Key, Value        []byte
	Headers           []string
}

// unpack reads the batches of a fetch; one that is cut off at the end is left out.
func unpack(b []byte) []readBatch {
	out := []readBatch{}
	for len(b) >= 61 {
		n := 12 + int(int32(binary.BigEndian.Uint32(b[8:])))
		if n < 61 || n > len(b) {
			break
		}
		out = append(out, readOne(b[:n]))
		b = b[n:]
	}
	return out
}

func readOne(x []byte) readBatch {
	be := binary.BigEndian
	r := readBatch{
		Base: int64(be.Uint64(x)), LeaderEpoch: int32(be.Uint32(x[12:])), Attributes: int16(be.Uint16(x[21:])),
		LastDelta: int32(be.Uint32(x[23:])), First: int64(be.Uint64(x[27:])), Max: int64(be.Uint64(x[35:])),
		ProducerID: int64(be.Uint64(x[43:])), ProducerEpoch: int16(be.Uint16(x[51:])), Sequence: int32(be.Uint32(x[53:])),
	}
	if x[16] != 2 || crc32.Checksum(x[21:], crcTable) != be.Uint32(x[17:]) {
		r.Wrong = fmt.Sprintf("magic %d, or the checksum", x[16])
		return r
	}
	body, err := expand(int(r.Attributes&7), x[61:])
	if err == nil {
		err = r.read(body, int(int32(be.Uint32(x[57:]))))
	}
	if err != nil {
		r.Wrong = "records cannot be read"
	}
	return r
}

func (r *readBatch) read(b []byte, count int) (err error) {
	short := errors.New("short")
	defer func() {
		if e := recover(); e != nil {
			err = short
		}
	}()
	num := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 {
			panic(short)
		}
		b = b[n:]
		return v
	}
	field := func() []byte {
		n := num()
		if n < 0 {
			return nil
		}
		f := append([]byte{}, b[:n]...)
		b = b[n:]
		return f
	}
	for range count {
		num()
		b = b[1:]
		x := readRecord{Timestamp: r.First + num(), Offset: r.Base + num()}
		x.Key, x.Value = field(), field()
		for range num() * 2 {
			x.Headers = append(x.Headers, string(field()))
		}
		r.Records = append(r.Records, x)
	}
	return nil
}
