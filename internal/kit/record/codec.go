package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is the compression of a batch's records, the low three attribute bits.
type Codec int8

const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String is the value that compression.type takes for the codec.
func (c Codec) String() string {
	switch c {
	case None:
		return "uncompressed"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", int8(c))
}

// ErrTooLarge says that a block decompresses to more than the caller's limit: a bomb, or
// a limit set too low.
var ErrTooLarge = errors.New("decompressed records exceed the limit")

// ErrCodec says that a compressed block cannot be read, or names no codec.
var ErrCodec = errors.New("undecodable compressed records")

// xerial's framing, which Java clients write and all clients read: 8 magic bytes,
// version 1, compatible version 1, then blocks of int32 length + raw snappy.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialBlock = 32 << 10

// Decompress appends the decompressed form of src to dst[:0] and never grows it past
// limit bytes: what exceeds it is ErrTooLarge before it is allocated.
func Decompress(dst []byte, c Codec, src []byte, limit int) ([]byte, error) {
	dst = dst[:0]
	switch c {
	case None:
		return append(dst, src...), nil
	case Gzip:
		r, _ := gzipReaders.Get().(*gzip.Reader)
		var err error
		if r == nil {
			r, err = gzip.NewReader(bytes.NewReader(src))
		} else {
			err = r.Reset(bytes.NewReader(src))
		}
		if err != nil {
			return dst, fmt.Errorf("%w: gzip: %w", ErrCodec, err)
		}
		defer gzipReaders.Put(r)
		return readLimited(dst, r, limit, "gzip")
	case Snappy:
		return snappyDecompress(dst, src, limit)
	case LZ4:
		r, _ := lz4Readers.Get().(*lz4.Reader)
		if r == nil {
			r = lz4.NewReader(nil)
		}
		r.Reset(bytes.NewReader(src))
		defer lz4Readers.Put(r)
		return readLimited(dst, r, limit, "lz4")
	case Zstd:
		return zstdDecompress(dst, src, limit)
	}
	return dst, fmt.Errorf("%w: no codec has the number %d", ErrCodec, c)
}

var gzipReaders, lz4Readers sync.Pool

func readLimited(dst []byte, r io.Reader, limit int, name string) ([]byte, error) {
	for {
		if len(dst) >= limit {
			// Full to the limit: fine only if the block ends here.
			var one [1]byte
			n, err := io.ReadFull(r, one[:])
			if n == 0 && err == io.EOF {
				return dst, nil
			}
			if n > 0 {
				return dst, ErrTooLarge
			}
			return dst, fmt.Errorf("%w: %s: %w", ErrCodec, name, err)
		}
		if len(dst) == cap(dst) {
			grown := make([]byte, len(dst), min(max(2*cap(dst), 16<<10), limit))
			copy(grown, dst)
			dst = grown
		}
		n, err := r.Read(dst[len(dst):min(cap(dst), limit)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, fmt.Errorf("%w: %s: %w", ErrCodec, name, err)
		}
	}
}

func snappyDecompress(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return snappyBlock(dst, src, limit)
	}
	if len(src) < 16 {
		return dst, fmt.Errorf("%w: snappy: header cut short", ErrCodec)
	}
	src = src[16:]
	for len(src) > 0 {
		if len(src) < 4 {
			return dst, fmt.Errorf("%w: snappy: block length cut short", ErrCodec)
		}
		n := int(int32(binary.BigEndian.Uint32(src)))
		src = src[4:]
		if n < 0 || n > len(src) {
			return dst, fmt.Errorf("%w: snappy: block length %d with %d bytes left", ErrCodec, n, len(src))
		}
		var err error
		if dst, err = snappyBlock(dst, src[:n], limit); err != nil {
			return dst, err
		}
		src = src[n:]
	}
	return dst, nil
}

// snappyBlock appends one raw block. s2 reads snappy's format.
func snappyBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return dst, fmt.Errorf("%w: snappy: %w", ErrCodec, err)
	}
	if n > limit-len(dst) {
		return dst, ErrTooLarge
	}
	// A raw block of m bytes cannot hold more than about 64*m/3 (copies of 64 bytes in 3);
	// a longer claim is a lie, refused before it is allocated.
	if n > 64 && n/32 > len(src) {
		return dst, fmt.Errorf("%w: snappy: %d bytes claim to be %d", ErrCodec, len(src), n)
	}
	need := len(dst) + n
	if cap(dst) < need {
		grown := make([]byte, len(dst), need)
		copy(grown, dst)
		dst = grown
	}
	if _, err := s2.Decode(dst[len(dst):need:need], src); err != nil {
		return dst, fmt.Errorf("%w: snappy: %w", ErrCodec, err)
	}
	return dst[:need], nil
}

// DefaultLevel picks the codec's own default in Compress.
const DefaultLevel = -1 << 31

// Compress appends the compressed form of src to dst. Levels are those of Kafka's
// compression.CODEC.level keys; codecs without levels ignore it.
func Compress(dst []byte, c Codec, level int, src []byte) ([]byte, error) {
	switch c {
	case None:
		return append(dst, src...), nil
	case Gzip:
		if level == DefaultLevel {
			level = gzip.DefaultCompression
		}
		buf := bytes.NewBuffer(dst)
		w, err := gzip.NewWriterLevel(buf, level)
		if err != nil {
			return dst, err
		}
		return finish(buf, w, src)
	case Snappy:
		dst = append(dst, xerialMagic...)
		dst = append(dst, 0, 0, 0, 1, 0, 0, 0, 1)
		for len(src) > 0 {
			n := min(len(src), xerialBlock)
			block := s2.EncodeSnappy(nil, src[:n])
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
			dst = append(dst, block...)
			src = src[n:]
		}
		return dst, nil
	case LZ4:
		buf := bytes.NewBuffer(dst)
		w := lz4.NewWriter(buf)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.CompressionLevelOption(lz4Level(level))); err != nil {
			return dst, err
		}
		return finish(buf, w, src)
	case Zstd:
		el := zstd.SpeedDefault
		if level != DefaultLevel {
			el = zstd.EncoderLevelFromZstd(level)
		}
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(el), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return dst, err
		}
		defer w.Close()
		return w.EncodeAll(src, dst), nil
	}
	return dst, fmt.Errorf("%w: no codec has the number %d", ErrCodec, c)
}

func finish(buf *bytes.Buffer, w io.WriteCloser, src []byte) ([]byte, error) {
	if _, err := w.Write(src); err != nil {
		return buf.Bytes(), err
	}
	if err := w.Close(); err != nil {
		return buf.Bytes(), err
	}
	return buf.Bytes(), nil
}

// lz4Level maps Kafka's 1..17 on the writer's fast and 1..9 levels. Kafka's default of 9
// is its fast compressor's quality here too: the writer's high levels cost ten times the
// CPU for a few percent.
func lz4Level(level int) lz4.CompressionLevel {
	if level == DefaultLevel || level <= 9 {
		return lz4.Fast
	}
	return 1 << (8 + min(level-9, 9))
}
