// Package image is the cluster as the metadata log tells it: an immutable Image, and the
// Delta between two of them.
//
// It owns the meaning of every metadata record (replay), what a snapshot holds, and the
// difference between images. It does not own bytes (metarec), the log (quorum), decisions
// (controller) or who is told of a change (metafeed).
//
// Callers: metafeed builds images from committed records, the controller from what it
// appended; everyone else only reads. An Image and all it points to are never changed after
// they are made, so readers need no lock; what a method returns must not be modified.
//
// Invariants: Apply costs in proportion to what the records change (persistent maps; a
// topic's partition table is copied once for each Apply that touches it). A replay error means that
// log and image do not belong together, and the node must stop rather than go on with
// half of it. Loading the snapshot of an image gives an equal image.
//
// Start reading at image.go, then apply.go.
package image
