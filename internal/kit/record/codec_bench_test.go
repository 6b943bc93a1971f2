package record

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkDecompress is the price of looking into a compressed batch of 16 KiB.
func BenchmarkDecompress(b *testing.B) {
	var text strings.Builder
	for i := 0; text.Len() < 16<<10; i++ {
		fmt.Fprintf(&text, `{"id":%d,"user":"u%08x","kind":"view","at":%d},`, i, i*2654435761, 1700000000000+i*7919)
	}
	for codec := Gzip; codec <= Zstd; codec++ {
		b.Run(codec.String(), func(b *testing.B) {
			packed, err := Compress(nil, codec, DefaultLevel, []byte(text.String()))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				if buf, err = Decompress(buf, codec, packed, 1<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
