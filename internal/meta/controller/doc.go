// Package controller is the active controller: it decides every change of the cluster's
// metadata.
//
// It owns the decisions (who leads, who is in the ISR, which broker is fenced, what a
// topic or config change may do) and the one piece of state that is not in the log, the
// brokers' sessions. It does not own the log or elections (quorum), what records mean (image), or
// request decoding and forwarding (serve).
//
// Callers: node builds one Controller, quorum's listener calls Lead and Resign, request
// handlers call Handle.
//
// Concurrency: deciding code is methods of core and runs on one goroutine at a time, which
// loop.go starts while there is work and which ends when there is none. A decision reads
// the image and returns a response and records; only appending the records changes the
// image. Decisions run ahead of the commit; a response is delivered when its records, and every record
// it may have seen, are committed.
//
// Invariants: what is not appended did not happen; after a failed append or a lost epoch
// the controller starts again from a committed image and nothing is rolled back. A response
// is never delivered for records that may be lost. One user request makes at most
// MaxRecords records, in one batch.
//
// Start reading at core.go, then loop.go; each other file is one concern of deciding.
package controller
