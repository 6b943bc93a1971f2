package record

import (
	"errors"
	"fmt"
)

// Header is one record header. A nil Value is a null value.
type Header struct {
	Key   []byte
	Value []byte
}

// Record is one record of a batch, aliasing the batch's (decompressed) bytes. A nil Key
// or Value is null; empty is not nil.
type Record struct {
	Size           int // encoded length including its length prefix
	Attributes     int8
	TimestampDelta int64
	OffsetDelta    int32
	Key            []byte
	Value          []byte
	Headers        []Header
}

// ErrMalformed says that the bytes of a record break the format.
var ErrMalformed = errors.New("malformed record")

// ReadRecord decodes the record at the start of p. With headers false the header list is
// checked for its bounds but not kept.
func ReadRecord(p []byte, headers bool) (Record, error) {
	var r Record
	length, n := Varint(p)
	if n <= 0 || length < 0 || length > int64(len(p)-n) {
		return r, fmt.Errorf("%w: length", ErrMalformed)
	}
	r.Size = n + int(length)
	body := p[n:r.Size]
	if len(body) < 1 {
		return r, fmt.Errorf("%w: attributes", ErrMalformed)
	}
	r.Attributes = int8(body[0])
	body = body[1:]
	var ok bool
	if r.TimestampDelta, body, ok = takeVarint(body); !ok {
		return r, fmt.Errorf("%w: timestamp delta", ErrMalformed)
	}
	d, body, ok := takeVarint(body)
	if !ok || d != int64(int32(d)) {
		return r, fmt.Errorf("%w: offset delta", ErrMalformed)
	}
	r.OffsetDelta = int32(d)
	if r.Key, body, ok = takeBytes(body); !ok {
		return r, fmt.Errorf("%w: key", ErrMalformed)
	}
	if r.Value, body, ok = takeBytes(body); !ok {
		return r, fmt.Errorf("%w: value", ErrMalformed)
	}
	count, body, ok := takeVarint(body)
	// Each header takes at least two bytes, so a lying count cannot make us allocate.
	if !ok || count < 0 || count > int64(len(body)/2) {
		return r, fmt.Errorf("%w: header count", ErrMalformed)
	}
	if headers && count > 0 {
		r.Headers = make([]Header, 0, count)
	}
	for range count {
		var h Header
		if h.Key, body, ok = takeBytes(body); !ok || h.Key == nil {
			return r, fmt.Errorf("%w: header key", ErrMalformed)
		}
		if h.Value, body, ok = takeBytes(body); !ok {
			return r, fmt.Errorf("%w: header value", ErrMalformed)
		}
		if headers {
			r.Headers = append(r.Headers, h)
		}
	}
	if len(body) != 0 {
		return r, fmt.Errorf("%w: %d bytes after the headers", ErrMalformed, len(body))
	}
	return r, nil
}

// AppendRecord encodes a record; Size is ignored.
func AppendRecord(dst []byte, r Record) []byte {
	size := 1 + VarintLen(r.TimestampDelta) + VarintLen(int64(r.OffsetDelta)) +
		bytesLen(r.Key) + bytesLen(r.Value) + VarintLen(int64(len(r.Headers)))
	for _, h := range r.Headers {
		size += bytesLen(h.Key) + bytesLen(h.Value)
	}
	dst = AppendVarint(dst, int64(size))
	dst = append(dst, byte(r.Attributes))
	dst = AppendVarint(dst, r.TimestampDelta)
	dst = AppendVarint(dst, int64(r.OffsetDelta))
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = AppendVarint(dst, int64(len(r.Headers)))
	for _, h := range r.Headers {
		key := h.Key
		if key == nil {
			key = []byte{}
		}
		dst = appendBytes(dst, key)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

// Varint decodes a zig-zag varint of up to 10 bytes. n <= 0 means malformed.
func Varint(p []byte) (v int64, n int) {
	var u uint64
	for i, c := range p {
		if i == 10 || i == 9 && c > 1 {
			return 0, 0
		}
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	return 0, 0
}

// AppendVarint encodes a zig-zag varint.
func AppendVarint(dst []byte, v int64) []byte {
	u := uint64(v<<1) ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

// VarintLen is the encoded length of v.
func VarintLen(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}

func takeVarint(p []byte) (int64, []byte, bool) {
	v, n := Varint(p)
	if n <= 0 {
		return 0, p, false
	}
	return v, p[n:], true
}

func takeBytes(p []byte) (b, rest []byte, ok bool) {
	n, rest, ok := takeVarint(p)
	if !ok || n < -1 || n > int64(len(rest)) {
		return nil, p, false
	}
	if n == -1 {
		return nil, rest, true
	}
	return rest[:n:n], rest[n:], true
}

func bytesLen(b []byte) int {
	if b == nil {
		return 1
	}
	return VarintLen(int64(len(b))) + len(b)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return AppendVarint(dst, -1)
	}
	dst = AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}
