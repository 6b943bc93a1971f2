package record

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

const now = int64(1_700_000_000_000)

func rules() *Rules {
	return &Rules{MaxMessageBytes: 1 << 20, BeforeMaxMs: math.MaxInt64, AfterMaxMs: 3600000, KeepCodec: true, MaxDecompressed: 1 << 20}
}

func batchOf(codec Codec, n int, change func(*Builder)) Batch {
	b := Builder{Codec: codec, Timestamp: now}
	if change != nil {
		change(&b)
	}
	for i := range n {
		b.AddAt(now+int64(i), []byte{'k', byte(i)}, bytes.Repeat([]byte{'v'}, 50), Header{Key: []byte("h"), Value: nil})
	}
	return b.Build()
}

func TestCheckAcceptsEveryCodecInPlace(t *testing.T) {
	for codec := None; codec <= Zstd; codec++ {
		b := batchOf(codec, 10, nil)
		before := bytes.Clone(b)
		c, err := Check(b, rules(), now)
		if err != nil {
			t.Fatalf("%s: %v", codec, err)
		}
		if !bytes.Equal(c.Batch, before) {
			t.Errorf("%s: the batch was changed", codec)
		}
		if c.MaxTimestamp != now+9 || c.MaxTimestampDelta != 9 {
			t.Errorf("%s: max timestamp %d at %d", codec, c.MaxTimestamp, c.MaxTimestampDelta)
		}
	}
}

