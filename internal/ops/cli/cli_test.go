package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/meta/metarec"
	"runnel/runnel"
)

type result struct {
	code           int
	stdout, stderr string
}

func testEnv(fs vfs.FS, stdin string) (*Env, *bytes.Buffer, *bytes.Buffer) {
	var stdout, stderr bytes.Buffer
	env := NewEnv(strings.NewReader(stdin), &stdout, &stderr)
	env.FS, env.Getenv = fs, func(string) string { return "" }
	return env, &stdout, &stderr
}

func runOn(t *testing.T, fs vfs.FS, stdin string, args ...string) result {
	t.Helper()
	env, stdout, stderr := testEnv(fs, stdin)
	code := Run(t.Context(), env, args)
	return result{code, stdout.String(), stderr.String()}
}

func put(t testing.TB, fs vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fs.OpenFile(name, vfs.ReadWrite|vfs.Create|vfs.Trunc)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
}

func startNode(t *testing.T) string {
	t.Helper()
	n, err := runnel.Start(t.Context(), runnel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n.Bootstrap()
}

func TestTimesAndSpans(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "1700000000000": 1700000000000, "1970-01-02": 86400000, "1970-01-01T00:00:01Z": 1000, "1970-01-01T01:00:00+01:00": 0, "1970-01-01 00:01": 60000} {
		got, err := parseTime(s)
		if err != nil || got.UnixMilli() != want {
			t.Errorf("parseTime(%q) = %d, %v; want %d", s, got.UnixMilli(), err, want)
		}
	}
	for s, want := range map[string]time.Duration{"1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "P7D": 7 * 24 * time.Hour, "P1DT2H": 26 * time.Hour, "PT30S": 30 * time.Second, "250ms": 250 * time.Millisecond} {
		got, err := parseSpan(s)
		if err != nil || got != want {
			t.Errorf("parseSpan(%q) = %s, %v; want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", "P", "PT", "-1h", "P1", "xd", "soon"} {
		if d, err := parseSpan(s); err == nil {
			t.Errorf("parseSpan(%q) = %s", s, d)
		}
	}
	if _, err := parseTime("yesterday"); err == nil {
		t.Error("a word was taken for a time")
	}
}

func TestPlaces(t *testing.T) {
	now := time.UnixMilli(10_000_000)
	for s, want := range map[string]place{"beginning": {atBeginning, 0}, "LATEST": {atEnd, 0}, "12": {atOffset, 12}, "-3": {beforeEnd, 3}, "@5000": {atTime, 5000}, "@-1h": {atTime, 6_400_000}} {
		if got, err := parsePlace(s, now); err != nil || got != want {
			t.Errorf("parsePlace(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "@", "middle", "@-x", "1.5"} {
		if got, err := parsePlace(s, now); err == nil {
			t.Errorf("parsePlace(%q) = %v", s, got)
		}
	}
}

func TestFormatIsBinarySafe(t *testing.T) {
	r := &kgo.Record{Topic: "t", Key: []byte{0, 255, '%'}, Value: nil, Headers: []kgo.RecordHeader{{Key: "a", Value: nil}, {Key: "b", Value: []byte("x")}}}
	for layout, want := range map[string]string{
		`%k`:             "\x00\xff%",
		`%v|%s`:          "NULL|NULL",
		`%K,%V`:          "3,-1",
		`[%h]`:           "[a=NULL,b=x]",
		`\x00\x41\t%%%n`: "\x00A\t%\n",
		`no verbs`:       "no verbs",
	} {
		f, err := parseFormat(layout, []byte("NULL"))
		if err != nil {
			t.Fatalf("%s: %v", layout, err)
		}
		var b []byte
		for _, part := range f {
			b = part(b, r)
		}
		if string(b) != want {
			t.Errorf("%s: %q, want %q", layout, b, want)
		}
	}
	for _, bad := range []string{"%", "%q", `\q`, `\x4`, `\xzz`} {
		if _, err := parseFormat(bad, nil); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// What consume prints, produce takes: for every mix of null, empty, text and bytes.
func TestJSONRecordComesBack(t *testing.T) {
	values := [][]byte{nil, {}, []byte("text \" \\ <&> \u2028"), {0xff, 0, 1}}
	for _, k := range values {
		for _, v := range values {
			in := &kgo.Record{Topic: "t", Partition: 3, Timestamp: time.UnixMilli(77), Key: k, Value: v, Headers: []kgo.RecordHeader{{Key: "h", Value: v}}}
			line := appendJSONRecord(nil, in, false)
			if bytes.Count(line, []byte("\n")) != 1 {
				t.Fatalf("%q is not one line", line)
			}
			var j jsonRecord
			if err := json.Unmarshal(line, &j); err != nil {
				t.Fatal(err)
			}
			out, err := j.record()
			if err != nil {
				t.Fatal(err)
			}
			same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
			if !same(out.Key, k) || !same(out.Value, v) || !same(out.Headers[0].Value, v) || out.Partition != 3 || !out.Timestamp.Equal(in.Timestamp) {
				t.Errorf("%s gave %+v", line, out)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"list", "create", "describe", "delete", "alter", "records"}
	for wrong, want := range map[string]string{"lst": "list", "craete": "create", "desc": "describe", "DELETE": "delete", "xyzzy": "", "rec": "records"} {
		if got := nearest(wrong, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", wrong, got, want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	env, _, _ := testEnv(vfs.NewMem(), "")
	for _, c := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("x: %w", kerr.UnknownTopicOrPartition), exitNotFound},
		{kerr.GroupIDNotFound, exitNotFound},
		{kerr.NonEmptyGroup, exitRefused},
		{kerr.InvalidConfig, exitFailed},
		{context.DeadlineExceeded, exitUnreachable},
		{io.ErrUnexpectedEOF, exitUnreachable},
		{errors.New("anything"), exitFailed},
		{usage("x"), exitUsage},
	} {
		f := env.explain(t.Context(), c.err)
		if f.code != c.want || strings.Contains(f.text, "\n") || f.text == "" {
			t.Errorf("%v: code %d %q, want %d", c.err, f.code, f.text, c.want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if f := env.explain(ended, context.Canceled); f.code != exitInterrupted {
		t.Errorf("an interrupt gave %d", f.code)
	}
}

// What keeps a server from starting is never told as a client's trouble, and exits with 1.
func TestServerThatCannotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
	dir := "log.dirs=" + t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--set", "listeners=PLAINTEXT://" + taken.Addr().String() + ",CONTROLLER://127.0.0.1:0", "--set", dir}, "cannot listen on " + taken.Addr().String()},
		{[]string{"--set", free, "--set", dir, "--set", "runnel.http.listener=" + taken.Addr().String()}, "runnel.http.listener"},
		{[]string{"--set", free, "--set", "log.dirs=/dev/null/x"}, "log.dirs"},
		{[]string{t.TempDir() + "/missing"}, "cannot read the configuration"},
		{[]string{"--set", free, "--set", dir, "--set", "log.dirz=x"}, "log.dirz"},
	} {
		r := runOn(t, vfs.OS{}, "", append([]string{"server", "--log-level", "error"}, c.args...)...)
		if r.code != exitFailed || !strings.Contains(r.stderr, c.want) || strings.Contains(r.stderr, "cluster at") {
			t.Errorf("server %q: exit %d, stderr %q; want exit 1 and %q", c.args, r.code, r.stderr, c.want)
		}
	}
}

func TestConfirmAsksOnATerminal(t *testing.T) {
	for answer, want := range map[string]bool{"yes\n": true, "Y\n": true, "no\n": false, "": false, "\n": false} {
		env, _, stderr := testEnv(vfs.NewMem(), answer)
		env.StdinTerminal = true
		err := env.confirm(false, "delete %s", "everything")
		if (err == nil) != want || !strings.Contains(stderr.String(), "delete everything?") {
			t.Errorf("answer %q: %v, asked %q", answer, err, stderr)
		}
	}
}

// A consumer that waits for more ends at the first interrupt, with what it read printed.
func TestInterruptedConsume(t *testing.T) {
	addr := startNode(t)
	fs := vfs.NewMem()
	for _, args := range [][]string{{"topic", "create", "t"}, {"produce", "t", "-v", "hello"}} {
		if r := runOn(t, fs, "", append(args, "-b", addr)...); r.code != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
	}
	for _, group := range [][]string{nil, {"-g", "g"}} {
		ctx, cancel := context.WithCancel(t.Context())
		env, _, stderr := testEnv(fs, "")
		var got bytes.Buffer
		env.Stdout = writerFunc(func(b []byte) (int, error) { got.Write(b); cancel(); return len(b), nil })
		code := Run(ctx, env, append([]string{"consume", "t", "-b", addr}, group...))
		if code != exitInterrupted || got.String() != "hello\n" {
			t.Errorf("group %v: exit %d, printed %q, %s", group, code, got.String(), stderr)
		}
	}
	// What was printed is committed on the way out.
	if r := runOn(t, fs, "", "consume", "t", "-g", "g", "-e", "-b", addr); r.stdout != "" || r.code != 0 {
		t.Errorf("printed again: %+v", r)
	}
}

// What was read before an interrupt is written, and waiting for more input ends.
func TestInterruptedProduce(t *testing.T) {
	addr := startNode(t)
	if r := runOn(t, vfs.NewMem(), "", "topic", "create", "t", "-b", addr); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	env, _, _ := testEnv(vfs.NewMem(), "")
	in, feed := io.Pipe()
	defer feed.Close()
	env.Stdin = in
	go func() {
		feed.Write([]byte("one\n"))
		for { // until the record is there
			if r := runOn(t, vfs.NewMem(), "", "consume", "t", "-e", "-b", addr); r.stdout != "" {
				cancel()
				return
			}
		}
	}()
	if code := Run(ctx, env, []string{"produce", "t", "-b", addr, "--linger", "0s"}); code != exitInterrupted {
		t.Errorf("exit %d", code)
	}
	if r := runOn(t, vfs.NewMem(), "", "consume", "t", "-e", "-b", addr); r.stdout != "one\n" {
		t.Errorf("written: %+v", r)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

// -e ends though the last offsets before the end hold no record for us.
func TestConsumeEndsBehindHoles(t *testing.T) {
	addr := startNode(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if r := runOn(t, vfs.NewMem(), "", "topic", "create", "t", "-b", addr); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for i := range 3 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	env, stdout, _ := testEnv(vfs.NewMem(), "")
	env.bootstrap, env.timeout = addr, 5*time.Second
	src := source{topics: map[string]map[int32]span{"t": {0: {0, 100}}}} // 97 offsets will never come
	err = src.read(t.Context(), env, func(r *kgo.Record) error { fmt.Fprintf(stdout, "%s ", r.Value); return nil })
	if err != nil || stdout.String() != "0 1 2 " {
		t.Errorf("%v, read %q", err, stdout)
	}
}

const serverFile = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs=/data/a,/data/b
`

func TestFormatCommand(t *testing.T) {
	fs := vfs.NewMem()
	fs.MkdirAll("/etc")
	put(t, fs, "/etc/fixed", []byte(serverFile))
	put(t, fs, "/etc/dynamic", []byte(strings.ReplaceAll(strings.ReplaceAll(serverFile, "quorum.voters=1@", "quorum.bootstrap.servers="), "/data", "/other")))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"format /etc/fixed --standalone", exitUsage, "fixes the voters"},
		{"format /etc/fixed --release-version 9.9", exitUsage, "not a metadata version"},
		{"format /etc/fixed --feature group.version=7", exitFailed, "must be 0 to 1"},
		{"format /etc/fixed --set node.idd=2", exitFailed, "node.id"},
		{"format /etc/fixed -t MpR8gIUwSga8IyAP0YEXhg", exitOK, "formatted /data/b, /data/a for node 1 of cluster MpR8gIUwSga8IyAP0YEXhg"},
		{"format /etc/fixed -t MpR8gIUwSga8IyAP0YEXhg", exitRefused, "already formatted"},
		{"format /etc/fixed -t MpR8gIUwSga8IyAP0YEXhg -g", exitOK, "nothing to format"},
		{"format /etc/fixed -t AAAA -g", exitFailed, "belongs to cluster"},
		{"format /etc/dynamic", exitUsage, "which controllers vote"},
		{"format /etc/dynamic --standalone --no-initial-controllers", exitUsage, "exclude each other"},
		{"format /etc/dynamic --initial-controllers 1@h:1", exitUsage, "directory id"},
		{"format /etc/dynamic --standalone -o json", exitOK, `"nodeId": 1`},
		{"dump /other/a/__cluster_metadata-0", exitOK, "KRaftVoters"},
		{"dump /data/a", exitOK, "cluster.id MpR8gIUwSga8IyAP0YEXhg"},
	} {
		r := runOn(t, fs, "", strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.want) {
			t.Errorf("%s: %+v; want exit %d and %q", c.args, r, c.code, c.want)
		}
	}
}

func batch(attributes int16, base int64, add func(*record.Builder)) []byte {
	b := &record.Builder{BaseOffset: base, Attributes: attributes, Timestamp: 1000}
	add(b)
	return b.Build()
}

// Damage is named, and does not hide what comes before it.
func TestDumpNamesDamage(t *testing.T) {
	good := batch(0, 5, func(b *record.Builder) { b.Add([]byte("k"), []byte("v")) })
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"/t-0/00000000000000000005.log", join(good, flipped), "checksum is"},
		{"/t-0/00000000000000000005.log", join(good, good[:20]), "20 bytes at the end"},
		{"/t-0/00000000000000000005.log", join(good, good[:len(good)-1]), "where"},
		{"/t-0/00000000000000000005.log", join(good, make([]byte, 100)), "zeros"},
		{"/t-0/00000000000000000005.index", []byte{0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 10}, "does not follow"},
		{"/t-0/00000000000000000005.index", []byte{0, 0, 0, 2, 0, 0, 0, 9, 1}, "no whole entry"},
		{"/t-0/00000000000000000005.timeindex", make([]byte, 13), "no whole entry"},
		{"/t-0/00000000000000000005.txnindex", join([]byte{0, 9}, make([]byte, 32)), "version 9"},
		{"/t-0/00000000000000000005.snapshot", []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 9}, "do not fit"},
		{"/t-0/leader-epoch-checkpoint", []byte("0\n2\n1 5\n"), "says"},
		{"/t-0/leader-epoch-checkpoint", []byte("0\n1\n1 x\n"), "no number"},
		{"/d/replication-offset-checkpoint", []byte("7\n0\n"), "version 0"},
		{"/d/quorum-state", []byte("[]"), "not a JSON object"},
		{"/__cluster_metadata-0/00000000000000000000.log", good, "metadata record"},
		{"/__consumer_offsets-0/00000000000000000000.log", good, "not known"},
	} {
		fs := vfs.NewMem()
		fs.MkdirAll(c.name[:strings.LastIndexByte(c.name, '/')])
		put(t, fs, c.name, c.data)
		for _, output := range []string{"text", "json"} {
			r := runOn(t, fs, "", "dump", c.name, "--deep", "-o", output)
			if r.code != exitFailed || !strings.Contains(r.stdout, c.want) || !strings.Contains(r.stderr, "damaged") {
				t.Errorf("%s as %s: %+v; want %q", c.name, output, r, c.want)
			}
		}
	}
}

func TestDumpSmallFiles(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"/t-0/00000000000000000005.index":     {"\x00\x00\x00\x02\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00", "entry  offset 7  position 9\n"},
		"/t-0/00000000000000000005.timeindex": {"\x00\x00\x00\x00\x00\x00\x03\xe8\x00\x00\x00\x02", "entry  timestamp 1000  offset 7\n"},
		"/t-0/leader-epoch-checkpoint":        {"0\n1\n3 17\n", "epoch  epoch 3  startOffset 17\n"},
		"/d/log-start-offset-checkpoint":      {"0\n1\na b 0 4\n", "damage"}, // a topic has no blank
		"/d/recovery-point-offset-checkpoint": {"0\n1\nt 0 4\n", "offset  topic t  partition 0  offset 4\n"},
		"/d/quorum-state":                     {`{"leaderId":1,"votedId":-1}`, "state  leaderId 1  votedId -1\n"},
		"/d/.kafka_cleanshutdown":             {`{"version":0,"brokerEpoch":9}`, "state  version 0  brokerEpoch 9\n"},
	} {
		fs := vfs.NewMem()
		fs.MkdirAll(name[:strings.LastIndexByte(name, '/')])
		put(t, fs, name, []byte(c.data))
		if r := runOn(t, fs, "", "dump", name); !strings.Contains(r.stdout, c.want) {
			t.Errorf("%s: %+v, want %q", name, r, c.want)
		}
	}
}

// Whatever a file holds, dump ends and does not panic.
func FuzzDump(f *testing.F) {
	names := []string{"/__cluster_metadata-0/00000000000000000000.log", "/__consumer_offsets-0/00000000000000000000.log", "/__transaction_state-0/00000000000000000000.log",
		"/t-0/00000000000000000000.log", "/t-0/00000000000000000000.index", "/t-0/00000000000000000000.timeindex", "/t-0/00000000000000000000.txnindex",
		"/t-0/00000000000000000000.snapshot", "/t-0/leader-epoch-checkpoint", "/d/x-offset-checkpoint", "/d/meta.properties", "/d/quorum-state"}
	meta := metarec.Encode(&metarec.FeatureLevel{Name: "metadata.version", FeatureLevel: 33}, 0)
	for i := range names {
		f.Add(i, batch(0, 0, func(b *record.Builder) { b.Add(nil, meta) }))
		f.Add(i, batch(0, 0, func(b *record.Builder) { b.Add([]byte{0, 1, 0, 1, 'g', 0, 1, 't', 0, 0, 0, 0}, nil) }))
		f.Add(i, batch(record.ControlBit, 0, func(b *record.Builder) { b.Add([]byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 5}) }))
		f.Add(i, []byte("0\n1\n3 17\n"))
	}
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		if which < 0 || which >= len(names) {
			return
		}
		// A checksum that fits lets the fuzzer reach what is behind it.
		if b := record.Batch(data); len(b) > record.HeaderSize && b.Magic() == 2 && b.Size() == len(b) {
			b.StampCRC()
		}
		fs := vfs.NewMem()
		name := names[which]
		fs.MkdirAll(name[:strings.LastIndexByte(name, '/')])
		put(t, fs, name, data)
		runOn(t, fs, "", "dump", name, "--deep", "-o", "json")
		runOn(t, fs, "", "dump", name, "--deep")
	})
}
