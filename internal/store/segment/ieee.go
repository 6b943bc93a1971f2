package segment

import "hash/crc32"

// ieee is the checksum of the message formats before record batches.
func ieee(b []byte) uint32 { return crc32.ChecksumIEEE(b) }
