package format

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"runnel/internal/kit/vfs"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/metarec"
	"runnel/internal/meta/quorum"
	"runnel/internal/store/checkpoint"
)

func drawn(seed uint64) func([]byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(b []byte) {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
}

func options() Options {
	return Options{ClusterID: "MpR8gIUwSga8IyAP0YEXhg", NodeID: 1, LogDirs: []string{"/a", "/b"}, MetadataDir: "/a", Controller: true,
		Now: time.UnixMilli(1700000000000), Random: drawn(1)}
}

func bootstrapOf(t *testing.T, f vfs.FS, dir string) []metarec.Record {
	t.Helper()
	values, err := quorum.ReadBootstrap(f, dir, path.Join(dir, "__cluster_metadata-0"))
	if err != nil {
		t.Fatal(err)
	}
	var out []metarec.Record
	for _, v := range values {
		r, _, err := metarec.Decode(v)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// The levels and their order were read from a directory that Apache Kafka 4.4.0 formatted.
func TestRecordsOfNewCluster(t *testing.T) {
	f := vfs.NewMem()
	res, err := Node(f, options())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/b", "/a"}; !slices.Equal(res.Formatted, want) {
		t.Errorf("formatted %v, want %v", res.Formatted, want)
	}
	var got []string
	for _, r := range bootstrapOf(t, f, "/a") {
		l := r.(*metarec.FeatureLevel)
		got = append(got, l.Name+"="+string(rune('0'+l.FeatureLevel%10)))
	}
	want := "metadata.version=3 eligible.leader.replicas.version=1 group.version=1 share.version=2 streams.version=1 transaction.version=2"
	if strings.Join(got, " ") != want {
		t.Errorf("records %v\nwant %s", got, want)
	}
	a, err := checkpoint.ReadMeta(f, "/a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := checkpoint.ReadMeta(f, "/b")
	if err != nil {
		t.Fatal(err)
	}
	if a.DirectoryID == b.DirectoryID || a.ClusterID != b.ClusterID || a.NodeID != 1 {
		t.Errorf("identities %+v and %+v", a, b)
	}
	if _, err := f.Stat("/b/__cluster_metadata-0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory without the metadata log got one: %v", err)
	}
}

func TestStandaloneVoterHasTheDirectorysID(t *testing.T) {
	f := vfs.NewMem()
	o := options()
	o.KRaftVersion = 1
	o.Standalone = []quorum.Endpoint{{Name: "CONTROLLER", Host: "localhost", Port: 9093}}
	if _, err := Node(f, o); err != nil {
		t.Fatal(err)
	}
	m, err := checkpoint.ReadMeta(f, "/a")
	if err != nil {
		t.Fatal(err)
	}
	data, err := vfs.ReadFile(f, "/a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), string(m.DirectoryID[:])) {
		t.Error("the checkpoint does not hold the directory id of meta.properties")
	}
	if !strings.Contains(string(data), "CONTROLLER") {
		t.Error("the checkpoint does not hold the endpoint")
	}
}

func TestInitialControllersDecideTheDirectoryID(t *testing.T) {
	f := vfs.NewMem()
	o := options()
	o.KRaftVersion = 1
	var err error
	if o.Voters, err = ParseInitialControllers("1@h1:9093:O1WmE3ZkKyG-e-TVubLRuA,2@[::1]:9093:MpR8gIUwSga8IyAP0YEXhg", "CONTROLLER"); err != nil {
		t.Fatal(err)
	}
	if _, err := Node(f, o); err != nil {
		t.Fatal(err)
	}
	m, err := checkpoint.ReadMeta(f, "/a")
	if err != nil {
		t.Fatal(err)
	}
	if m.DirectoryID.String() != "O1WmE3ZkKyG-e-TVubLRuA" {
		t.Errorf("directory id %s", m.DirectoryID)
	}
	if o.Voters[1].Endpoints[0].Host != "::1" {
		t.Errorf("host %q", o.Voters[1].Endpoints[0].Host)
	}
	for _, bad := range []string{"", "1@h:9093", "1@h:9093:short", "x@h:1:O1WmE3ZkKyG-e-TVubLRuA", "1@h:1:AAAAAAAAAAAAAAAAAAAAAA", "1@:1:O1WmE3ZkKyG-e-TVubLRuA,1@h:1:O1WmE3ZkKyG-e-TVubLRuA"} {
		if _, err := ParseInitialControllers(bad, "C"); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestBrokerAloneGetsNoCheckpoint(t *testing.T) {
	f := vfs.NewMem()
	o := options()
	o.Controller = false
	if _, err := Node(f, o); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stat("/a/__cluster_metadata-0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a broker got a metadata log: %v", err)
	}
}

func TestFormattedDirectoriesAreLeftAlone(t *testing.T) {
	f := vfs.NewMem()
	o := options()
	o.LogDirs = []string{"/a"}
	if _, err := Node(f, o); err != nil {
		t.Fatal(err)
	}
	before, _ := checkpoint.ReadMeta(f, "/a")
	if _, err := Node(f, o); !errors.Is(err, ErrFormatted) {
		t.Fatalf("second format: %v", err)
	}
	o.LogDirs = []string{"/a", "/new"}
	o.SkipFormatted, o.Random = true, drawn(2)
	res, err := Node(f, o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(res.Formatted, []string{"/new"}) || !slices.Equal(res.Skipped, []string{"/a"}) {
		t.Errorf("result %+v", res)
	}
	if after, _ := checkpoint.ReadMeta(f, "/a"); after != before {
		t.Errorf("identity changed from %+v to %+v", before, after)
	}
	other := o
	other.ClusterID = "anotherCluster"
	if _, err := Node(f, other); err == nil || !strings.Contains(err.Error(), "belongs to cluster") {
		t.Errorf("wrong cluster: %v", err)
	}
	other = o
	other.NodeID = 7
	if _, err := Node(f, other); err == nil || !strings.Contains(err.Error(), "belongs to node 1") {
		t.Errorf("wrong node: %v", err)
	}
}

func TestFeatureLevelsAreChecked(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Features = map[string]int16{"no.such": 1} }, "is not known"},
		{func(o *Options) { o.Features = map[string]int16{feature.Group: 9} }, "must be 0 to 1"},
		{func(o *Options) { o.Features = map[string]int16{feature.KRaftVersion: 1} }, "option of its own"},
		{func(o *Options) { o.MetadataVersion = 3 }, "is not one of"},
		{func(o *Options) {
			o.MetadataVersion = feature.MinMetadata
			o.Features = map[string]int16{feature.ELR: 1}
		}, "needs metadata.version"},
		{func(o *Options) { o.ClusterID = "" }, "no cluster id"},
	} {
		o := options()
		c.change(&o)
		f := vfs.NewMem()
		if _, err := Node(f, o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
		if f.Used() != 0 {
			t.Errorf("%q: something was written", c.want)
		}
	}
}

// Whatever operation a crash hits, the node either counts as formatted with a readable
// checkpoint, or can be formatted again.
func TestCrashWhileFormatting(t *testing.T) {
	for n := 0; ; n++ {
		f := vfs.NewMem()
		fault := vfs.NewFault(f)
		fault.Script(vfs.FailFrom(n, errors.New("cut")))
		_, err := Node(fault, options())
		after := f.Crash(rand.New(rand.NewPCG(uint64(n), 2)))
		if _, merr := checkpoint.ReadMeta(after, "/a"); merr == nil {
			if len(bootstrapOf(t, after, "/a")) != 6 {
				t.Fatalf("operation %d: formatted without its records", n)
			}
		} else {
			o := options()
			o.SkipFormatted = true
			if _, err := Node(after, o); err != nil {
				t.Fatalf("operation %d: formatting again: %v", n, err)
			}
		}
		if err == nil {
			if _, merr := checkpoint.ReadMeta(after, "/a"); merr != nil {
				t.Fatalf("format was reported done and is not durable: %v", merr)
			}
			return
		}
	}
}
