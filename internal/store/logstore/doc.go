// Package logstore is all logs of a node: its log directories, what is in them, and the
// work that keeps them in order.
//
// Owns: opening and recovering directories, creating and deleting partitions, the
// checkpoints of a directory, the turns of retention, cleaning, flushing and delayed
// deletion, and what happens when a directory fails or fills up. Does not own: which
// partitions there should be (the replica table), roles, replication.
// Callers: repl/replica, node.
//
// Concurrency: the map of logs is behind one mutex that is never held across file
// operations of a single log. Everything that waits for a disk on its own account runs in
// the goroutines of Run (loop.go). A partition is created, deleted or moved by one caller
// at a time.
//
// Invariants: a clean marker is removed durably before anything in its directory changes,
// and written only after every log of the directory closed without an error. No checkpoint
// speaks of an earlier log of the same name: entries of a deleted partition are gone from
// the files before the name is used again. A recovery point in a file is never above what
// is durable.
//
// Creating partitions syncs only the log directory, once for all of them: see commitlog
// for why nothing inside has to be durable yet.
//
// Start reading at Store, Open, then loop.go.
package logstore
