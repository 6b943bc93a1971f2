package cli_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"runnel/internal/ops/cli"
	"runnel/runnel"
)

var rewrite = flag.Bool("rewrite", false, "write what the commands print into the scripts")

// A script is a text of command lines and what they print:
//
//	# a remark
//	< a line of stdin for the next command
//	$ topic list
//	stdout, then stderr with "! " before each line, then the exit code if it is not 0
//	[exit 3]
//
// Each script has a node of its own. DIR is its directory and ADDR its address.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			runScript(t, file)
		})
	}
}

func runScript(t *testing.T, file string) {
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := script{dir: t.TempDir()}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	n, err := runnel.Start(ctx, runnel.Options{Dir: filepath.Join(s.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	s.addr = n.Bootstrap()
	got := s.run(ctx, string(want))
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	compare(t, string(want), got)
}

func compare(t *testing.T, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	command := ""
	for i := range min(len(w), len(g)) {
		if strings.HasPrefix(g[i], "$ ") {
			command = g[i]
		}
		if w[i] != g[i] {
			t.Fatalf("line %d, of %q:\nwant %q\ngot  %q", i+1, command, w[i], g[i])
		}
	}
	t.Fatalf("want %d lines, got %d", len(w), len(g))
}

type script struct {
	dir, addr string
}

func (s *script) run(ctx context.Context, text string) string {
	var out strings.Builder
	var stdin []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "< "):
			stdin = append(stdin, line[2:])
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(line, "$ "):
			fmt.Fprintln(&out, line)
			in := strings.Join(stdin, "\n")
			if len(stdin) > 0 {
				in += "\n"
			}
			out.WriteString(s.command(ctx, line[2:], in))
			stdin = nil
		case strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

func (s *script) command(ctx context.Context, line, stdin string) string {
	line = strings.NewReplacer("DIR", s.dir, "ADDR", s.addr).Replace(line)
	var stdout, stderr bytes.Buffer
	env := cli.NewEnv(strings.NewReader(stdin), &stdout, &stderr)
	env.Getenv = func(name string) string {
		if name == "RUNNEL_BOOTSTRAP_SERVER" {
			return s.addr
		}
		return ""
	}
	code := cli.Run(ctx, env, words(line))
	text := stdout.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	for l := range strings.Lines(stderr.String()) {
		text += "! " + strings.TrimSuffix(l, "\n") + "\n"
	}
	if code != 0 {
		text += fmt.Sprintf("[exit %d]\n", code)
	}
	text = s.steady(text)
	if strings.HasPrefix(line, "cluster ") {
		text = wide.ReplaceAllString(text, "  ") // the widths of columns depend on the directory and the port
	}
	return text
}

var wide = regexp.MustCompile(` {2,}`)

// words splits a command line at blanks; single quotes keep blanks.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out[len(out)-1] += part
			continue
		}
		fields := strings.Fields(part)
		out = append(out, fields...)
		if i == 0 && part == "" || strings.HasSuffix(part, " ") {
			out = append(out, "")
		}
	}
	if n := len(out); n > 0 && strings.HasSuffix(line, " ") {
		out = out[:n-1]
	}
	return out
}

var volatile = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`runnel-cli-[0-9a-f-]{36}`), "MEMBER"},
	{regexp.MustCompile(`\b1[0-9]{12}\b`), "TIME"},
	{regexp.MustCompile(`(^|[ "])[A-Za-z0-9_-]{22}([ "]|$)`), "${1}ID$2"},
	{regexp.MustCompile(`dev \(Kafka.*`), "VERSION"},
	{regexp.MustCompile(`"crc":\d+|crc \d+`), "CRC"},
	{regexp.MustCompile(`[0-9.]+ [KMGTP]iB +[0-9.]+ [KMGTP]iB`), "FREE TOTAL"},
}

// steady replaces what differs from run to run.
func (s *script) steady(text string) string {
	text = strings.NewReplacer(s.dir, "DIR", s.addr, "ADDR", s.addr[strings.LastIndexByte(s.addr, ':')+1:], "PORT").Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		for _, v := range volatile {
			l = v.find.ReplaceAllString(l, v.put)
		}
		lines[i] = l
	}
	return strings.Join(lines, "\n")
}

func TestWords(t *testing.T) {
	for line, want := range map[string]string{
		"topic list":              "topic|list",
		"consume t -f '%k %v\\n'": "consume|t|-f|%k %v\\n",
		"produce t -K '' -v a":    "produce|t|-K||-v|a",
		"a --x='b c' d":           "a|--x=b c|d",
	} {
		if got := strings.Join(words(line), "|"); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
