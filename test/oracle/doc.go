// Package oracle runs the real thing: Apache Kafka 4.4.0 from Maven's registry, and Runnel as its users run it, both as
// processes on loopback, for the suites that compare them.
//
// It owns: the jars in the user's cache directory (RUNNEL_KAFKA_LIBS names a directory of jars to take instead), how a
// Kafka node is formatted, started, stopped and killed, its command line tools, the built runnel binary, and what /proc
// tells of a process. It does not own requests, loads or judgements: those are its callers', test/compare, test/interop,
// test/chaos and bench.
//
// Concurrency: a Process belongs to one goroutine; processes are independent of each other. Every process started here
// ends with Stop or Kill; nothing else ends it.
//
// Start reading at Fetch, Cluster and Runnel.
package oracle
