// Package groups serves the classic consumer group APIs: it resolves topic names and ids,
// refuses what does not exist, and asks the coordinator.
//
// Owns: nothing. Does not own: groups and offsets (coord/group).
// Called by: serve/server. Concurrency: a request blocks its connection until answered.
// Start reading at Groups.
package groups
