// Package chaos kills a real Runnel process, again and again, while clients write and read, and holds what they were told
// against what is there (build tag chaos, `make chaos ROUNDS=n`).
//
// Owns: the load, the history of what clients were told, the checker. Does not own: crash tests of single operations,
// which are in internal/store, over a file system in memory.
//
// Start reading at chaos_test.go.
package chaos
