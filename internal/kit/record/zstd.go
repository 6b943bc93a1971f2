package record

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	zstdBlock  = 128 << 10 // what one block holds at most, by the format
	zstdSparse = 64        // a block that claims to grow more than so often is not given its room at once
	zstdSmall  = 4 << 20   // unless it claims no more than this
	zstdSlack  = 64        // room behind the end that the decoder's fast path wants
)

var zstdReaders sync.Pool

// zstdDecompress decodes straight into dst. The room for it is taken from the headers of the blocks, not from the window
// that a frame claims (clients at high levels claim 128 MiB for a small batch) nor from the content size it states, for
// either may lie.
func zstdDecompress(dst, src []byte, limit int) ([]byte, error) {
	known, most, err := zstdSizes(src)
	if err != nil {
		return dst, fmt.Errorf("%w: zstd: %w", ErrCodec, err)
	}
	if known > int64(limit) {
		return dst, ErrTooLarge
	}
	r, _ := zstdReaders.Get().(*zstd.Decoder)
	if r == nil {
		if r, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true)); err != nil {
			return dst, err
		}
	}
	defer zstdReaders.Put(r)
	most = min(most, int64(limit))
	room := min(most, max(zstdSmall, known, int64(zstdSparse*len(src))))
	for {
		if int64(cap(dst)) < room+zstdSlack {
			dst = make([]byte, 0, room+zstdSlack)
		}
		out, err := r.DecodeAll(src, dst[:0:min(int64(cap(dst)), int64(limit)+zstdSlack)])
		switch {
		case err == nil && len(out) <= limit:
			return out, nil
		case err == nil:
			return dst, ErrTooLarge
		case !outOfRoom(err):
			return dst, fmt.Errorf("%w: zstd: %w", ErrCodec, err)
		case room < most:
			room = min(most, 4*room)
		case room == int64(limit):
			return dst, ErrTooLarge
		default: // it had all the room that its blocks can fill
			return dst, fmt.Errorf("%w: zstd: %w", ErrCodec, err)
		}
	}
}

// outOfRoom tells the two errors that a decoder gives when its output does not fit. The second has no name.
func outOfRoom(err error) bool {
	return errors.Is(err, zstd.ErrDecoderSizeExceeded) || strings.Contains(err.Error(), "output bigger than max block size")
}

var errZstdCut = errors.New("cut short")

// zstdSizes adds up what the blocks of all frames decompress to: known for those that state their size, most for all.
func zstdSizes(src []byte) (known, most int64, err error) {
	for len(src) > 0 {
		var h zstd.Header
		rest, err := h.DecodeAndStrip(src)
		if err != nil {
			return 0, 0, err
		}
		if h.Skippable {
			if int64(h.SkippableSize) > int64(len(rest)) {
				return 0, 0, errZstdCut
			}
			src = rest[h.SkippableSize:]
			continue
		}
		k, m, rest, err := zstdBlocks(rest)
		if err != nil {
			return 0, 0, err
		}
		if h.HasCheckSum {
			if len(rest) < 4 {
				return 0, 0, errZstdCut
			}
			rest = rest[4:]
		}
		if h.HasFCS { // a smaller one cannot be kept: that is for the decoder to say
			m = max(k, min(m, int64(min(h.FrameContentSize, 1<<62))))
		}
		known, most, src = known+k, most+m, rest
	}
	return known, most, nil
}

// zstdBlocks walks the blocks of one frame.
func zstdBlocks(src []byte) (known, most int64, rest []byte, err error) {
	for last := false; !last; {
		if len(src) < 3 {
			return 0, 0, nil, errZstdCut
		}
		head := int(src[0]) | int(src[1])<<8 | int(src[2])<<16
		src = src[3:]
		size, stored := head>>3, head>>3
		last = head&1 != 0
		switch head >> 1 & 3 {
		case 0: // raw
			known, most = known+int64(size), most+int64(size)
		case 1: // one byte, repeated
			known, most, stored = known+int64(size), most+int64(size), 1
		case 2: // compressed
			most += zstdBlock
		default:
			return 0, 0, nil, errors.New("reserved block type")
		}
		if size > zstdBlock {
			return 0, 0, nil, fmt.Errorf("a block of %d bytes", size)
		}
		if stored > len(src) {
			return 0, 0, nil, errZstdCut
		}
		src = src[stored:]
	}
	return known, most, src, nil
}
