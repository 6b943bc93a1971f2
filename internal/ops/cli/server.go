package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"runnel/internal/kit/config"
	"runnel/internal/node"
	"runnel/internal/ops/web"
)

// stopGrace bounds how long a stopping server tries to hand its leaderships over.
const stopGrace = 30 * time.Second

type serverFlags struct {
	set       []string
	relaxed   bool
	logFormat string
	logLevel  string
}

func newServerCommand(env *Env) *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "server [FILE]",
		Short: "Run a broker and controller",
		Long: `Run a Runnel server.

Without FILE it is a whole cluster by itself: data in ./runnel-data, clients on
127.0.0.1:9092, controller on 127.0.0.1:9093. FILE is a server.properties as Apache
Kafka takes it. An empty data directory is formatted at the first start; one that
"kafka storage format" made is taken as it is. SIGTERM or Ctrl-C stops cleanly.`,
		Example: `  runnel server
  runnel server --set listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093
  runnel server /etc/kafka/server.properties --set log.dirs=/data`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return serverFailed(runServer(env, f, args)) },
	}
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "set a configuration `KEY=VALUE`; may be repeated, wins over FILE")
	cmd.Flags().BoolVar(&f.relaxed, "allow-unknown-keys", false, "warn of unknown configuration keys instead of refusing them")
	cmd.Flags().StringVar(&f.logFormat, "log-format", "text", "text or json")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func runServer(env *Env, f serverFlags, args []string) error {
	began := time.Now()
	log, err := newLogger(env.Stderr, f)
	if err != nil {
		return err
	}
	conf, err := loadServer(log, f, args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	n, err := node.Start(ctx, node.Options{Config: conf, Log: log})
	if err != nil {
		return err
	}
	ops, err := web.Serve(n, conf, log)
	if err != nil {
		n.Close(context.Background())
		return err
	}
	r := n.Report()
	log.Info("serving", "bootstrap", n.Bootstrap(), "controller", r.Controller, "cluster.id", r.ClusterID, "node.id", conf.NodeID,
		"dirs", strings.Join(conf.LogDirs, ","), "http", ops.Addr(), "logs", r.Logs, "recovered.bytes", r.RecoveredBytes, "truncated.bytes", r.TruncatedBytes,
		"took", time.Since(began).Round(time.Millisecond).String())
	select {
	case <-ctx.Done():
		log.Info("stopping")
		stop() // a second signal ends the process at once
		ops.Close()
		sctx, cancel := context.WithTimeout(context.Background(), stopGrace)
		defer cancel()
		return n.Close(sctx)
	case <-n.Done():
		ops.Close()
		return n.Err()
	}
}

// serverFailed explains what ended a server. Its errors are never those of a client that
// does not reach a cluster, whatever they wrap: a taken port is no silent broker.
func serverFailed(err error) error {
	var f *failure
	switch {
	case err == nil || errors.As(err, &f) || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return failed("%s", oneLine(err)).hint("check the path")
	case errors.Is(err, fs.ErrPermission):
		return failed("%s", oneLine(err)).hint("check the owner and mode of the path")
	}
	return failed("%s", oneLine(err))
}

// loadServer reads FILE, or the defaults of a lone node, and what --set says.
func loadServer(log *slog.Logger, f serverFlags, args []string) (*config.Server, error) {
	p := config.LoneNode("runnel-data", "127.0.0.1:9092", "127.0.0.1:9093")
	if len(args) == 1 {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return nil, fmt.Errorf("cannot read the configuration: %w", err)
		}
		if p, err = config.ParseProperties(args[0], text); err != nil {
			return nil, err
		}
	}
	for _, kv := range f.set {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, usage("--set %s: must be KEY=VALUE", kv)
		}
		p.Set(strings.TrimSpace(k), v, "--set")
	}
	if len(args) == 0 {
		followListeners(p)
	}
	warnings, notes, err := p.Check(f.relaxed)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	for _, n := range notes {
		if len(args) == 1 || strings.HasPrefix(n, "--set") {
			log.Info(n)
		}
	}
	return config.Load(p)
}

// followListeners keeps the lone node's voter where --set moved its controller listener.
func followListeners(p *config.Properties) {
	if p.From("listeners") != "--set" || p.From("controller.quorum.voters") == "--set" {
		return
	}
	for _, item := range config.SplitList(p.Values["listeners"]) {
		if name, addr, ok := strings.Cut(item, "://"); ok && strings.EqualFold(name, p.Values["controller.listener.names"]) {
			p.Set("controller.quorum.voters", p.Values["node.id"]+"@"+addr, "--set")
		}
	}
}

func newLogger(w io.Writer, f serverFlags) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, usage("--log-level %s: must be debug, info, warn or error", f.logLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, usage("--log-format %s: must be text or json", f.logFormat)
}
