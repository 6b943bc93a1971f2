// Package peer is the client that nodes use towards each other: the Kafka protocol over
// an injected dialer, one request at a time on a connection, connections kept for reuse.
//
// Owns: its connections and the version each peer speaks. Does not own: whom to ask
// (node), what answers mean.
// Called by: node for forwarding, lifecycle and the quorum's sender.
// Concurrency: Client may be used from any goroutine; each request has a connection to
// itself, so that a slow one holds up nobody.
// Start reading at Client.Request.
package peer