// Every way to break a batch gives Kafka's code and leaves nothing appended.
func TestCheckRefuses(t *testing.T) {
	stamp := func(f func(Batch)) func(Batch) Batch {
		return func(b Batch) Batch { f(b); b.StampCRC(); return b }
	}
	tests := []struct {
		name  string
		rules func(*Rules)
		build func(*Builder)
		codec Codec
		spoil func(Batch) Batch
		want  *kerr.Error
	}{
		{name: "size", rules: func(r *Rules) { r.MaxMessageBytes = 100 }, want: kerr.MessageTooLarge},
		{name: "crc", spoil: func(b Batch) Batch { b[len(b)-1] ^= 1; return b }, want: kerr.CorruptMessage},
		{name: "base offset", spoil: func(b Batch) Batch { b.SetBaseOffset(7); return b }, want: kerr.InvalidRecord},
		{name: "count 0", spoil: stamp(func(b Batch) { be.PutUint32(b[57:], 0) }), want: kerr.InvalidRecord},
		{name: "count over delta", spoil: stamp(func(b Batch) { be.PutUint32(b[57:], 4) }), want: kerr.InvalidRecord},
		{name: "more records than counted", spoil: stamp(func(b Batch) { be.PutUint32(b[57:], 2); b.SetLastOffsetDelta(1) }), want: kerr.InvalidRecord},
		{name: "fewer records than counted", spoil: stamp(func(b Batch) { be.PutUint32(b[57:], 9); b.SetLastOffsetDelta(8) }), want: kerr.InvalidRecord},
		{name: "huge count", spoil: stamp(func(b Batch) { be.PutUint32(b[57:], math.MaxInt32); b.SetLastOffsetDelta(math.MaxInt32 - 1) }), want: kerr.InvalidRecord},
		{name: "control", spoil: stamp(func(b Batch) { b.SetAttributes(ControlBit) }), want: kerr.InvalidRecord},
		{name: "producer without sequence", spoil: stamp(func(b Batch) { b.SetProducer(5, 0, -1) }), want: kerr.InvalidRecord},
		{name: "append time bit on append time topic", rules: func(r *Rules) { r.AppendTime = true }, spoil: stamp(func(b Batch) { b.SetAttributes(LogAppendTimeBit) }), want: kerr.InvalidTimestamp},
		{name: "codec 5", spoil: stamp(func(b Batch) { b.SetAttributes(5) }), want: kerr.UnsupportedCompressionType},
		{name: "garbage gzip", spoil: stamp(func(b Batch) { b.SetAttributes(int16(Gzip)) }), want: kerr.InvalidRecord},
		{name: "garbage zstd", spoil: stamp(func(b Batch) { b.SetAttributes(int16(Zstd)) }), want: kerr.InvalidRecord},
		{name: "garbage snappy", spoil: stamp(func(b Batch) { b.SetAttributes(int16(Snappy)) }), want: kerr.InvalidRecord},
		{name: "garbage lz4", spoil: stamp(func(b Batch) { b.SetAttributes(int16(LZ4)) }), want: kerr.InvalidRecord},
		{name: "bomb", codec: Zstd, rules: func(r *Rules) { r.MaxDecompressed = 100 }, want: kerr.MessageTooLarge},
		{name: "future", build: func(b *Builder) { b.Timestamp = now }, rules: func(r *Rules) { r.AfterMaxMs = 1 }, want: kerr.InvalidTimestamp},
		{name: "past", rules: func(r *Rules) { r.BeforeMaxMs = 0; r.AfterMaxMs = 100 }, spoil: stamp(func(b Batch) { b.SetBaseTimestamp(now - 1) }), want: kerr.InvalidTimestamp},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := rules()
			if tc.rules != nil {
				tc.rules(r)
			}
			b := batchOf(tc.codec, 3, tc.build)
			if tc.spoil != nil {
				b = tc.spoil(b)
			}
			_, err := Check(b, r, now)
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestCheckKeylessRecordOnCompactedTopic(t *testing.T) { // B16
	b := Builder{Timestamp: now}
	b.Add([]byte("a"), nil)
	b.Add(nil, []byte("x"))
	b.Add([]byte("b"), nil)
	r := rules()
	r.KeyRequired = true
	_, err := Check(b.Build(), r, now)
	var be *BatchError
	if !errors.As(err, &be) || be.Code != kerr.InvalidRecord || len(be.Records) != 1 || be.Records[0].Index != 1 {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(be.Records[0].Message, "cleanup.policy") {
		t.Errorf("the message does not name the key: %s", be.Records[0].Message)
	}
}

func TestCheckAppendTimeStamps(t *testing.T) {
	r := rules()
	r.AppendTime = true
	for _, codec := range []Codec{None, Snappy} {
		c, err := Check(batchOf(codec, 3, nil), r, now+500)
		if err != nil {
			t.Fatal(err)
		}
		b := c.Batch
		if !b.IsLogAppendTime() || b.MaxTimestamp() != now+500 || !b.ValidCRC() || c.MaxTimestampDelta != 2 {
			t.Errorf("%s: append time %v, max %d, crc %v", codec, b.IsLogAppendTime(), b.MaxTimestamp(), b.ValidCRC())
		}
	}
	// A CreateTime topic clears the bit that a client set (measured.md 2).
	b := batchOf(None, 1, nil)
	b.SetAttributes(LogAppendTimeBit)
	b.StampCRC()
	c, err := Check(b, rules(), now)
	if err != nil || c.Batch.IsLogAppendTime() || !c.Batch.ValidCRC() {
		t.Errorf("bit not cleared: %v", err)
	}
}

func TestCheckRecompresses(t *testing.T) { // B12, B14
	for _, from := range []Codec{None, Gzip, LZ4} {
		for target := None; target <= Zstd; target++ {
			r := rules()
			r.KeepCodec, r.Codec, r.Level = false, target, DefaultLevel
			c, err := Check(batchOf(from, 5, func(b *Builder) { b.HasProducer, b.ProducerID, b.BaseSequence = true, 9, 3 }), r, now)
			if err != nil {
				t.Fatalf("%s to %s: %v", from, target, err)
			}
			b := c.Batch
			if b.Codec() != target || !b.ValidCRC() || b.ProducerID() != 9 || b.BaseSequence() != 3 || b.Count() != 5 {
				t.Errorf("%s to %s: codec %s", from, target, b.Codec())
			}
			plain, err := Decompress(nil, target, b.Payload(), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				rec, err := ReadRecord(plain, true)
				if err != nil || rec.Key[1] != byte(i) || rec.OffsetDelta != int32(i) || len(rec.Headers) != 1 || rec.Headers[0].Value != nil {
					t.Fatalf("record %d: %+v, %v", i, rec, err)
				}
				plain = plain[rec.Size:]
			}
			if target == Snappy && !bytes.HasPrefix(b.Payload(), []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}) {
				t.Errorf("snappy without xerial's big-endian header: % x", b.Payload()[:16])
			}
		}
	}
}

func TestSingle(t *testing.T) {
	one := batchOf(None, 1, nil)
	if _, err := Single(append(bytes.Clone(one), one...)); !errors.Is(err, kerr.InvalidRecord) {
		t.Errorf("two batches: %v", err)
	}
	if b, err := Single(append(bytes.Clone(one), one[:30]...)); err != nil || len(b) != len(one) {
		t.Errorf("half a batch after a whole one is dropped, got %v", err)
	}
	for n := range len(one) {
		if _, err := Single(one[:n]); !errors.Is(err, kerr.InvalidRecord) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	for magic, want := range map[byte]*kerr.Error{0: kerr.InvalidRecord, 1: kerr.InvalidRecord, 3: kerr.CorruptMessage} {
		b := bytes.Clone(one)
		b[16] = magic
		if _, err := Single(b); !errors.Is(err, want) {
			t.Errorf("magic %d: %v", magic, err)
		}
	}
	for _, length := range []int32{20, 0, -1} {
		b := bytes.Clone(one)
		be.PutUint32(b[8:], uint32(length))
		if _, err := Single(b); !errors.Is(err, kerr.CorruptMessage) {
			t.Errorf("length %d: %v", length, err)
		}
	}
}

// A lying header cannot make the snappy or record decoders allocate (P1).
func TestLyingCountsDoNotAllocate(t *testing.T) {
	lie := append([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, 0, 0)
	if got := testing.AllocsPerRun(10, func() { Decompress(nil, Snappy, lie, 1<<30) }); got > 10 {
		t.Errorf("%v allocations", got)
	}
	rec := AppendRecord(nil, Record{Key: []byte("k")})
	rec[len(rec)-1] = 0x7e // 63 headers, none there
	if _, err := ReadRecord(rec, true); !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v", err)
	}
}

func TestSequenceWraps(t *testing.T) {
	for _, tc := range []struct{ seq, n, want int32 }{{0, 4, 4}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 3, 1}, {-1, 5, -1}} {
		if got := AddSequence(tc.seq, tc.n); got != tc.want {
			t.Errorf("%d + %d = %d, want %d", tc.seq, tc.n, got, tc.want)
		}
	}
}

// skim and ReadRecord must agree on what a record is.
func FuzzRecord(f *testing.F) {
	f.Add(AppendRecord(nil, Record{Key: []byte("key"), Value: []byte("value"), Headers: []Header{{[]byte("a"), nil}}}))
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		r, err := ReadRecord(p, true)
		s, n := skim(p)
		if (err == nil) != (n > 0) {
			t.Fatalf("ReadRecord %v, skim %d", err, n)
		}
		if err == nil && (n != r.Size || s.offsetDelta != r.OffsetDelta || s.timestampDelta != r.TimestampDelta || s.nullKey != (r.Key == nil)) {
			t.Fatalf("ReadRecord %+v, skim %+v of %d", r, s, n)
		}
	})
}

func FuzzCheck(f *testing.F) {
	for codec := None; codec <= Zstd; codec++ {
		f.Add([]byte(batchOf(codec, 3, nil)), true)
	}
	f.Fuzz(func(t *testing.T, p []byte, restamp bool) {
		b, err := Single(p)
		if err != nil {
			return
		}
		b = bytes.Clone(b)
		if restamp {
			b.StampCRC()
		}
		c, err := Check(b, rules(), now)
		if err != nil {
			return
		}
		if !c.Batch.ValidCRC() || c.Batch.Size() != len(c.Batch) {
			t.Fatal("an accepted batch is not whole")
		}
	})
}
