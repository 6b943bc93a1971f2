// Package producerid hands out producer ids from blocks that the controller allocates.
//
// Owns: the current and the next block. Does not own: which blocks exist (the
// controller, in the metadata log).
// Called by: serve/handle/data. Concurrency: any goroutine; one allocation at a time.
// Invariants: an id is given once; ids of an unfinished block are lost with the process.
// Start reading at Allocator.Next.
package producerid
