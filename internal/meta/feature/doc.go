// Package feature is the table of Kafka's feature levels: which there are, which this
// server supports, what a new cluster starts with, and how levels depend on each other.
//
// It owns no state; the finalized levels are in the cluster image. Callers: controller
// (UpdateFeatures, registration), lifecycle, format, ApiVersions handlers. Everything is
// constant data and pure functions.
//
// Start reading at feature.go.
package feature
