// Package wire is the Kafka protocol's outer layer: frames, request and response
// headers, and our own encoder for Fetch answers, whose records are file ranges that are
// never copied through the encoder. All other bodies are kmsg's.
//
// Owns: header layouts, the Fetch answer's layout. Does not own: which APIs and versions
// are served (serve/api), connections (serve/server).
// Concurrency: pure functions.
// Start reading at ParseHeader, then FetchResponse.
package wire
