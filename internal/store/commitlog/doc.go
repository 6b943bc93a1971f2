// Package commitlog is the log of one partition: a directory of segments, the offsets that
// bound it, leader epochs and producer state.
//
// Owns: append, roll, read, truncation, retention, recovery of one directory, and what is
// durable. Does not own: roles and replication (repl/partition), checkpoints of a whole
// log directory and timers (logstore), rewriting of segments (compact).
// Callers: repl/partition, meta/quorum, logstore, compact.
//
// Concurrency: one writer mutex. Readers never take it: offsets, the active segment's
// length and the segment list are published together, and a read pins the file it
// returns. Flush holds its own mutex while it waits for the disk, so that a slow fsync
// stops nobody who only appends or reads.
//
// Invariants: LogStart <= HighWatermark <= End; LastStable <= HighWatermark; Durable <=
// End, and what the log holds below Durable survives a power loss; after retention or
// RaiseLogStart Durable may lie below LogStart until the next flush. A failed fsync or a disk error is
// final for the log (Failed); a full disk is not: the partial batch is cut off again.
//
// What is durable when. Making a new partition syncs nothing of it. Flush makes
// partition.metadata, the epochs, the segments' bytes and the directory's names durable,
// in that order, before it moves Durable. So a directory whose partition.metadata is
// missing or torn after a power loss never held anything durable. Leader epochs are only
// noted in memory when they begin: below the recovery point the file has them, and above
// it recovery finds them in the batches again; an epoch without any batch may be
// forgotten, which is what a leader that crashed before its first batch looks like anyway.
//
// Start reading at Log, then Append and Read.
package commitlog
