// Command bench runs Apache Kafka 4.4 (heap 1 GB, defaults) and Runnel in turns on this machine and prints what each
// costs, the ratio, and the bar that Runnel has to meet. A third server, as little as can answer the same requests at
// all, shows the limit of the machine: what no broker can go below (bare.go).
//
// It owns: the loads (pre-encoded requests over raw TCP, so that the generator costs little beside the servers), the bars
// and the table. It does not own the processes: test/oracle does. Linux only, for what a server costs is read from /proc.
//
// Start reading at run, then suite in loads.go.
package main
