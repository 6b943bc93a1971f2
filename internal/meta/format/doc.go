// Package format gives empty log directories an identity, as `kafka storage format` does:
// meta.properties in each, and in the metadata directory of a controller the checkpoint
// that a new cluster starts from.
//
// It owns the decision what a formatted directory holds, and the order in which it is
// written. It does not own the files' layouts (store/checkpoint, meta/quorum) nor the
// levels of features (meta/feature).
//
// Callers: the node at its first start, and the command `runnel format`.
//
// Concurrency: none; the caller holds no lock and runs it before anything opens the
// directories.
//
// Invariants:
//   - meta.properties is written after the checkpoint, and the metadata directory's last:
//     a format that is cut short leaves a node that still counts as unformatted and can be
//     formatted again.
//   - A directory that has meta.properties is never changed.
//
// Start reading at Node.
package format
