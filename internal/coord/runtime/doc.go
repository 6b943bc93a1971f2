// Package runtime runs replicated state machines, one for each partition of an internal
// topic that this node leads: it loads them from the log, runs their operations one after
// another, appends what these decide, and holds answers until that is committed.
//
// Owns: the states of a shard (loading, active, failed), its queue, appends and their
// coalescing, parked answers, the shard's one timer. Does not own: what a shard decides
// (coord/group, ...), the log (repl/partition), which partitions are led (repl/replica).
// Callers: coord/group, node.
//
// Concurrency: each shard has a loop goroutine that lives only while there is work; the
// Shard is touched by it alone. News of the high watermark come as an atomic and a wake
// flag, never through the queue. No lock is held while a shard, a log or an answer runs.
// Invariants: an answer leaves only when its records, or what it saw, are committed; all
// operations that wait when the loop runs share one append; one operation's records are in
// one batch; when an append fails, the operations in it are undone in reverse, so that the
// shard equals its log again.
// Start reading at runtime.go, then loop.go.
package runtime
