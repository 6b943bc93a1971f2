// Package data serves the APIs that move records: Produce, Fetch with its sessions,
// ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers and the idempotent
// InitProducerId. One file per API.
//
// Owns: fetch sessions. Does not own: partitions (repl), producer ids (the controller).
// Called by: serve/server. Concurrency: handlers run on their connection's goroutine; a
// session is used by one request at a time and marked by appends from any goroutine.
// Invariants: a fetch visits only partitions that changed or that the request names;
// every pinned range is in a reply or released.
// Start reading at Data, then produce.go and fetch.go.
package data
