// Package server turns sockets into requests and replies into bytes: it accepts, reads
// frames, decodes them, calls the registered handler, and writes answers in request
// order, records by sendfile.
//
// Owns: listeners, connections, their order and limits, the memory of requests in
// flight. Does not own: what any API does (serve/handle), who may do it (sec).
// Called by: node. Concurrency: one reader goroutine per connection; a second one only
// while answers are pending. No lock is held while reading, writing or handling.
// Invariants: answers leave in request order; a frame's memory is charged before it is
// allocated; only a reply with Later lets the next request start before its answer.
// Start reading at Server, then conn.serve.
package server
