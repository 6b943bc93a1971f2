package record

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Rules is what a leader demands of a batch before it appends it: a snapshot of one
// topic's configuration.
type Rules struct {
	MaxMessageBytes int   // max.message.bytes, as received and again after recompression
	KeyRequired     bool  // cleanup.policy has compact
	AppendTime      bool  // message.timestamp.type is LogAppendTime
	BeforeMaxMs     int64 // message.timestamp.before.max.ms
	AfterMaxMs      int64 // message.timestamp.after.max.ms
	KeepCodec       bool  // compression.type is producer
	Codec           Codec // the codec to store with otherwise
	Level           int   // its level
	// MaxDecompressed bounds what one batch may decompress to, in bytes; the defence
	// against compression bombs.
	MaxDecompressed int
	// Internal is set for batches that the broker itself wrote (coordinators): control
	// batches are allowed and the sender is trusted with its base offset.
	Internal bool
}

// Checked is a batch that may be appended once offsets, leader epoch and sequence are
// settled; nothing in it under the CRC changes any more.
type Checked struct {
	Batch Batch
	// MaxTimestamp is the largest effective timestamp and MaxTimestampDelta the offset
	// delta of the first record that carries it (the last record under LogAppendTime).
	MaxTimestamp      int64
	MaxTimestampDelta int32
}

// RecordError says what is wrong with one record of a refused batch.
type RecordError struct {
	Index   int32
	Message string
}

// BatchError refuses a batch. It unwraps to the Kafka error.
type BatchError struct {
	Code    *kerr.Error
	Message string
	Records []RecordError
}

func (e *BatchError) Error() string {
	if len(e.Records) == 0 {
		return e.Message
	}
	var s strings.Builder
	s.WriteString(e.Message)
	for i, r := range e.Records {
		if i == 3 {
			fmt.Fprintf(&s, "; and %d more", len(e.Records)-3)
			break
		}
		fmt.Fprintf(&s, "; record %d: %s", r.Index, r.Message)
	}
	return s.String()
}

func (e *BatchError) Unwrap() error { return e.Code }

