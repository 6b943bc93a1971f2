//go:build interop

package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"runnel/test/oracle"
)

var quick = os.Getenv("RUNNEL_INTEROP") == "quick"

func TestMain(m *testing.M) {
	code := m.Run()
	oracle.RemoveBuild()
	os.Exit(code)
}

// limited bounds everything a test starts.
func limited(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func broker(t *testing.T, set ...string) *oracle.Process {
	t.Helper()
	p, err := oracle.StartRunnel(limited(t, 4*time.Minute), oracle.RunnelOptions{Dir: t.TempDir(), Set: set})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			if b, err := os.ReadFile(p.Log); err == nil {
				t.Logf("the broker's log ends:\n%s", b[max(0, len(b)-3000):])
			}
		}
	})
	return p
}

func kafka(t *testing.T) *oracle.Kafka {
	t.Helper()
	k, err := oracle.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// tool runs one of Kafka's tools and gives what it printed. It fails the test if the tool does.
func tool(t *testing.T, k *oracle.Kafka, input, name string, args ...string) string {
	t.Helper()
	cmd, err := k.Tool(limited(t, 90*time.Second), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	// Most of a short tool's time is its compiler's.
	cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
	cmd.Args = slices.DeleteFunc(cmd.Args, func(a string) bool { return a == "-XX:+UseG1GC" })
	return run(t, cmd, input)
}

func run(t *testing.T, cmd *exec.Cmd, input string) string {
	t.Helper()
	cmd.Stdin = strings.NewReader(input)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%5.1fs %s", time.Since(began).Seconds(), strings.Join(cmd.Args[max(0, len(cmd.Args)-6):], " "))
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(cmd.Args[max(0, len(cmd.Args)-8):], " "), err, out)
	}
	return string(out)
}

func contains(t *testing.T, out string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("no %q in:\n%s", w, out)
		}
	}
}

// cache is a directory that outlives a run.
func cache(t *testing.T, name string) string {
	t.Helper()
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "runnel-interop", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// once makes something in dir unless an earlier run did with the same recipe.
func once(t *testing.T, dir, recipe string, cmds ...*exec.Cmd) {
	t.Helper()
	stamp := filepath.Join(dir, "made-of")
	if b, err := os.ReadFile(stamp); err == nil && string(b) == recipe {
		return
	}
	for _, c := range cmds {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(c.Args, " "), err, out)
		}
	}
	if err := os.WriteFile(stamp, []byte(recipe), 0o644); err != nil {
		t.Fatal(err)
	}
}
