package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"time"

	"runnel/test/oracle"
)

// settings are how long and how much; quick is for a check in CI that everything still runs.
type settings struct {
	warm, load  time.Duration // of each load
	bytes       int64         // user bytes a load may write at most
	latency     time.Duration
	settle      time.Duration // before idle memory and CPU are read
	connections int
	partitions  int
	restart     int64 // bytes in the log when the server is killed
	rounds      int   // of every load, the middle one counts
}

var (
	whole = settings{warm: 5 * time.Second, load: 8 * time.Second, bytes: 4 << 30, latency: 15 * time.Second, settle: 5 * time.Second,
		connections: 10000, partitions: 10000, restart: 300 << 20, rounds: 1}
	quick = settings{warm: 500 * time.Millisecond, load: time.Second, bytes: 512 << 20, latency: 2 * time.Second, settle: time.Second,
		connections: 1000, partitions: 500, restart: 30 << 20, rounds: 1}
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == bareCommand {
		fail(serveBare(os.Args[2]))
		return
	}
	var (
		s        = whole
		isQuick  = flag.Bool("quick", false, "small loads, for a check that all of it works")
		only     = flag.String("only", "", "run the measurements whose name matches `REGEXP`: "+strings.Join(names(), ", "))
		servers  = flag.String("servers", "kafka,runnel,bare", "which servers to run")
		out      = flag.String("o", "", "write the table as markdown to `FILE`, too")
		dir      = flag.String("dir", "", "where the servers keep their data (default: a temporary directory, deleted at the end)")
		profiles = flag.String("profile", "", "write a CPU profile of Runnel under each load to `DIR`")
		rounds   = flag.Int("rounds", 0, "how often to run each load; the middle result counts")
	)
	flag.Parse()
	if *isQuick {
		s = quick
	}
	if *rounds > 0 {
		s.rounds = *rounds
	}
	match, err := regexp.Compile(*only)
	fail(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	t, err := run(ctx, s, options{only: match, servers: strings.Split(*servers, ","), dir: *dir, profiles: *profiles})
	oracle.RemoveBuild()
	text := t.markdown(fmt.Sprintf("%d CPUs, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()))
	fmt.Print(text)
	if *out != "" {
		fail(os.WriteFile(*out, []byte(text), 0o644))
	}
	fail(err)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	only          *regexp.Regexp
	servers       []string
	dir, profiles string
}

// run does all that is asked for; what was measured before an error is in the table.
func run(ctx context.Context, s settings, o options) (*table, error) {
	t := &table{}
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "runnel-bench-")
		if err != nil {
			return t, err
		}
		defer os.RemoveAll(dir)
		o.dir = dir
	}
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return t, err
		}
	}
	b := &bench{settings: s, options: o, table: t}
	for _, phase := range []func(context.Context) error{b.fresh, b.loads, b.restarts} {
		if err := phase(ctx); err != nil {
			return t, err
		}
	}
	return t, nil
}

type bench struct {
	settings
	options
	table *table
	kafka *oracle.Kafka
}

// wants says whether any of the named measurements is asked for.
func (b *bench) wants(names ...string) bool {
	for _, n := range names {
		if b.only.MatchString(n) {
			return true
		}
	}
	return false
}

func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}
