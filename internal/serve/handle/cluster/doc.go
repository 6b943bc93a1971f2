// Package cluster serves a controller listener: the quorum's own requests, brokers'
// registrations, heartbeats and partition changes, and admin requests, which come
// directly or in Envelopes.
//
// Owns: nothing. Does not own: decisions (meta/controller), the raft log (meta/quorum).
// Called by: serve/server. Concurrency: one request at a time per connection.
// Start reading at Cluster.
package cluster
