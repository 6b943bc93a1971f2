// Package admin serves the APIs that change the cluster: topics, partitions, configs,
// elections, reassignments, features. Brokers forward them to the active controller;
// what concerns this broker's own directories is answered here.
//
// Owns: nothing. Does not own: decisions (meta/controller), directories (store/logstore).
// Called by: serve/server. Concurrency: one request at a time per connection.
// Start reading at Admin.
package admin
