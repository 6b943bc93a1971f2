// Package epoch is the leader epoch cache of one partition: at which offset each leader
// epoch began. Followers truncate by it.
//
// Owns: the entries and the leader-epoch-checkpoint file. Does not own: when it is saved;
// the log makes it durable before it moves its durable end.
// Callers: commitlog.
// Concurrency: changes come from one writer at a time (the log's writer lock); reads need
// no lock and see one consistent list.
// Invariants: epochs and start offsets both rise strictly from entry to entry.
// Start reading at Cache.
package epoch
