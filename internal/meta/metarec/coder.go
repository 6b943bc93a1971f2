package metarec

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"

	"runnel/internal/kit/ids"
)

// coder reads or writes one record, so that each schema is spelled once. Reading
// consumes b; writing appends to it. After the first error reads give zero values.
type coder struct {
	b       []byte
	reading bool
	version int16
	err     error
}

var (
	errShort   = errors.New("bytes end inside a field")
	errNull    = errors.New("null in a field that may not be null")
	errVarint  = errors.New("varint of more than 5 bytes or 32 bits")
	errTagSize = errors.New("tagged field has bytes left over")
)

func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.b = nil
}

func (c *coder) take(n int) []byte {
	if n > len(c.b) {
		c.fail(errShort)
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *coder) record(r interface {
	code(*coder)
	tags(int16) uint16
	tagged(*coder, int) bool
}) {
	r.code(c)
	if c.reading {
		c.readTags(r)
		return
	}
	set := r.tags(c.version)
	c.b = appendUvarint(c.b, uint64(bits.OnesCount16(set)))
	for tag := 0; set != 0; tag, set = tag+1, set>>1 {
		if set&1 == 0 {
			continue
		}
		c.b = appendUvarint(c.b, uint64(tag))
		var scratch [64]byte
		field := coder{b: scratch[:0], version: c.version}
		r.tagged(&field, tag)
		c.b = appendUvarint(c.b, uint64(len(field.b)))
		c.b = append(c.b, field.b...)
	}
}

func (c *coder) readTags(r interface{ tagged(*coder, int) bool }) {
	for n := c.uvarint(); n > 0 && c.err == nil; n-- {
		tag, size := c.uvarint(), c.uvarint()
		if c.err != nil || size > uint64(len(c.b)) {
			c.fail(errShort)
			return
		}
		field := coder{b: c.take(int(size)), reading: true, version: c.version}
		if r != nil && tag < 16 && r.tagged(&field, int(tag)) {
			if field.err == nil && len(field.b) != 0 {
				field.err = errTagSize
			}
			if field.err != nil {
				c.fail(field.err)
			}
		}
	}
}

// noTags codes the tagged section of a nested structure, none of which has any yet.
func (c *coder) noTags() {
	if c.reading {
		c.readTags(nil)
		return
	}
	c.b = append(c.b, 0)
}

func (c *coder) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	switch {
	case n == 0:
		c.fail(errShort)
		return 0
	case n < 0 || n > 5 || v > math.MaxUint32:
		c.fail(errVarint)
		return 0
	}
	c.b = c.b[n:]
	return v
}

func appendUvarint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

func (c *coder) int8(v *int8) {
	if c.reading {
		if p := c.take(1); p != nil {
			*v = int8(p[0])
		}
		return
	}
	c.b = append(c.b, byte(*v))
}

func (c *coder) bool(v *bool) {
	if c.reading {
		if p := c.take(1); p != nil {
			*v = p[0] != 0
		}
		return
	}
	if *v {
		c.b = append(c.b, 1)
	} else {
		c.b = append(c.b, 0)
	}
}

func (c *coder) int16(v *int16) {
	if c.reading {
		if p := c.take(2); p != nil {
			*v = int16(binary.BigEndian.Uint16(p))
		}
		return
	}
	c.b = binary.BigEndian.AppendUint16(c.b, uint16(*v))
}

func (c *coder) uint16(v *uint16) {
	if c.reading {
		if p := c.take(2); p != nil {
			*v = binary.BigEndian.Uint16(p)
		}
		return
	}
	c.b = binary.BigEndian.AppendUint16(c.b, *v)
}

func (c *coder) int32(v *int32) {
	if c.reading {
		if p := c.take(4); p != nil {
			*v = int32(binary.BigEndian.Uint32(p))
		}
		return
	}
	c.b = binary.BigEndian.AppendUint32(c.b, uint32(*v))
}

func (c *coder) int64(v *int64) {
	if c.reading {
		if p := c.take(8); p != nil {
			*v = int64(binary.BigEndian.Uint64(p))
		}
		return
	}
	c.b = binary.BigEndian.AppendUint64(c.b, uint64(*v))
}

func (c *coder) float64(v *float64) {
	if c.reading {
		if p := c.take(8); p != nil {
			*v = math.Float64frombits(binary.BigEndian.Uint64(p))
		}
		return
	}
	c.b = binary.BigEndian.AppendUint64(c.b, math.Float64bits(*v))
}

func (c *coder) uuid(v *ids.UUID) {
	if c.reading {
		copy(v[:], c.take(16))
		return
	}
	c.b = append(c.b, v[:]...)
}

// span reads a compact length and its bytes; ok is false for null.
func (c *coder) span() (p []byte, ok bool) {
	n := c.uvarint()
	if n == 0 {
		return nil, false
	}
	return c.take(int(n - 1)), true
}

func (c *coder) string(v *string) {
	if c.reading {
		p, ok := c.span()
		if !ok {
			c.fail(errNull)
		}
		*v = string(p)
		return
	}
	c.b = appendUvarint(c.b, uint64(len(*v))+1)
	c.b = append(c.b, *v...)
}

func (c *coder) nullableString(v **string) {
	if c.reading {
		p, ok := c.span()
		*v = nil
		if ok {
			s := string(p)
			*v = &s
		}
		return
	}
	if *v == nil {
		c.b = append(c.b, 0)
		return
	}
	c.string(*v)
}

func (c *coder) bytes(v *[]byte) {
	if c.reading {
		p, ok := c.span()
		if !ok {
			c.fail(errNull)
		}
		*v = append([]byte(nil), p...)
		return
	}
	c.b = appendUvarint(c.b, uint64(len(*v))+1)
	c.b = append(c.b, *v...)
}

// array codes a compact array. A nil slice is written as null if nullable, else as
// empty; an empty array is read as nil unless null has its own meaning.
func array[T any](c *coder, s *[]T, nullable bool, elem func(*coder, *T)) {
	if !c.reading {
		if *s == nil && nullable {
			c.b = append(c.b, 0)
			return
		}
		c.b = appendUvarint(c.b, uint64(len(*s))+1)
		for i := range *s {
			elem(c, &(*s)[i])
		}
		return
	}
	*s = nil
	n := c.uvarint()
	if n == 0 {
		if !nullable {
			c.fail(errNull)
		}
		return
	}
	n--
	// Each element takes a byte at least, so a lying count cannot make us allocate.
	if n > uint64(len(c.b)) {
		c.fail(errShort)
		return
	}
	if n == 0 {
		if nullable {
			*s = []T{}
		}
		return
	}
	*s = make([]T, n)
	for i := range *s {
		elem(c, &(*s)[i])
		if c.err != nil {
			*s = nil
			return
		}
	}
}

func (c *coder) int32s(s *[]int32, nullable bool) { array(c, s, nullable, (*coder).int32) }
func (c *coder) uuids(s *[]ids.UUID, nullable bool) {
	array(c, s, nullable, (*coder).uuid)
}
