// Package segment is one segment of a partition: the .log file with its .index,
// .timeindex and .txnindex.
//
// Owns: the three index formats, appending bytes, finding a batch by offset or time,
// scanning, rebuilding indexes. Does not own: which segments a log has, offsets, epochs,
// when to sync.
// Callers: commitlog, compact.
// Concurrency: one writer at a time (the log's writer lock). Readers need no lock of the
// writer's: they get the size they may read from the caller, find recent batches in a
// short ring, and older ones through the index files.
// Invariants: indexes are hints. A position taken from one is checked against the batch
// that is there, and a wrong index only costs a scan. New index entries gather in memory
// and reach the file when enough of them are together, at a roll, at a flush and at the
// close, so that an append is one write.
// Files are not kept open except the active segment's .log; whoever reads pins what it
// uses.
// Start reading at Segment.
package segment
