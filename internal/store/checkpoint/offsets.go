package checkpoint

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
)

// Names of the offset checkpoints of a log directory.
const (
	RecoveryPoint = "recovery-point-offset-checkpoint"
	LogStart      = "log-start-offset-checkpoint"
	HighWatermark = "replication-offset-checkpoint"
	Cleaner       = "cleaner-offset-checkpoint"
)

// Offsets is an offset for each partition.
type Offsets map[ids.TopicPartition]int64

// ReadOffsets reads an offset checkpoint; a missing file is empty.
func ReadOffsets(f vfs.FS, name string) (Offsets, error) {
	lines, err := ReadLines(f, name)
	if err != nil {
		return nil, err
	}
	o, err := parseOffsets(lines)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return o, nil
}

func parseOffsets(lines []string) (Offsets, error) {
	o := make(Offsets, len(lines))
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("%w: entry %.80q is not TOPIC PARTITION OFFSET", ErrFormat, line)
		}
		p, err1 := strconv.ParseInt(f[1], 10, 32)
		off, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil || p < 0 || off < 0 {
			return nil, fmt.Errorf("%w: entry %.80q is not TOPIC PARTITION OFFSET", ErrFormat, line)
		}
		o[ids.TopicPartition{Topic: f[0], Partition: int32(p)}] = off
	}
	return o, nil
}

// WriteOffsets replaces an offset checkpoint.
func WriteOffsets(f vfs.FS, name string, o Offsets) error {
	lines := make([]string, 0, len(o))
	for tp, off := range o {
		lines = append(lines, tp.Topic+" "+strconv.Itoa(int(tp.Partition))+" "+strconv.FormatInt(off, 10))
	}
	sort.Strings(lines)
	return Replace(f, name, FormatLines(lines))
}
