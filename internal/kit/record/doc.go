// Package record is Kafka's RecordBatch v2 over []byte: the bytes are checked, stamped
// and walked in place and never turned into objects on the ordinary path.
//
// Layout (KIP-98; all integers big-endian):
//
//	 0  8 baseOffset            23 4 lastOffsetDelta
//	 8  4 batchLength           27 8 baseTimestamp (delete horizon if attribute bit 6)
//	12  4 partitionLeaderEpoch  35 8 maxTimestamp
//	16  1 magic = 2             43 8 producerId
//	17  4 crc (CRC-32C [21,end)) 51 2 producerEpoch
//	21  2 attributes            53 4 baseSequence
//	                            57 4 recordsCount
//	                            61 - records, one compressed block if compression != 0
//
// Base offset, length, leader epoch and magic lie outside the CRC, so a broker stamps
// offsets and epoch without touching it.
//
// Owns: the layout, record walking, codecs, the check a leader makes before an append,
// and a builder for the batches that the broker itself writes.
// Does not own: where batches are stored, sequence rules (store/producer).
// Concurrency: pure functions over caller-owned bytes.
// Start reading at Batch, then Check.
package record
