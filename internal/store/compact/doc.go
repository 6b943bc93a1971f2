// Package compact is the log cleaner: it rewrites closed segments of a compacted topic so
// that the newest value of every key stays.
//
// Owns: what may be cleaned (Inspect), the map of keys to offsets, which records and
// batches stay, and the writing of the new segments. Does not own: which log is next and
// when (logstore), and putting new segments in place (commitlog.Replace).
// Callers: logstore.
// Concurrency: a pass works on closed segments and takes no lock while it reads and
// writes; if the log was truncated or segments were deleted meanwhile, Replace refuses and
// the pass ends with commitlog.ErrChanged, having changed nothing more.
// Invariants: offsets never change; nothing at or above the last stable offset is
// touched; a crash leaves old segments or new ones, never neither.
// Start reading at Inspect, then Pass.
package compact
