package segment

import (
	"strconv"
	"strings"
)

// Suffixes of a segment's files, and of files in transition.
const (
	LogSuffix       = ".log"
	IndexSuffix     = ".index"
	TimeIndexSuffix = ".timeindex"
	TxnIndexSuffix  = ".txnindex"
	SnapshotSuffix  = ".snapshot"
	DeletedSuffix   = ".deleted"
	CleanedSuffix   = ".cleaned"
	SwapSuffix      = ".swap"
)

// Stem is the part of a file's name that its offset makes: 20 decimal digits.
func Stem(offset int64) string {
	s := strconv.FormatInt(offset, 10)
	return "00000000000000000000"[:20-len(s)] + s
}

// ParseName splits a file's name into offset and suffix; ok is false if it does not begin
// with an offset.
func ParseName(name string) (offset int64, suffix string, ok bool) {
	stem, rest, found := strings.Cut(name, ".")
	if !found || len(stem) != 20 {
		return 0, "", false
	}
	offset, err := strconv.ParseInt(stem, 10, 64)
	if err != nil || offset < 0 {
		return 0, "", false
	}
	return offset, "." + rest, true
}
