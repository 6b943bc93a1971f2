// Package meta serves what clients ask about the cluster and its configuration:
// ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster, DescribeConfigs,
// ListConfigResources and FindCoordinator. One file per API.
//
// Owns: nothing; it reads the image. Does not own: changes (admin, the controller).
// Called by: serve/server. Concurrency: a request loads the image once and keeps it.
// Invariants: an address is one the client can dial on the listener it came in on; a
// wildcard is never told.
// Start reading at Meta, then metadata.go.
package meta
