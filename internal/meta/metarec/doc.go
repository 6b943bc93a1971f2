// Package metarec is the vocabulary of the metadata log: one Go type for each of Kafka's
// metadata records, the frame around them, and the control records of the quorum.
//
// It owns the bytes: every record in every version that Kafka 4.x may have written, and
// the versions that a finalized metadata.version asks us to write (VersionFor). It does
// not own what a record means; replaying is image's work.
//
// Callers: quorum (control records), controller (encodes), image and metafeed (decode),
// and the dump command. All functions are pure; records are plain data and may be shared
// between goroutines once nobody writes to them.
//
// Invariants: Decode(Encode(r, v)) gives r back for every field that exists in v, and
// re-encoding what Kafka wrote gives Kafka's bytes. A decoder never allocates more than
// a small multiple of its input. Unknown tagged fields are skipped; an unknown record type or
// version is an error, because replaying around it would be a different cluster.
//
// Start reading at metarec.go, then records.go.
package metarec
