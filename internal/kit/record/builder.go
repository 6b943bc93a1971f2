package record

import "time"

// Builder makes one batch for what the broker itself writes (coordinator and metadata
// records, control records) and for tests. The zero value with a Timestamp makes an
// uncompressed, non-idempotent batch at offset 0.
type Builder struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Codec         Codec
	Level         int // DefaultLevel unless set by the caller; 0 is taken as DefaultLevel
	Attributes    int16
	ProducerID    int64 // 0 with HasProducer false means none
	ProducerEpoch int16
	BaseSequence  int32
	HasProducer   bool
	Timestamp     int64 // ms; base timestamp of the batch

	records []byte
	count   int32
	maxTS   int64
}

// Add appends a record stamped with the builder's timestamp.
func (b *Builder) Add(key, value []byte, headers ...Header) {
	b.AddAt(b.Timestamp, key, value, headers...)
}

// AddAt appends a record with its own timestamp in ms.
func (b *Builder) AddAt(ts int64, key, value []byte, headers ...Header) {
	if b.count == 0 || ts > b.maxTS {
		b.maxTS = ts
	}
	b.records = AppendRecord(b.records, Record{
		TimestampDelta: ts - b.Timestamp, OffsetDelta: b.count, Key: key, Value: value, Headers: headers,
	})
	b.count++
}

// Count is the number of records added; SizeEstimate the uncompressed size of the batch.
func (b *Builder) Count() int        { return int(b.count) }
func (b *Builder) SizeEstimate() int { return HeaderSize + len(b.records) }

// Build gives the finished batch. The builder may not be used again.
func (b *Builder) Build() Batch {
	level := b.Level
	if level == 0 {
		level = DefaultLevel
	}
	payload := b.records
	if b.Codec != None {
		p, err := Compress(nil, b.Codec, level, payload)
		if err != nil {
			panic("record: compressing with an unknown codec: " + err.Error())
		}
		payload = p
	}
	out := make(Batch, HeaderSize, HeaderSize+len(payload))
	out.SetBaseOffset(b.BaseOffset)
	be.PutUint32(out[8:], uint32(HeaderSize-LogOverhead+len(payload)))
	out.SetLeaderEpoch(b.LeaderEpoch)
	out[16] = 2
	out.SetAttributes(b.Attributes | int16(b.Codec))
	out.SetLastOffsetDelta(b.count - 1)
	out.SetBaseTimestamp(b.Timestamp)
	out.SetMaxTimestamp(b.maxTS)
	if b.HasProducer {
		out.SetProducer(b.ProducerID, b.ProducerEpoch, b.BaseSequence)
	} else {
		out.SetProducer(NoProducer, NoEpoch, NoSequence)
	}
	be.PutUint32(out[57:], uint32(b.count))
	out = append(out, payload...)
	out.StampCRC()
	return out
}

// Millis is the time form of every timestamp in batches: milliseconds since 1970.
func Millis(t time.Time) int64 { return t.UnixMilli() }
