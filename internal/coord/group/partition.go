package group

import "unicode/utf16"

// PartitionFor is the partition of __consumer_offsets, of n, whose leader coordinates the
// group: Java's String.hashCode over UTF-16 units, without its sign, modulo n.
func PartitionFor(groupID string, n int32) int32 {
	if n <= 0 {
		return -1
	}
	return (JavaHash(groupID) & 0x7fffffff) % n
}

// JavaHash is Java's String.hashCode.
func JavaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r >= 0x10000 {
			hi, lo := utf16.EncodeRune(r)
			h = 31*(31*h+hi) + lo
			continue
		}
		h = 31*h + r
	}
	return h
}
