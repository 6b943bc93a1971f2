// Package partition is one replica of one partition on this broker: its role, epochs,
// in-sync set and high watermark over its log, and whoever waits for it to change.
//
// Owns: role, ISR, epochs, the decision when the high watermark moves, the watchers.
// Does not own: bytes (store/commitlog), who the leader is (meta), fetch sessions
// (serve/handle).
// Called by: repl/replica (roles), serve/handle (produce, fetch), coord/runtime.
// Concurrency: passive, no goroutine. One mutex orders appends and role changes; readers
// use the atomic snapshot of the role. Watchers are called with no lock held.
// Invariants: appends happen only while leading, at the current leader epoch; the high
// watermark never passes the smallest end offset of the in-sync set and never goes back;
// it stands still while the in-sync set is below min.insync.replicas.
// Lock order: Partition.mu, then commitlog's own.
// Start reading at Partition, then Produce and Fetch.
package partition
