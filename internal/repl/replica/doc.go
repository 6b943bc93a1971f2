// Package replica is the table of this broker's replicas: it turns image deltas into
// roles, opens and deletes their logs, and keeps their configuration current.
//
// Owns: the table, and the order in which a delta is applied. Does not own: roles
// (partition), logs (store/logstore).
// Called by: node (Apply, from the metadata feed), serve/handle (Get). Concurrency: Apply
// comes from one goroutine; Get and All may be called from any.
// Invariants: a partition is in the table before Metadata names this broker as its
// leader to the client that asked for its creation.
// Lock order of the program: this table's lock, then partition, then commitlog.
// Start reading at Table.Apply.
package replica
