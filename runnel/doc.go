// Package runnel runs a complete Runnel node inside a Go program or test: the broker and
// controller that the server command runs, in memory unless a directory is given, on a
// free loopback port, ready when Start returns.
//
//	broker, err := runnel.Start(ctx, runnel.Options{})
//	if err != nil {
//		return err
//	}
//	defer broker.Close()
//	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Bootstrap()))
//
// Any Kafka client works with it. Nothing is shared between two nodes of one process.
//
// Owns: the defaults of an embedded node. Does not own: the node itself (internal/node).
// Concurrency: a Node's methods may be called from any goroutine.
// Start reading at Start.
package runnel
