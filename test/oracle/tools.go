package oracle

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// tools are the classes behind the scripts of Kafka's bin directory that the suites use.
var tools = map[string]string{
	"broker-api-versions":       "org.apache.kafka.tools.BrokerApiVersionsCommand",
	"cluster":                   "org.apache.kafka.tools.ClusterTool",
	"configs":                   "org.apache.kafka.tools.ConfigCommand",
	"console-consumer":          "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"console-producer":          "org.apache.kafka.tools.ConsoleProducer",
	"consumer-groups":           "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"consumer-perf-test":        "org.apache.kafka.tools.ConsumerPerformance",
	"delete-records":            "org.apache.kafka.tools.DeleteRecordsCommand",
	"dump-log":                  "org.apache.kafka.tools.DumpLogSegments",
	"e2e-latency":               "org.apache.kafka.tools.EndToEndLatency",
	"features":                  "org.apache.kafka.tools.FeatureCommand",
	"get-offsets":               "org.apache.kafka.tools.GetOffsetShell",
	"groups":                    "org.apache.kafka.tools.GroupsCommand",
	"leader-election":           "org.apache.kafka.tools.LeaderElectionCommand",
	"log-dirs":                  "org.apache.kafka.tools.LogDirsCommand",
	"metadata-quorum":           "org.apache.kafka.tools.MetadataQuorumCommand",
	"producer-perf-test":        "org.apache.kafka.tools.ProducerPerformance",
	"reassign-partitions":       "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
	"replica-verification":      "org.apache.kafka.tools.ReplicaVerificationTool",
	"storage":                   "kafka.tools.StorageTool",
	"topics":                    "org.apache.kafka.tools.TopicCommand",
	"transactions":              "org.apache.kafka.tools.TransactionsCommand",
	"verifiable-consumer":       "org.apache.kafka.tools.VerifiableConsumer",
	"verifiable-producer":       "org.apache.kafka.tools.VerifiableProducer",
	"streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
}

// Tool is one of Kafka's command line tools by its usual name ("topics", "kafka-topics.sh"), not started yet.
func (k *Kafka) Tool(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "kafka-"), ".sh")
	class, ok := tools[name]
	if !ok {
		return nil, fmt.Errorf("no tool %q in Apache Kafka %s that is known here", name, Version)
	}
	return k.Class(ctx, class, args...), nil
}

// Class runs any main class of the jars.
func (k *Kafka) Class(ctx context.Context, class string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, k.java, k.arguments("512m", "WARN", class, args)...)
}

// Jars is the class path of everything fetched, for a caller that compiles against it.
func (k *Kafka) Jars() string { return filepath.Join(k.libs, "*") }

// Java is the java program in use.
func (k *Kafka) Java() string { return k.java }

// arguments has what Kafka's own scripts give a JVM.
func (k *Kafka) arguments(heap, level, class string, args []string) []string {
	all := []string{
		"-Xmx" + heap, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
		"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", "--enable-native-access=ALL-UNNAMED",
		"-Doracle.level=" + level, "-Dlog4j2.configurationFile=" + k.log4j,
		"-cp", k.Jars(), class,
	}
	return append(all, args...)
}
