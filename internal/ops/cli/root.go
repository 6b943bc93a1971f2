package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	bootstrapEnv     = "RUNNEL_BOOTSTRAP_SERVER"
	defaultBootstrap = "127.0.0.1:9092"
)

// Main runs one command line and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt kills
	return Run(ctx, NewEnv(stdin, stdout, stderr), args)
}

// Run is Main in an environment of the caller's.
func Run(ctx context.Context, env *Env, args []string) int {
	root := newRoot(env)
	root.SetArgs(args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	f := env.explain(ctx, err)
	if f.text != "" {
		fmt.Fprintf(env.Stderr, "runnel: %s\n", f.text)
	}
	if f.next != "" {
		fmt.Fprintf(env.Stderr, "  next: %s\n", f.next)
	}
	return f.code
}

func newRoot(env *Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "runnel",
		Short: "Apache Kafka, written new in Go",
		Long: `Runnel is an Apache Kafka server and the tools around it, in one binary.

  runnel server                         start a broker on 127.0.0.1:9092
  runnel topic create greetings         make a topic
  echo hello | runnel produce greetings
  runnel consume greetings -e           read it to its end

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 cluster not reachable,
5 refused or not confirmed, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          parentRun,
	}
	start := defaultBootstrap
	if v := env.Getenv(bootstrapEnv); v != "" {
		start = v
	}
	pf := root.PersistentFlags()
	pf.StringVarP(&env.bootstrap, "bootstrap-server", "b", start, "brokers to ask first, HOST:PORT joined by commas (env "+bootstrapEnv+")")
	pf.DurationVar(&env.timeout, "timeout", 10*time.Second, "how long to wait for the cluster")
	pf.StringVarP(&env.output, "output", "o", "text", "text for people, json for programs")
	pf.BoolVarP(&env.quiet, "quiet", "q", false, "no remarks and no progress on stderr")
	root.SetFlagErrorFunc(flagError)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return env.checkShared() }
	root.AddCommand(
		newServerCommand(env), newFormatCommand(env), newTopicCommand(env), newGroupCommand(env),
		newProduceCommand(env), newConsumeCommand(env), newConfigCommand(env), newClusterCommand(env),
		newDumpCommand(env), newVersionCommand(env),
	)
	wrapArgs(root)
	return root
}

func (e *Env) checkShared() error {
	if e.output != "text" && e.output != "json" {
		return usage("--output %q is not known", e.output).hint("use text or json")
	}
	if e.timeout <= 0 {
		return usage("--timeout must be more than 0")
	}
	return nil
}

// parent makes a command that only holds others.
func parent(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: parentRun}
	c.AddCommand(children...)
	return c
}

func parentRun(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	f := usage("unknown command %q for %q", args[0], cmd.CommandPath())
	names := []string{}
	for _, c := range cmd.Commands() {
		names = append(names, append([]string{c.Name()}, c.Aliases...)...)
	}
	if near := nearest(args[0], names); near != "" {
		return f.hint("did you mean `%s %s`?", cmd.CommandPath(), near)
	}
	return f.hint("see `%s --help`", cmd.CommandPath())
}

// wrapArgs makes errors about the number of arguments usage errors.
func wrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usage("%s", err).hint("usage: %s", c.UseLine())
			}
			return nil
		}
	} else if cmd.RunE != nil && cmd.HasSubCommands() {
		cmd.Args = cobra.ArbitraryArgs
	}
	for _, c := range cmd.Commands() {
		wrapArgs(c)
	}
}

func flagError(cmd *cobra.Command, err error) error {
	f := usage("%s", err)
	text := err.Error()
	if i := strings.LastIndex(text, "unknown flag: --"); i >= 0 {
		wrong := text[i+len("unknown flag: --"):]
		var names []string
		cmd.Flags().VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
		if near := nearest(wrong, names); near != "" {
			return f.hint("did you mean --%s?", near)
		}
	}
	return f.hint("see `%s --help`", cmd.CommandPath())
}

// nearest finds the name a person most likely meant; empty if none is near.
func nearest(wrong string, names []string) string {
	best, least := "", max(len(wrong)/3, 2)+1
	slices.Sort(names)
	for _, n := range names {
		d := distance(strings.ToLower(wrong), n)
		if len(wrong) >= 3 && strings.HasPrefix(n, strings.ToLower(wrong)) {
			d = 1
		}
		if d < least {
			best, least = n, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with a neighbour.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
