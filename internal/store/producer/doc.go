// Package producer is the idempotence and transaction state of one partition: per
// producer id its epoch, its last five batches and its open transaction.
//
// Owns: the sequence and epoch rules a leader applies, the first unstable offset, and the
// .snapshot files. Does not own: the log; whoever appends a batch calls Check before (as
// leader) and Apply after it is written.
// Callers: commitlog; compact reads the active producers' last batches.
// Concurrency: none; guarded by the log's writer lock.
// Invariants: Check changes nothing; Apply accepts everything, because what is in the log
// is the truth. A snapshot at offset o holds exactly the effect of the batches below o.
// Start reading at State.
package producer
