package wire

import (
	"encoding/binary"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Header is a request header (v1, or v2 where the version is flexible).
type Header struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      string // empty if null
}

// ErrHeader says that a frame is too short for its header or lies about lengths in it.
var ErrHeader = errors.New("malformed request header")

// ParseHeader splits a frame (without its size) into header and body. For keys that are
// not known, flexible is taken as false: such a request is refused anyway.
func ParseHeader(frame []byte, flexible func(key, version int16) bool) (Header, []byte, error) {
	var h Header
	if len(frame) < 8 {
		return h, nil, ErrHeader
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	rest := frame[8:]
	if len(rest) < 2 {
		return h, nil, ErrHeader
	}
	n := int(int16(binary.BigEndian.Uint16(rest)))
	rest = rest[2:]
	if n > 0 { // below 0 reads as null
		if n > len(rest) {
			return h, nil, ErrHeader
		}
		h.ClientID = string(rest[:n])
		rest = rest[n:]
	}
	if flexible(h.Key, h.Version) {
		var ok bool
		if rest, ok = skipTags(rest); !ok {
			return h, nil, ErrHeader
		}
	}
	return h, rest, nil
}

func skipTags(p []byte) ([]byte, bool) {
	count, n := binary.Uvarint(p)
	if n <= 0 || count > uint64(len(p)) {
		return nil, false
	}
	p = p[n:]
	for range count {
		if _, n = binary.Uvarint(p); n <= 0 {
			return nil, false
		}
		p = p[n:]
		size, n := binary.Uvarint(p)
		if n <= 0 || size > uint64(len(p)-n) {
			return nil, false
		}
		p = p[n+int(size):]
	}
	return p, true
}

// AppendHeader encodes a request header.
func AppendHeader(dst []byte, h Header, flexible bool) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.CorrelationID))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(h.ClientID)))
	dst = append(dst, h.ClientID...)
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

// AppendResponseHeader writes the response header: v1 (with an empty tag section) where
// the body is flexible, except for ApiVersions, whose header stays v0 so that clients
// can read an answer in a version they did not expect (KIP-511).
func AppendResponseHeader(dst []byte, correlationID int32, key int16, flexible bool) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if flexible && key != int16(kmsg.ApiVersions) {
		dst = append(dst, 0)
	}
	return dst
}

// ResponseFlexible reports whether the header of an answer is v1.
func ResponseFlexible(r kmsg.Response) bool {
	return r.IsFlexible() && r.Key() != int16(kmsg.ApiVersions)
}
