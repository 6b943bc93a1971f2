// Package lifecycle is a broker's standing with the active controller: it registers,
// sends heartbeats, learns when it may serve, and takes its leave.
//
// It owns the broker's epoch and state (metadata-records.md §6) and the news a heartbeat carries: how far
// the broker's image has come, offline and cordoned directories, the wish to stop. It does not own
// the connection to the controller, the image, or what starts and stops with the states.
//
// Callers: node makes one for each broker and reports what happens; handlers read Epoch and State.
//
// Concurrency: machine in state.go is pure and guarded by one mutex; loop.go runs the one
// goroutine that sends, one request at a time. Methods of Lifecycle never block except Shutdown.
//
// Invariants: one request is in flight at most. Whatever changes what a heartbeat says
// makes one go at once, so that start and stop take as long as the work and no interval
// longer. The epoch changes only by a new registration.
//
// Start reading at state.go.
package lifecycle
