// Package config is the key table: every configuration key of Apache Kafka 4.4 (and our
// runnel.* ones) with type, default, bounds, scope, whether it is dynamic and what it
// means here; the parser and checker of server.properties; and immutable snapshots of
// values for those who act on them.
//
// Owns: the keys and their rules. Does not own: where values are stored (metadata log).
// Concurrency: snapshots are immutable.
// Start reading at Key, then Log.
package config
