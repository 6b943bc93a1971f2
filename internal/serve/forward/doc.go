// Package forward carries admin requests from a broker to the active controller and its
// answers back, with the caller's identity, in Envelopes (KIP-590).
//
// Owns: the envelope's content and the retry while controllers change. Does not own:
// connections (peer), who leads (the quorum), decisions (meta/controller).
// Called by: serve/handle. Concurrency: Forwarder may be used from any goroutine.
// Invariants: an answer is given to the client only after this broker's image has
// reached what it announces.
// Start reading at Forwarder.Forward; the other end is Open.
package forward
