//go:build compare || interop

package oracle

import (
	"context"
	"strings"
	"testing"
	"time"
)

// Kafka is fetched, formatted, started, asked by its own tool, killed and started again.
func TestKafkaCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	k, err := Fetch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c, err := k.StartKafka(ctx, ClusterOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Kill()
	run := func(args ...string) string {
		t.Helper()
		cmd, err := k.Tool(ctx, "kafka-topics.sh", append([]string{"--bootstrap-server", c.Bootstrap}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("--create", "--topic", "kept", "--partitions", "2")
	c.Kill()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := run("--list"); !strings.Contains(got, "kept") {
		t.Errorf("after kill and start the topics are %q", got)
	}
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
}
