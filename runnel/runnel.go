package runnel

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"runnel/internal/kit/config"
	"runnel/internal/kit/vfs"
	"runnel/internal/node"
)

// Options configure an embedded node. The zero value is a node in memory on a free
// loopback port.
type Options struct {
	// Dir keeps the data in a directory, which a later Start finds again; empty keeps it
	// in memory, gone with the node.
	Dir string
	// Addr is HOST:PORT to listen on; empty is 127.0.0.1 with a free port.
	Addr string
	// Config sets configuration keys of server.properties, e.g. "auto.create.topics.enable":
	// "false". They are checked as a file's are.
	Config map[string]string
	// Log takes the node's log; nil discards it.
	Log *slog.Logger
}

// Node is a running embedded node.
type Node struct{ node *node.Node }

// closeTimeout bounds how long Close may take to hand leaderships over.
const closeTimeout = 10 * time.Second

// Start runs a node and returns when it serves clients. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Node, error) {
	p := defaults(o)
	for _, k := range slices.Sorted(maps.Keys(o.Config)) {
		p.Set(k, o.Config[k], "Options.Config")
	}
	if _, _, err := p.Check(false); err != nil {
		return nil, fmt.Errorf("runnel: %w", err)
	}
	conf, err := config.Load(p)
	if err != nil {
		return nil, fmt.Errorf("runnel: %w", err)
	}
	no := node.Options{Config: conf, Log: o.Log}
	if o.Dir == "" {
		no.FS = vfs.NewMem()
	}
	n, err := node.Start(ctx, no)
	if err != nil {
		return nil, fmt.Errorf("runnel: %w", err)
	}
	return &Node{n}, nil
}

// defaults are those of a lone node (config.LoneNode) on loopback, with ports that the
// system chooses.
func defaults(o Options) *config.Properties {
	dir, addr := o.Dir, o.Addr
	if dir == "" {
		dir = "/runnel"
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	return config.LoneNode(dir, addr, "127.0.0.1:0")
}

// Bootstrap is HOST:PORT for a client's bootstrap servers.
func (n *Node) Bootstrap() string { return n.node.Addr("PLAINTEXT") }

// Close stops the node cleanly and leaves nothing running. Calling it again does nothing.
func (n *Node) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return n.node.Close(ctx)
}
