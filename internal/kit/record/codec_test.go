package record

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// What is compressed comes back whole, up to exactly the limit and not a byte more, whatever room there was before.
func TestDecompressLimits(t *testing.T) {
	for _, c := range []Codec{Gzip, Snappy, LZ4, Zstd} {
		for _, size := range []int{0, 1, 100, 16 << 10, zstdBlock - 1, zstdBlock, zstdBlock + 1, 1 << 20} {
			for _, repeating := range []bool{true, false} {
				src := make([]byte, size)
				for i := range src {
					if src[i] = byte(i / 512); !repeating {
						src[i] = byte(i * i >> 7)
					}
				}
				name := fmt.Sprint(c, " ", size, " ", repeating)
				packed, err := Compress(nil, c, DefaultLevel, src)
				if err != nil {
					t.Fatal(name, err)
				}
				for _, room := range []int{0, 10, 2 * size} {
					got, err := Decompress(make([]byte, 0, room), c, packed, size)
					if err != nil || !bytes.Equal(got, src) {
						t.Errorf("%s: limit at its size: %d bytes, %v", name, len(got), err)
					}
					if size == 0 {
						continue
					}
					if _, err := Decompress(make([]byte, 0, room), c, packed, size-1); !errors.Is(err, ErrTooLarge) {
						t.Errorf("%s: limit under its size: %v", name, err)
					}
				}
				if size > 0 {
					if _, err := Decompress(nil, c, packed[:len(packed)-1], size); !errors.Is(err, ErrCodec) {
						t.Errorf("%s: cut short: %v", name, err)
					}
				}
			}
		}
	}
}

// A zstd stream does not say how long it is; its frames may follow each other.
func TestZstdStreamed(t *testing.T) {
	var packed bytes.Buffer
	want := make([]byte, 0, 600<<10)
	for i := range 2 {
		w, err := zstd.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		part := bytes.Repeat([]byte{byte(i), 1, 2}, 100<<10)
		w.Write(part[:1000])
		w.Flush()
		w.Write(part[1000:])
		w.Close()
		want = append(want, part...)
	}
	got, err := Decompress(nil, Zstd, packed.Bytes(), 1<<20)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
	}
}

// A frame that lies about its size costs no memory.
func TestZstdLyingSize(t *testing.T) {
	// Magic, one segment with an 8-byte content size, 512 MiB; then an empty last block.
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0x20, 0, 0, 0, 0, 1, 0, 0}
	const rounds = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		if _, err := Decompress(nil, Zstd, frame, 1<<30); err == nil {
			t.Fatal("a frame without its content was decoded")
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / rounds; n > 1<<20 {
		t.Errorf("%d bytes were allocated for a frame of %d", n, len(frame))
	}
}
