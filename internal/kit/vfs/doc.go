// Package vfs is the seam to files: everything below it that touches a disk goes
// through FS, so that tests can crash, fill and break disks at any operation.
//
// Owns: the FS and File contracts, the operating system's FS (OS), a crashable memory
// FS (Mem), a fault script around any FS (Fault), and Region, a pinned file range.
// Does not own: any file format.
// Concurrency: every method of every implementation may be called from any goroutine.
// Invariants: nothing is durable before Sync of the file and SyncDir of its directory;
// names are slash-separated paths as given by the caller.
// Start reading at FS.
package vfs
