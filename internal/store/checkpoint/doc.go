// Package checkpoint reads and writes the small text files beside the logs: offset
// checkpoints, meta.properties, partition.metadata and the clean shutdown marker.
//
// Owns: their formats and the atomic way to replace them. Does not own: when they are
// written, nor what a missing or broken one means to a log.
// Callers: epoch, commitlog, logstore.
// Concurrency: functions over files; one writer per file, as the callers arrange.
// Invariants: Replace leaves either the old or the new content after a crash, and the new
// content once it returned.
// Start reading at Replace.
package checkpoint