func refuse(code *kerr.Error, format string, args ...any) error {
	return &BatchError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Single takes the one batch that a produce request may carry per partition (Produce v3+).
// Bytes after a whole batch that do not make another whole one are dropped, as Kafka does.
func Single(buf []byte) (Batch, error) {
	if len(buf) == 0 {
		return nil, refuse(kerr.InvalidRecord, "the partition has no record batch; a produce request carries exactly one")
	}
	if len(buf) < LogOverhead+5 {
		return nil, refuse(kerr.InvalidRecord, "%d bytes are too few for a record batch", len(buf))
	}
	if magic := int8(buf[16]); magic == 0 || magic == 1 {
		return nil, refuse(kerr.InvalidRecord, "magic %d is no longer accepted; produce record batches of magic 2", magic)
	}
	b, rest, err := Next(buf)
	switch {
	case errors.Is(err, ErrShort):
		return nil, refuse(kerr.InvalidRecord, "the record batch is cut short: %d bytes of it came", len(buf))
	case err != nil:
		return nil, refuse(kerr.CorruptMessage, "%v", err)
	}
	if len(rest) > 0 {
		if _, _, err := Next(rest); err == nil {
			return nil, refuse(kerr.InvalidRecord, "the partition has more than one record batch; a produce request carries exactly one")
		}
	}
	return b, nil
}

// Check decides whether a leader may append b at time now (ms), and prepares it: the
// timestamp type is settled, and it is compressed anew where the topic demands another
// codec. b may be changed in place; nothing else keeps it. Spec: ondisk.md part 17.
func Check(b Batch, rules *Rules, now int64) (Checked, error) {
	if len(b) > rules.MaxMessageBytes {
		return Checked{}, refuse(kerr.MessageTooLarge, "the record batch has %d bytes, more than max.message.bytes=%d allows", len(b), rules.MaxMessageBytes)
	}
	if !b.ValidCRC() {
		return Checked{}, refuse(kerr.CorruptMessage, "the record batch's checksum is %08x, its bytes give %08x", b.StoredCRC(), b.ComputeCRC())
	}
	if err := checkHeader(b, rules); err != nil {
		return Checked{}, err
	}
	payload := b.Payload()
	codec := b.Codec()
	if codec != None {
		buf := getBuffer()
		defer putBuffer(buf)
		plain, err := Decompress(*buf, codec, payload, rules.MaxDecompressed)
		*buf = plain[:0]
		if err != nil {
			return Checked{}, codecError(err, codec, rules)
		}
		payload = plain
	}
	walk, err := walkRecords(b, payload, rules, now)
	if err != nil {
		return Checked{}, err
	}
	target := codec
	if !rules.KeepCodec {
		target = rules.Codec
	}
	if target != codec || codec != None && !walk.contiguous {
		if b, err = rebuild(b, payload, target, rules.Level); err != nil {
			return Checked{}, err
		}
		if len(b) > rules.MaxMessageBytes {
			return Checked{}, refuse(kerr.MessageTooLarge, "the record batch has %d bytes after compression with %s, more than max.message.bytes=%d allows", len(b), target, rules.MaxMessageBytes)
		}
	}
	return settleTime(b, walk, rules, now), nil
}

func codecError(err error, codec Codec, rules *Rules) error {
	switch {
	case codec > Zstd:
		return refuse(kerr.UnsupportedCompressionType, "attributes name codec %d; known are 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd", codec)
	case errors.Is(err, ErrTooLarge):
		return refuse(kerr.MessageTooLarge, "the %s records decompress to more than %d bytes, the limit of max.decompressed.message.bytes and socket.request.max.bytes", codec, rules.MaxDecompressed)
	}
	return refuse(kerr.InvalidRecord, "%v", err)
}

func checkHeader(b Batch, rules *Rules) error {
	count := b.Count()
	if b.BaseOffset() != 0 && !rules.Internal {
		return refuse(kerr.InvalidRecord, "the record batch's base offset is %d; clients send 0", b.BaseOffset())
	}
	if count <= 0 {
		return refuse(kerr.InvalidRecord, "the record batch says it has %d records", count)
	}
	if delta := b.LastOffsetDelta(); int64(delta)+1 != int64(count) {
		return refuse(kerr.InvalidRecord, "the record batch's last offset delta %d does not fit its %d records", delta, count)
	}
	if b.IsControl() && !rules.Internal {
		return refuse(kerr.InvalidRecord, "clients may not write control batches")
	}
	if b.ProducerID() >= 0 && b.BaseSequence() < 0 && !b.IsControl() {
		return refuse(kerr.InvalidRecord, "producer id %d came with sequence %d", b.ProducerID(), b.BaseSequence())
	}
	if b.IsLogAppendTime() && rules.AppendTime {
		return refuse(kerr.InvalidTimestamp, "the sender set the timestamp type LogAppendTime, which only the broker may set")
	}
	return nil
}

type walked struct {
	maxTS      int64
	maxTSDelta int32
	contiguous bool
}

// walkRecords reads every record without building objects.
func walkRecords(b Batch, p []byte, rules *Rules, now int64) (walked, error) {
	count, base := b.Count(), b.BaseTimestamp()
	w := walked{maxTS: NoTimestamp, contiguous: true}
	var bad []RecordError
	badCode := kerr.InvalidRecord
	checkTime := !rules.AppendTime
	for i := range count {
		s, n := skim(p)
		if n <= 0 {
			return w, &BatchError{Code: kerr.InvalidRecord, Message: "the record batch holds a malformed record",
				Records: []RecordError{{i, fmt.Sprintf("malformed, %d bytes before the batch's end", len(p))}}}
		}
		p = p[n:]
		if s.offsetDelta != i {
			w.contiguous = false
		}
		if s.nullKey && rules.KeyRequired {
			bad = append(bad, RecordError{i, "a compacted topic (cleanup.policy has compact) takes no record without a key"})
			continue
		}
		ts := base + s.timestampDelta
		if ts > w.maxTS {
			w.maxTS, w.maxTSDelta = ts, i
		}
		if checkTime && ts != NoTimestamp && (ts < now && now-ts > rules.BeforeMaxMs || ts > now && ts-now > rules.AfterMaxMs) {
			badCode = kerr.InvalidTimestamp
			bad = append(bad, RecordError{i, fmt.Sprintf("timestamp %d is outside the allowed %d ms before and %d ms after the broker's %d (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
				ts, rules.BeforeMaxMs, rules.AfterMaxMs, now)})
		}
	}
	if len(p) != 0 {
		return w, refuse(kerr.InvalidRecord, "%d bytes follow the %d records that the batch says it has", len(p), count)
	}
	if len(bad) > 0 {
		return w, &BatchError{Code: badCode, Message: fmt.Sprintf("%d of %d records are refused, and the whole batch with them", len(bad), count), Records: bad}
	}
	return w, nil
}

// skimmed is what the check needs of a record.
type skimmed struct {
	timestampDelta int64
	offsetDelta    int32
	nullKey        bool
}

// skim checks the structure of the record at the start of p and gives its length, or
// n <= 0 if it is malformed. It is ReadRecord without the parts nobody looks at, on the
// path of every produced byte.
func skim(p []byte) (s skimmed, n int) {
	length, i := uv(p, 0)
	if i <= 0 || length < 0 || length > int64(len(p)-i) || length < 1 {
		return s, 0
	}
	end := i + int(length)
	p = p[:end]
	i++ // attributes
	if s.timestampDelta, i = uv(p, i); i <= 0 {
		return s, 0
	}
	var v int64
	if v, i = uv(p, i); i <= 0 || v != int64(int32(v)) {
		return s, 0
	}
	s.offsetDelta = int32(v)
	if v, i = uv(p, i); i <= 0 || v < -1 || v > int64(end-i) {
		return s, 0
	}
	if s.nullKey = v < 0; !s.nullKey {
		i += int(v)
	}
	if v, i = uv(p, i); i <= 0 || v < -1 || v > int64(end-i) {
		return s, 0
	}
	if v > 0 {
		i += int(v)
	}
	var count int64
	if count, i = uv(p, i); i <= 0 || count < 0 || count > int64(end-i) {
		return s, 0
	}
	for range count {
		if v, i = uv(p, i); i <= 0 || v < 0 || v > int64(end-i) {
			return s, 0
		}
		i += int(v)
		if v, i = uv(p, i); i <= 0 || v < -1 || v > int64(end-i) {
			return s, 0
		}
		if v > 0 {
			i += int(v)
		}
	}
	if i != end {
		return s, 0
	}
	return s, end
}

// uv reads a zig-zag varint at i and gives the index after it, or -1.
func uv(p []byte, i int) (int64, int) {
	if uint(i) >= uint(len(p)) {
		return 0, -1
	}
	if c := p[i]; c < 0x80 {
		return int64(c>>1) ^ -int64(c&1), i + 1
	}
	v, n := Varint(p[i:])
	if n <= 0 {
		return 0, -1
	}
	return v, i + n
}

// rebuild encodes the records anew with another codec, offsets counting from 0.
func rebuild(b Batch, payload []byte, codec Codec, level int) (Batch, error) {
	nb := Builder{
		LeaderEpoch: b.LeaderEpoch(), Codec: codec, Level: level, HasProducer: true,
		Attributes: b.Attributes() &^ CodecMask, ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
	}
	for i := range b.Count() {
		r, err := ReadRecord(payload, true)
		if err != nil {
			return nil, refuse(kerr.InvalidRecord, "record %d: %v", i, err)
		}
		payload = payload[r.Size:]
		ts := b.BaseTimestamp() + r.TimestampDelta
		if i == 0 {
			nb.Timestamp = ts
		}
		nb.AddAt(ts, r.Key, r.Value, r.Headers...)
	}
	return nb.Build(), nil
}

// settleTime stamps the timestamp type and maximum; the CRC is computed anew only if one
// of them changed.
func settleTime(b Batch, w walked, rules *Rules, now int64) Checked {
	c := Checked{Batch: b, MaxTimestamp: w.maxTS, MaxTimestampDelta: w.maxTSDelta}
	attrs := b.Attributes() &^ LogAppendTimeBit
	if rules.AppendTime {
		attrs |= LogAppendTimeBit
		c.MaxTimestamp, c.MaxTimestampDelta = now, b.LastOffsetDelta()
	}
	if attrs != b.Attributes() || b.MaxTimestamp() != c.MaxTimestamp {
		b.SetAttributes(attrs)
		b.SetMaxTimestamp(c.MaxTimestamp)
		b.StampCRC()
	}
	return c
}

// Trust wraps a batch that the broker itself built: only its own maximum is read.
func Trust(b Batch) Checked {
	return Checked{Batch: b, MaxTimestamp: b.MaxTimestamp(), MaxTimestampDelta: b.LastOffsetDelta()}
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keepBuffer is the largest decompression buffer worth keeping between batches.
const keepBuffer = 4 << 20

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= keepBuffer {
		buffers.Put(b)
	}
}
