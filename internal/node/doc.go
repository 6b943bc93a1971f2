// Package node builds one server out of all the parts, starts and stops them in order,
// and nothing else: every decision lives in the part that it is about.
//
// Owns: the graph, the order of start and stop, the adapters between parts that do not
// know each other. Called by: runnel (embedding) and internal/ops (command line).
// Concurrency: Start and the Node's methods may be called from any goroutine.
// Invariants: nothing on disk is touched before all listeners are bound; clients are
// served only after the broker has its metadata.
// Start reading at Start.
package node
