// Package metafeed turns committed metadata records into images and tells everyone.
//
// Owns: the node's current image, the order in which the parts of a node learn of a new
// one, waiting for an offset, and when a metadata snapshot is due.
// Does not own: what records mean (image), the log (quorum), what subscribers do.
// Callers: quorum (as its Listener), node (subscribers), handlers (Image, Await).
//
// Concurrency: the quorum calls Committed, Snapshot, Leading and NotLeading one after
// another; subscribers run inside those calls and must not block for long. Image and Await
// may be called from anywhere.
// Invariants: subscribers see every image once, in order, before Image gives it out; a
// record that cannot be replayed stops the feed for good and is reported as fatal.
// Start reading at Feed.Committed.
package metafeed
