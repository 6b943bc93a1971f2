// Package cli is Runnel's command line: one cobra command per file.
//
// It owns the words a person or a script types and reads: flags, tables, JSON documents,
// prompts, errors and exit codes. It does not own what a command does to a cluster: client
// commands speak the Kafka protocol like any other client, so they work with every Kafka
// cluster; `server` hands over to node, `format` to meta/format, `dump` to the packages
// that own the files.
//
// Caller: cmd/runnel.
//
// Exit codes, also in `runnel --help`:
//
//	0    done
//	1    failed: the cluster, a file or the server said no
//	2    wrong usage: unknown command, flag or value
//	3    a topic, partition, group, file or other named thing does not exist
//	4    no broker could be reached
//	5    refused: it destroys something and was not confirmed, or the state forbids it
//	130  interrupted by Ctrl-C or SIGTERM
//
// An error is one line on stderr and, where there is one, a second line with the next step.
// Data goes to stdout, everything else to stderr; progress only where stderr is a terminal.
//
// Concurrency: a command runs on the calling goroutine. Its context ends at the first
// interrupt; a second one kills the process.
//
// Invariants: nothing is destroyed without a yes on a terminal or --yes. `-o json` prints
// one JSON document (consume and dump: one object per line) and nothing else on stdout.
//
// Start reading at Main in root.go, then topic.go as the pattern of a command.
package cli
