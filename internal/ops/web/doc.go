// Package web serves a node's health over HTTP: /metrics for Prometheus, /healthz, /ready
// and, where asked for, pprof.
//
// Owns: the names of metrics and what "ready" means. Does not own: any counter; it reads
// node.Status.
// Called by: internal/ops/cli. Concurrency: every request gathers its own Status.
// Start reading at Serve, then collect.go.
package web
