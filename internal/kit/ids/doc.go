// Package ids holds the identities everyone speaks: topic and directory UUIDs in
// Kafka's text form, and topic-partitions.
//
// Owns: the value types and their text forms. Does not own any state.
// Start reading at UUID.
package ids
