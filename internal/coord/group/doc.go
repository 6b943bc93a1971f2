// Package group coordinates consumer groups of the classic protocol, and the offsets of
// groups of every kind, over __consumer_offsets.
//
// Owns: membership, generations, rebalances, committed offsets, their records and their
// expiry; the routing of group requests to the shard that holds the group.
// Does not own: how records are appended, replayed and awaited (coord/runtime), which
// topics exist and who may do what (serve), the KIP-848, share and streams protocols:
// their records are kept whole, their groups are known by kind and left alone.
// Callers: serve/handle/groups, node.
//
// Concurrency: Shard is pure: it is called by its runtime loop only, and takes the time.
// Service may be called from any goroutine.
// Invariants: only replayed records change offsets, generations that were stored, and what
// kind a group is; a shard rebuilt from its log equals the one that wrote it, in all that
// is durable. An answer that promises something durable waits for its records.
// Start reading at shard.go, then join.go and offsets.go.
package group
