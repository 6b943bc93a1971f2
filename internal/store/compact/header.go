package compact

import (
	"encoding/binary"

	"runnel/internal/kit/record"
)

func setLength(b record.Batch) {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-record.LogOverhead))
}

func setCount(b record.Batch, n int32) { binary.BigEndian.PutUint32(b[57:], uint32(n)) }
