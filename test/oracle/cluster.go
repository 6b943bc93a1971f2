package oracle

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ClusterOptions describe an Apache Kafka cluster of combined nodes, each broker and controller.
type ClusterOptions struct {
	Dir   string   // made if new; data that is there is taken as it is
	Nodes int      // 1 if 0
	Heap  string   // of each node; "1g" if empty
	Set   []string // KEY=VALUE lines for every node's server.properties
}

// Cluster has one Process for each node, in order of node ids from 1.
type Cluster struct {
	Nodes     []*Process
	Bootstrap string
}

// Cluster formats the nodes on free ports; Start starts them.
func (k *Kafka) Cluster(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	o.Nodes = max(1, o.Nodes)
	if o.Heap == "" {
		o.Heap = "1g"
	}
	ports, err := FreePorts(2 * o.Nodes)
	if err != nil {
		return nil, err
	}
	id := randomID()
	c := &Cluster{}
	var addrs []string
	for i := range o.Nodes {
		p, err := k.node(ctx, o, i+1, id, ports)
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", i+1, err)
		}
		c.Nodes, addrs = append(c.Nodes, p), append(addrs, p.Addr)
	}
	c.Bootstrap = strings.Join(addrs, ",")
	return c, nil
}

// StartKafka is a formatted and started cluster.
func (k *Kafka) StartKafka(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	c, err := k.Cluster(ctx, o)
	if err != nil {
		return nil, err
	}
	return c, c.Start(ctx)
}

// Start launches all nodes, then waits for all: a quorum needs its majority to serve.
func (c *Cluster) Start(ctx context.Context) error {
	for _, p := range c.Nodes {
		if err := p.Launch(); err != nil {
			c.Kill()
			return err
		}
	}
	for _, p := range c.Nodes {
		if err := p.AwaitReady(ctx); err != nil {
			c.Kill()
			return fmt.Errorf("Apache Kafka: %w", err)
		}
	}
	return nil
}

// Stop ends all nodes with SIGTERM, the last first.
func (c *Cluster) Stop(ctx context.Context) error {
	var first error
	for i := len(c.Nodes) - 1; i >= 0; i-- {
		if err := c.Nodes[i].Stop(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Kill ends all nodes with SIGKILL.
func (c *Cluster) Kill() {
	for _, p := range c.Nodes {
		p.Kill()
	}
}

func (k *Kafka) node(ctx context.Context, o ClusterOptions, id int, cluster string, ports []int) (*Process, error) {
	dir, err := filepath.Abs(filepath.Join(o.Dir, fmt.Sprint(id)))
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(file, properties(o, id, data, ports), 0o644); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(data, "meta.properties")); err != nil {
		cmd := k.Class(ctx, tools["storage"], "format", "-t", cluster, "-c", file)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("format: %w\n%s", err, out)
		}
	}
	return &Process{
		Addr: fmt.Sprintf("127.0.0.1:%d", ports[id-1]), Dir: dir, Data: data, Log: filepath.Join(dir, "server.log"),
		ready: "Kafka Server started",
		command: func() *exec.Cmd {
			return exec.Command(k.java, k.arguments(o.Heap, "INFO", "kafka.Kafka", []string{file})...)
		},
	}, nil
}

// properties has what a small cluster needs to differ from Kafka's defaults, and nothing that makes it faster or slower
// at moving records. The first half of ports are the brokers', the second the controllers'.
func properties(o ClusterOptions, id int, data string, ports []int) []byte {
	var voters []string
	for i := range o.Nodes {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, ports[o.Nodes+i]))
	}
	lines := []string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", id),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", ports[id-1], ports[o.Nodes+id-1]),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d", ports[id-1]),
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=PLAINTEXT",
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"log.dirs=" + data,
		fmt.Sprintf("offsets.topic.replication.factor=%d", o.Nodes),
		fmt.Sprintf("transaction.state.log.replication.factor=%d", o.Nodes),
		fmt.Sprintf("transaction.state.log.min.isr=%d", o.Nodes/2+1),
		fmt.Sprintf("share.coordinator.state.topic.replication.factor=%d", o.Nodes),
		fmt.Sprintf("share.coordinator.state.topic.min.isr=%d", o.Nodes/2+1),
		"group.initial.rebalance.delay.ms=0",
	}
	return []byte(strings.Join(append(lines, o.Set...), "\n") + "\n")
}

// randomID draws a cluster id as Kafka prints one. A leading dash would read as a flag of the storage tool.
func randomID() string {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(b[:])
}
