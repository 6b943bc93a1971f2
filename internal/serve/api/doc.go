// Package api is what every request handler and the connection server agree on: the
// request with its caller, the reply, and the registry of APIs from which ApiVersions
// is derived.
//
// Owns: Request, Reply, Registry. Does not own: sockets (serve/server), any API's
// behaviour (serve/handle).
// Concurrency: a Registry is filled before it serves and then read only.
// Start reading at Request, then Registry.
package api
