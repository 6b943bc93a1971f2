// Package quorum is KRaft: how the voters agree on one metadata log, and how everyone else
// observes it.
//
// Owns: roles, epochs, votes, the quorum-state file, the high watermark of the metadata
// log, its snapshots, and the voter set. Does not own: the log's bytes (store/commitlog),
// what records mean (metarec, image), what is decided (controller), connections (the
// injected Sender).
// Callers: node, serve (raft requests), controller (Append), metafeed (Listener).
//
// Concurrency: one loop goroutine owns the state machine; it blocks only on the small
// quorum-state file. fsync of the log runs beside it, and all appends that arrive
// meanwhile share the next one. A second goroutine, alive while there is something to
// deliver, calls the Listener and the appends' done functions, in log order.
//
// Invariants: a vote, an epoch and a leader are on disk before anyone hears of them; the
// leader counts itself and a voter fetches only up to what is on disk; the high watermark
// never goes back; nothing above it reaches the Listener. A lone voter arms no timer.
//
// Start reading at state.go (the machine), then loop.go.
package quorum
