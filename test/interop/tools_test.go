//go:build interop

package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runnel/test/oracle"
)

// Kafka's own tools, each as an operator calls it.
func TestKafkaTools(t *testing.T) {
	k, b := kafka(t), broker(t)
	at := []string{"--bootstrap-server", b.Addr}
	call := func(input, name string, args ...string) string {
		t.Helper()
		return tool(t, k, input, name, append(slices.Clone(at), args...)...)
	}

	call("", "topics", "--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=86400000")
	contains(t, call("", "topics", "--list"), "orders")
	contains(t, call("", "topics", "--describe", "--topic", "orders"), "PartitionCount: 3", "retention.ms=86400000", "Leader: 1", "Isr: 1")

	lines := ""
	for i := range 30 {
		lines += fmt.Sprintf("k%d:v%d\n", i, i)
	}
	call(lines, "console-producer", "--topic", "orders", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:", "--command-property", "compression.type=lz4")
	out := call("", "console-consumer", "--topic", "orders", "--from-beginning", "--max-messages", "30", "--group", "shop", "--timeout-ms", "20000")
	for i := range 30 {
		contains(t, out, fmt.Sprintf("v%d\n", i))
	}
	contains(t, call("", "get-offsets", "--topic", "orders"), "orders:0:", "orders:1:", "orders:2:")

	contains(t, call("", "consumer-groups", "--list"), "shop")
	contains(t, call("", "consumer-groups", "--describe", "--group", "shop"), "orders")
	contains(t, call("", "consumer-groups", "--describe", "--group", "shop", "--state"), "Empty")
	contains(t, call("", "consumer-groups", "--group", "shop", "--reset-offsets", "--to-earliest", "--topic", "orders", "--execute"), "orders")
	again := call("", "console-consumer", "--topic", "orders", "--max-messages", "30", "--group", "shop", "--timeout-ms", "20000")
	contains(t, again, "v0\n", "v29\n")
	if quick {
		return
	}
	call("", "consumer-groups", "--group", "shop", "--delete-offsets", "--topic", "orders")
	contains(t, call("", "consumer-groups", "--group", "shop", "--delete"), "successful")

	call("", "configs", "--alter", "--entity-type", "topics", "--entity-name", "orders", "--add-config", "cleanup.policy=[compact,delete]")
	contains(t, call("", "configs", "--describe", "--entity-type", "topics", "--entity-name", "orders"), "cleanup.policy=compact,delete")
	call("", "configs", "--alter", "--entity-type", "topics", "--entity-name", "orders", "--delete-config", "cleanup.policy")
	contains(t, call("", "configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"), "num.partitions=1")

	cut := filepath.Join(t.TempDir(), "cut.json")
	write(t, cut, `{"version":1,"partitions":[{"topic":"orders","partition":0,"offset":1}]}`)
	contains(t, call("", "delete-records", "--offset-json-file", cut), "low_watermark: 1")
	contains(t, call("", "log-dirs", "--describe", "--topic-list", "orders"), `"partition":"orders-0"`)
	contains(t, call("", "metadata-quorum", "describe", "--status"), "LeaderId:", "1")
	contains(t, call("", "metadata-quorum", "describe", "--replication"), "Leader")
	contains(t, call("", "features", "describe"), "metadata.version", "FinalizedVersionLevel")
	contains(t, call("", "broker-api-versions"), "Produce(0)", "Fetch(1)", "ApiVersions(18)")
	call("", "topics", "--alter", "--topic", "orders", "--partitions", "5")
	call("", "leader-election", "--election-type", "preferred", "--all-topic-partitions")
	contains(t, call("", "reassign-partitions", "--list"), "No partition reassignments")
	call("", "topics", "--delete", "--topic", "orders")

	contains(t, call("", "producer-perf-test", "--topic", "perf", "--num-records", "50000", "--record-size", "100", "--throughput", "-1"), "50000 records sent")
	contains(t, call("", "consumer-perf-test", "--topic", "perf", "--num-records", "50000", "--timeout", "20000"), "50000")
	verified := call("", "verifiable-producer", "--topic", "verified", "--max-messages", "500", "--acks", "-1")
	contains(t, verified, `"acked":500`)
	contains(t, call("", "verifiable-consumer", "--topic", "verified", "--group-id", "v", "--max-messages", "500", "--reset-policy", "earliest"), `"name":"records_consumed"`, `"name":"shutdown_complete"`)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fill makes a topic with records of several codecs and a group with offsets.
func fill(t *testing.T, k *oracle.Kafka, addr string) {
	t.Helper()
	at := []string{"--bootstrap-server", addr}
	tool(t, k, "", "topics", append(at, "--create", "--topic", "kept", "--partitions", "2", "--config", "flush.ms=1000")...)
	for _, codec := range []string{"none", "gzip", "zstd"} {
		var lines strings.Builder
		for i := range 200 {
			fmt.Fprintf(&lines, "%s-%d\n", codec, i)
		}
		tool(t, k, lines.String(), "console-producer", append(at, "--topic", "kept", "--command-property", "compression.type="+codec)...)
	}
	tool(t, k, "", "console-consumer", append(at, "--topic", "kept", "--from-beginning", "--max-messages", "600", "--group", "readers", "--timeout-ms", "20000")...)
}

// TestKafkaReadsOurFiles has dump-log look at every kind of file, and Apache Kafka serve the directory: after a clean stop
// and after a kill.
func TestKafkaReadsOurFiles(t *testing.T) {
	for _, how := range []string{"stopped", "killed"} {
		if quick && how == "stopped" {
			continue // what a kill leaves is the harder one
		}
		t.Run(how, func(t *testing.T) {
			k := kafka(t)
			dir := t.TempDir()
			// Where the oracle's first node of a cluster keeps its data.
			p, err := oracle.StartRunnel(limited(t, 3*60e9), oracle.RunnelOptions{Dir: filepath.Join(dir, "runnel"), Set: []string{"log.dirs=" + filepath.Join(dir, "1", "data")}})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Kill()
			fill(t, k, p.Addr)
			if how == "killed" {
				p.Kill()
			} else if err := p.Stop(limited(t, 20e9)); err != nil {
				t.Fatal(err)
			}
			data := filepath.Join(dir, "1", "data")
			dump := func(pattern string, args ...string) string {
				files, _ := filepath.Glob(filepath.Join(data, pattern))
				if len(files) == 0 {
					t.Fatalf("no file %s", pattern)
				}
				return tool(t, k, "", "dump-log", append(args, "--files", strings.Join(files, ","))...)
			}
			contains(t, dump("kept-*/*.log", "--deep-iteration", "--print-data-log"), "payload: none-0", "payload: gzip-199", "payload: zstd-7", "isvalid: true")
			contains(t, dump("__cluster_metadata-0/*.log", "--cluster-metadata-decoder"), `"TOPIC_RECORD"`, `"kept"`)
			contains(t, dump("__consumer_offsets-*/*.log", "--offsets-decoder"), "readers", "kept")
			if how == "stopped" { // a young active segment has no index on disk before
				dump("kept-*/*.index", "--index-sanity-check")
			}

			c, err := k.StartKafka(limited(t, 2*60e9), oracle.ClusterOptions{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Kill()
			at := []string{"--bootstrap-server", c.Bootstrap}
			out := tool(t, k, "", "console-consumer", append(at, "--topic", "kept", "--from-beginning", "--max-messages", "600", "--timeout-ms", "20000")...)
			contains(t, out, "none-0\n", "gzip-100\n", "zstd-199\n", "Processed a total of 600")
			contains(t, tool(t, k, "", "topics", append(at, "--describe", "--topic", "kept")...), "flush.ms=1000", "PartitionCount: 2")
			group := tool(t, k, "", "consumer-groups", append(at, "--describe", "--group", "readers")...)
			total := 0
			for _, l := range strings.Split(group, "\n") {
				var g, topic string
				var partition, offset, end, lag int
				if n, _ := fmt.Sscan(l, &g, &topic, &partition, &offset, &end, &lag); n == 6 && topic == "kept" {
					total += offset
				}
			}
			if total != 600 {
				t.Errorf("the group's offsets add up to %d:\n%s", total, group)
			}
			tool(t, k, "one more\n", "console-producer", append(at, "--topic", "kept")...)
		})
	}
}
