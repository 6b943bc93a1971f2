package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/meta/metarec"
	"runnel/internal/store/commitlog"
)

const dir = "data/__cluster_metadata-0"

func dirID(n byte) ids.UUID { return ids.UUID{0: 9, 15: n} }

// heard is a Listener that keeps what it was told.
type heard struct {
	mu       sync.Mutex
	values   [][]byte
	offsets  []int64 // last offset of each batch
	snapshot []SnapshotID
	leading  []int32
	end      int64
	not      []int32
}

func (h *heard) Committed(records [][]byte, last int64, epoch int32, ts int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values = append(h.values, records...)
	h.offsets = append(h.offsets, last)
}

func (h *heard) Snapshot(values iter.Seq2[[]byte, error], id SnapshotID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values = nil
	for v, err := range values {
		if err != nil {
			panic(err)
		}
		h.values = append(h.values, v)
	}
	h.snapshot = append(h.snapshot, id)
}

func (h *heard) Leading(epoch int32, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leading, h.end = append(h.leading, epoch), end
}

func (h *heard) NotLeading(epoch, leader int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.not = append(h.not, leader)
}

func (h *heard) texts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, v := range h.values {
		out = append(out, string(v))
	}
	return out
}

// node is one replica under test.
type node struct {
	*Quorum
	heard *heard
	log   *commitlog.Log
	fatal error
}

func metadataConfig() *config.Log {
	c := *config.DefaultLog()
	c.RetentionMs, c.RetentionBytes = -1, -1
	return &c
}

func open(t testing.TB, f vfs.FS, change func(*Options)) *node {
	t.Helper()
	log, _, err := commitlog.Open(commitlog.Options{
		FS: f, Dir: dir, TP: ids.TopicPartition{Topic: ids.MetadataTopic}, TopicID: ids.MetadataTopicID,
		Config: metadataConfig(), Now: time.Now, Random: rand.Uint64, MetadataLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{heard: &heard{}, log: log}
	voters, _ := ParseVoters("1@one:9093", "CONTROLLER")
	opt := Options{
		FS: f, Dir: dir, ClusterID: "cluster", NodeID: 1, DirectoryID: dirID(1), Controller: true, Voters: voters,
		Endpoints: []Endpoint{{Name: "CONTROLLER", Host: "one", Port: 9093}}, Log: log, Now: time.Now, Random: rand.Uint64, State: n.heard,
		Fatal: func(err error) { n.fatal = err },
	}
	if change != nil {
		change(&opt)
	}
	if n.Quorum, err = Open(opt); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) stop(t testing.TB) {
	n.Close()
	if err := n.log.Close(); err != nil {
		t.Error(err)
	}
}

func (n *node) append(t testing.TB, values ...string) error {
	t.Helper()
	var records [][]byte
	for _, v := range values {
		records = append(records, []byte(v))
	}
	_, epoch := n.Leader()
	done := make(chan error, 1)
	if _, err := n.Append(epoch, records, func(err error) { done <- err }); err != nil {
		return err
	}
	return <-done
}

func newFS(t testing.TB) *vfs.Mem {
	m := vfs.NewMem()
	if err := m.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{".", "data", dir} {
		if err := m.SyncDir(d); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func batches(t testing.TB, log *commitlog.Log) (out []record.Batch) {
	t.Helper()
	o := log.Offsets()
	read, err := log.Read(o.LogStart, o.End, 1<<24, true)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Region.Done()
	buf, err := read.Region.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for len(buf) > 0 {
		b, rest, err := record.Next(buf)
		if err != nil {
			t.Fatal(err)
		}
		out, buf = append(out, b), rest
	}
	return out
}

func TestLoneVoterElectsItselfCommitsAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFS(t)
		n := open(t, f, nil)
		n.Start()
		synctest.Wait()
		if id, epoch := n.Leader(); id != 1 || epoch != 1 {
			t.Fatalf("leader %d of epoch %d, want 1 of 1", id, epoch)
		}
		if !slices.Equal(n.heard.leading, []int32{1}) || n.heard.end != 1 {
			t.Fatalf("told leading %v from offset %d", n.heard.leading, n.heard.end)
		}
		first := batches(t, n.log)[0]
		controls, err := controlsOf(first)
		if err != nil || len(controls) != 1 || first.LeaderEpoch() != 1 {
			t.Fatalf("first batch %v of epoch %d: %v", controls, first.LeaderEpoch(), err)
		}
		lc := controls[0].(*metarec.LeaderChange)
		if lc.LeaderID != 1 || len(lc.Voters) != 1 || len(lc.GrantingVoters) != 1 {
			t.Fatalf("leader change %+v", lc)
		}
		if err := n.append(t, "a", "b"); err != nil {
			t.Fatal(err)
		}
		if got := n.heard.texts(); !slices.Equal(got, []string{"a", "b"}) {
			t.Fatalf("done before the listener was told: %q", got)
		}
		if v := n.View(); v.HighWatermark != 3 || v.Role != Leader {
			t.Fatalf("view %+v", v)
		}
		// Alone and idle: an hour passes and nothing is written or appended.
		end := n.log.Offsets().End
		ops := 0
		f.OnOp(func(vfs.Op) { ops++ })
		time.Sleep(time.Hour)
		if ops != 0 || n.log.Offsets().End != end {
			t.Fatalf("an idle lone voter made %d file operations", ops)
		}
		f.OnOp(nil)
		n.stop(t)
		if err := n.append(t, "late"); !errors.Is(err, kerr.NotLeaderForPartition) {
			t.Fatalf("append after close: %v", err)
		}
		n = open(t, f, nil)
		n.Start()
		synctest.Wait()
		if id, epoch := n.Leader(); id != 1 || epoch != 2 {
			t.Fatalf("after restart leader %d of epoch %d, want 1 of 2", id, epoch)
		}
		if got := n.heard.texts(); !slices.Equal(got, []string{"a", "b"}) {
			t.Fatalf("after restart: %q", got)
		}
		if _, err := n.Append(1, [][]byte{[]byte("x")}, nil); !errors.Is(err, kerr.NotLeaderForPartition) {
			t.Fatalf("append in an old epoch: %v", err)
		}
		if _, err := n.Append(3, [][]byte{[]byte("x")}, nil); !errors.Is(err, kerr.InvalidRequest) {
			t.Fatalf("append in a future epoch: %v", err)
		}
		if _, err := n.Append(2, [][]byte{make([]byte, 9<<20)}, nil); !errors.Is(err, kerr.RecordListTooLarge) {
			t.Fatalf("append of 9 MiB: %v", err)
		}
		n.stop(t)
	})
}

func TestAppendsShareAnFsyncAndNothingIsCommittedBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newFS(t)
		f := vfs.NewFault(mem)
		n := open(t, f, nil)
		n.Start()
		synctest.Wait()
		syncs := 0
		f.Script(func(_ int, op vfs.Op) vfs.Verdict {
			if op.Kind != vfs.OpSync || path.Ext(op.Name) != ".log" {
				return vfs.Verdict{}
			}
			syncs++
			return vfs.Verdict{Delay: time.Second}
		})
		var mu sync.Mutex
		var order []int
		_, epoch := n.Leader()
		add := func(i int) {
			if _, err := n.Append(epoch, [][]byte{fmt.Append(nil, i)}, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("append %d: %v", i, err)
				}
				order = append(order, i)
			}); err != nil {
				t.Error(err)
			}
		}
		add(0)
		time.Sleep(100 * time.Millisecond)
		for i := 1; i < 100; i++ {
			add(i)
		}
		time.Sleep(800 * time.Millisecond)
		synctest.Wait()
		mu.Lock()
		early := len(order)
		mu.Unlock()
		if early != 0 || n.View().HighWatermark != 1 {
			t.Fatalf("%d appends committed before the fsync ended", early)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if syncs != 2 || len(order) != 100 || !slices.IsSorted(order) {
			t.Errorf("%d fsyncs for 100 appends, done in order %v", syncs, order)
		}
		go n.stop(t)
	})
}

func TestAcknowledgedSurvivesPowerLoss(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			f := newFS(t)
			n := open(t, f, nil)
			n.Start()
			var acked []string
			for i := range rnd.IntN(20) {
				v := fmt.Sprint(i)
				if i > 0 && rnd.IntN(3) > 0 {
					synctest.Wait()
				}
				if n.append(t, v) == nil { // it may not lead yet
					acked = append(acked, v)
				}
			}
			after := f.Crash(rnd)
			n.stop(t)
			n = open(t, after, nil)
			n.Start()
			synctest.Wait()
			if got := n.heard.texts(); len(got) < len(acked) || !slices.Equal(got[:len(acked)], acked) {
				t.Fatalf("seed %d: acknowledged %q, found %q", seed, acked, got)
			}
			if _, epoch := n.Leader(); epoch < 1 {
				t.Fatalf("epoch %d", epoch)
			}
			n.stop(t)
		})
	}
}

func TestFailedFsyncEndsTheQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfs.NewFault(newFS(t))
		n := open(t, f, nil)
		n.Start()
		synctest.Wait()
		f.Script(vfs.FailWhen(func(op vfs.Op) bool { return op.Kind == vfs.OpSync }, errors.New("disk is gone")))
		if err := n.append(t, "x"); err == nil {
			t.Fatal("committed although fsync failed")
		}
		synctest.Wait()
		if n.fatal == nil {
			t.Fatal("not reported as fatal")
		}
		if id, _ := n.Leader(); id != -1 {
			t.Fatalf("still says that %d leads", id)
		}
		n.Close()
	})
}

// A full disk is a refusal: the lone voter resigns, and leads a later epoch once there is room.
func TestFullDiskIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFS(t)
		n := open(t, f, nil)
		n.Start()
		synctest.Wait()
		if err := n.append(t, "a"); err != nil {
			t.Fatal(err)
		}
		f.SetCapacity(f.Used() + 5000) // quorum-state still fits
		if err := n.append(t, string(make([]byte, 20000))); !errors.Is(err, kerr.NotLeaderForPartition) {
			t.Fatalf("append to a full disk: %v", err)
		}
		f.SetCapacity(1 << 30)
		time.Sleep(5 * time.Second)
		if err := n.append(t, "b"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n.fatal != nil || len(n.heard.leading) != 2 || n.heard.leading[1] <= 1 || len(n.heard.not) == 0 {
			t.Fatalf("fatal %v, leading %v, not leading %v", n.fatal, n.heard.leading, n.heard.not)
		}
		n.stop(t)
		n = open(t, f, nil)
		n.Start()
		synctest.Wait()
		if got := n.heard.texts(); !slices.Equal(got, []string{"a", "b"}) {
			t.Fatalf("after restart %q", got)
		}
		n.stop(t)
	})
}

func copyGolden(t testing.TB, f vfs.FS, from string, skip func(string) bool) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if skip != nil && skip(e.Name()) {
			continue
		}
		b, err := os.ReadFile(path.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		h, err := f.OpenFile(path.Join(dir, e.Name()), vfs.ReadWrite|vfs.Create)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		h.Sync()
		h.Close()
	}
	f.SyncDir(dir)
}

func TestTakesOverDirectoriesOfApacheKafka(t *testing.T) {
	isSnapshot := func(name string) bool {
		return path.Ext(name) == ".checkpoint" && name[:31] != "00000000000000000000-0000000000"
	}
	for _, c := range []struct {
		from     string
		skip     func(string) bool
		epoch    int32
		snapshot int64
		last     int64
	}{
		{"testdata/static", nil, 3, 313, 380},
		{"testdata/static", isSnapshot, 3, -1, 380},
		{"testdata/killed", nil, 2, 168, 0},
		{"testdata/killed", isSnapshot, 2, -1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFS(t)
			copyGolden(t, f, c.from, c.skip)
			var want [][]byte
			n := open(t, f, func(o *Options) { o.Voters, _ = ParseVoters("1@localhost:19093", "CONTROLLER") })
			last := n.log.Offsets().End - 1
			if c.last > 0 && last != c.last {
				t.Fatalf("%s ends at %d, want %d", c.from, last, c.last)
			}
			for _, b := range batches(t, n.log) {
				if b.IsControl() || b.LastOffset() < c.snapshot {
					continue
				}
				v, err := valuesOf(b)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, v...)
			}
			n.Start()
			synctest.Wait()
			if id, epoch := n.Leader(); id != 1 || epoch != c.epoch {
				t.Fatalf("%s: leader %d of epoch %d", c.from, id, epoch)
			}
			got := n.heard.values
			if c.snapshot >= 0 {
				if len(n.heard.snapshot) != 1 || n.heard.snapshot[0].EndOffset != c.snapshot {
					t.Fatalf("%s: loaded snapshots %v, want one at %d", c.from, n.heard.snapshot, c.snapshot)
				}
				got = got[len(got)-len(want):]
			}
			if len(want) < 10 || !slices.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("%s: %d records delivered, want %d", c.from, len(got), len(want))
			}
			for i, v := range n.heard.values {
				if _, _, err := metarec.Decode(v); err != nil {
					t.Fatalf("record %d: %v", i, err)
				}
			}
			if n.heard.end != last+2 {
				t.Fatalf("leading from offset %d, want %d", n.heard.end, last+2)
			}
			b, err := vfs.ReadFile(f, path.Join(dir, stateFile))
			if want := fmt.Sprintf(`{"clusterId":"","leaderId":1,"leaderEpoch":%d,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`, c.epoch); err != nil || string(b) != want {
				t.Fatalf("quorum-state %s: %v", b, err)
			}
			n.stop(t)
		})
	}
}

func TestDynamicVotersOfCheckpointGoIntoTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFS(t)
		copyGolden(t, f, "testdata/dynamic", nil)
		head, err := snapshotHead(f, path.Join(dir, SnapshotID{}.fileName()))
		if err != nil {
			t.Fatal(err)
		}
		var v Voter
		for _, c := range head {
			if k, ok := c.(*metarec.KRaftVoters); ok {
				v = k.Voters[0]
			}
		}
		own := func(o *Options) {
			o.Voters, o.NodeID, o.DirectoryID, o.Endpoints, o.Listener = nil, v.VoterID, v.VoterDirectoryID, v.Endpoints, v.Endpoints[0].Name
		}
		for restart := range 2 {
			n := open(t, f, own)
			n.Start()
			synctest.Wait()
			all := batches(t, n.log)
			controls, err := controlsOf(all[len(all)-1])
			if err != nil {
				t.Fatal(err)
			}
			if want := 3 - 2*restart; len(controls) != want {
				t.Fatalf("start %d: %d control records open the epoch, want %d", restart, len(controls), want)
			}
			if restart == 0 {
				if k := controls[2].(*metarec.KRaftVoters); len(k.Voters) != 1 || k.Voters[0].VoterDirectoryID != v.VoterDirectoryID {
					t.Fatalf("voters %+v", k)
				}
			}
			if n.View().KRaftVersion != 1 {
				t.Fatal("kraft.version is lost")
			}
			boot, err := ReadBootstrap(f, "data", dir)
			if err != nil || len(boot) == 0 {
				t.Fatalf("bootstrap records: %d, %v", len(boot), err)
			}
			n.stop(t)
		}
		b, _ := vfs.ReadFile(f, path.Join(dir, stateFile))
		if s, err := parseState(b); err != nil || s.epoch != 2 || s.leader != v.VoterID || !bytes.Contains(b, []byte(`"data_version":1`)) {
			t.Fatalf("quorum-state %s: %v", b, err)
		}
		// Another disk under the same id is an observer: it does not elect itself.
		n := open(t, f, func(o *Options) { own(o); o.DirectoryID = dirID(77) })
		n.Start()
		time.Sleep(time.Minute)
		if n.View().Role == Leader {
			t.Fatal("a replica that is no voter leads")
		}
		n.stop(t)
	})
}

func values(vs ...string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, v := range vs {
			if !yield([]byte(v)) {
				return
			}
		}
	}
}

func TestSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFS(t)
		n := open(t, f, func(o *Options) { o.RetentionBytes = 1 })
		n.Start()
		synctest.Wait()
		n.append(t, "a", "b") // offsets 1, 2
		n.append(t, "c")      // 3
		for _, id := range []SnapshotID{{2, 1}, {9, 1}, {3, 2}, {0, 0}} {
			if err := n.WriteSnapshot(id, 5, values("s")); !errors.Is(err, kerr.InvalidRequest) {
				t.Fatalf("snapshot %v: %v", id, err)
			}
		}
		if err := n.WriteSnapshot(SnapshotID{3, 1}, 5, values("ab")); err != nil {
			t.Fatal(err)
		}
		if err := n.WriteSnapshot(SnapshotID{3, 1}, 5, values("ab")); !errors.Is(err, kerr.InvalidRequest) {
			t.Fatalf("the same again: %v", err)
		}
		n.append(t, "d") // 4
		if err := n.WriteSnapshot(SnapshotID{5, 1}, 6, values("abcd")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Stat(path.Join(dir, SnapshotID{3, 1}.fileName())); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the old snapshot is kept beyond metadata.max.retention.bytes: %v", err)
		}
		n.append(t, "e")
		n.stop(t)
		part := path.Join(dir, "00000000000000000005-0000000001-00.checkpoint.part")
		f.OpenFile(part, vfs.ReadWrite|vfs.Create)
		n = open(t, f, nil)
		n.Start()
		synctest.Wait()
		if got := n.heard.texts(); !slices.Equal(got, []string{"abcd", "e"}) {
			t.Fatalf("after restart %q", got)
		}
		if _, err := f.Stat(part); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal("an unfinished snapshot is left")
		}
		n.stop(t)
	})
}

// net connects nodes in memory.
type net struct {
	mu    sync.Mutex
	nodes map[int32]*node
	cut   map[int32]bool
}

func (w *net) sender(from int32) Sender {
	return func(ctx context.Context, to Destination, rq kmsg.Request) (kmsg.Response, error) {
		w.mu.Lock()
		n, cut := w.nodes[to.ID], w.cut[from] || w.cut[to.ID]
		w.mu.Unlock()
		if n == nil || cut {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		// Everything crosses as bytes, so that versions drop what they drop.
		raw := kmsg.RequestForKey(rq.Key())
		raw.SetVersion(rq.GetVersion())
		if err := raw.ReadFrom(rq.AppendTo(nil)); err != nil {
			panic(err)
		}
		time.Sleep(time.Millisecond)
		resp, err := n.Handle(ctx, raw)
		if err != nil {
			return nil, err
		}
		back := raw.ResponseKind()
		back.SetVersion(raw.GetVersion())
		if err := back.ReadFrom(resp.AppendTo(nil)); err != nil {
			panic(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.cut[from] || w.cut[to.ID] {
			return nil, errors.New("connection lost")
		}
		return back, nil
	}
}

func (w *net) open(t testing.TB, id int32, f vfs.FS, change func(*Options)) *node {
	voters, err := ParseVoters("1@one:1, 2@two:2, 3@three:3", "CONTROLLER")
	if err != nil {
		t.Fatal(err)
	}
	n := open(t, f, func(o *Options) {
		o.NodeID, o.DirectoryID, o.Voters, o.Send = id, dirID(byte(id)), voters, w.sender(id)
		o.Endpoints = []Endpoint{{Name: "CONTROLLER", Host: "own", Port: uint16(id)}}
		if change != nil {
			change(o)
		}
	})
	w.mu.Lock()
	w.nodes[id] = n
	w.mu.Unlock()
	n.Start()
	return n
}

func (w *net) leader(t testing.TB, among ...int32) *node {
	t.Helper()
	for range 2000 {
		for _, id := range among {
			if v := w.nodes[id].View(); v.Role == Leader && v.HighWatermark >= 0 {
				return w.nodes[id]
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, id := range among {
		t.Logf("%d: %+v", id, w.nodes[id].View())
	}
	t.Fatal("no leader")
	return nil
}

func TestThreeVoters(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			w := &net{nodes: map[int32]*node{}, cut: map[int32]bool{}}
			fss := map[int32]*vfs.Mem{}
			var ids []int32
			for id := int32(1); id <= 3; id++ {
				fss[id] = newFS(t)
				ids = append(ids, id)
				w.open(t, id, fss[id], func(o *Options) { o.Random = rand.New(rand.NewPCG(seed, uint64(id))).Uint64 })
			}
			var acked []string
			add := func(n *node, v string) {
				t.Helper()
				if err := n.append(t, v); err != nil {
					t.Fatal(err)
				}
				acked = append(acked, v)
			}
			first := w.leader(t, ids...)
			for i := range 5 {
				add(first, fmt.Sprint("a", i))
			}
			// The leader is cut off with an append that cannot commit.
			w.mu.Lock()
			w.cut[first.self.ID] = true
			w.mu.Unlock()
			_, epoch := first.Leader()
			lost := make(chan error, 1)
			first.Append(epoch, [][]byte{[]byte("lost")}, func(err error) { lost <- err })
			rest := slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return id == first.self.ID })
			second := w.leader(t, rest...)
			add(second, "b")
			if err := <-lost; err == nil {
				t.Fatal("an append without a majority was acknowledged")
			}
			w.mu.Lock()
			w.cut = map[int32]bool{}
			w.mu.Unlock()
			time.Sleep(5 * time.Second)
			if _, e := first.Leader(); e != second.View().Epoch || second.View().Role != Leader {
				t.Fatalf("the healed node disturbed: epoch %d, leader %+v", e, second.View())
			}
			// A follower restarts after power loss and catches up.
			down := w.nodes[rest[0]]
			if down == second {
				down = w.nodes[rest[1]]
			}
			w.mu.Lock()
			delete(w.nodes, down.self.ID)
			w.mu.Unlock()
			crashed := fss[down.self.ID].Crash(rnd)
			down.stop(t)
			add(second, "c")
			back := w.open(t, down.self.ID, crashed, nil)
			time.Sleep(5 * time.Second)
			add(w.leader(t, ids...), "d")
			time.Sleep(2 * time.Second)
			for _, n := range []*node{first, second, back} {
				if got := n.heard.texts(); !slices.Equal(got, acked) {
					t.Errorf("seed %d: node %d has %q, want %q", seed, n.self.ID, got, acked)
				}
				if n.fatal != nil {
					t.Errorf("node %d: %v", n.self.ID, n.fatal)
				}
				w.mu.Lock()
				delete(w.nodes, n.self.ID)
				w.mu.Unlock()
				n.stop(t)
			}
		})
	}
}

func TestNewReplicaLoadsTheSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &net{nodes: map[int32]*node{}, cut: map[int32]bool{}}
		w.open(t, 1, newFS(t), nil)
		w.open(t, 2, newFS(t), nil)
		lead := w.leader(t, 1, 2)
		for _, v := range []string{"a", "b"} {
			if err := lead.append(t, v); err != nil {
				t.Fatal(err)
			}
		}
		v := lead.View()
		big := string(bytes.Repeat([]byte("x"), 3000))
		if err := lead.WriteSnapshot(SnapshotID{v.HighWatermark, v.Epoch}, 1, values("ab", big)); err != nil {
			t.Fatal(err)
		}
		if err := lead.append(t, "c"); err != nil {
			t.Fatal(err)
		}
		// Node 4 observes; it is no voter and has nothing.
		late := w.open(t, 4, newFS(t), func(o *Options) { o.SnapshotMaxBytes = 1000; o.Controller = false })
		time.Sleep(3 * time.Second)
		if got := late.heard.texts(); !slices.Equal(got, []string{"ab", big, "c"}) {
			t.Fatalf("observer has %d values: %+v", len(got), late.View())
		}
		rq := kmsg.NewPtrDescribeQuorumRequest()
		rq.Version = 2
		rq.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: ids.MetadataTopic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
		resp, err := lead.Handle(t.Context(), rq)
		if err != nil {
			t.Fatal(err)
		}
		p := resp.(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0]
		if p.LeaderID != lead.self.ID || len(p.CurrentVoters) != 3 || len(p.Observers) != 1 || p.Observers[0].ReplicaID != 4 || p.HighWatermark != lead.View().HighWatermark {
			t.Fatalf("described as %+v", p)
		}
		for _, n := range w.nodes {
			n.stop(t)
		}
	})
}

func TestVoteRules(t *testing.T) {
	now := time.Unix(0, 0)
	set, _ := ParseVoters("1@a:1,2@b:2,3@c:3", "C")
	two := ReplicaKey{2, dirID(2)}
	own := logEnd{3, 10}
	base := func(change func(*machine)) *machine {
		m := &machine{self: ReplicaKey{1, dirID(1)}, timing: Timing{Election: time.Second, Fetch: 2 * time.Second}, random: func() uint64 { return 0 }, voters: set}
		m.begin(stored{-1, 5, nobody}, 3, now)
		change(m)
		m.dirty = false
		return m
	}
	for name, c := range map[string]struct {
		m       *machine
		log     logEnd
		pre     bool
		granted bool
	}{
		"unattached grants":              {base(func(m *machine) {}), own, false, true},
		"shorter log":                    {base(func(m *machine) {}), logEnd{3, 9}, false, false},
		"older epoch, longer log":        {base(func(m *machine) {}), logEnd{2, 99}, false, false},
		"voted for it before":            {base(func(m *machine) { m.voted = two }), logEnd{0, 0}, false, true},
		"voted for another":              {base(func(m *machine) { m.voted = ReplicaKey{ID: 3} }), own, false, false},
		"stored vote without directory":  {base(func(m *machine) { m.voted = ReplicaKey{ID: 2} }), own, false, true},
		"leader known":                   {base(func(m *machine) { m.leader = 3 }), own, false, false},
		"leader known, pre-vote":         {base(func(m *machine) { m.leader = 3 }), own, true, true},
		"follower":                       {base(func(m *machine) { m.toFollower(5, 3, set[2].Endpoints, now) }), own, false, false},
		"follower, pre-vote":             {base(func(m *machine) { m.toFollower(5, 3, set[2].Endpoints, now) }), own, true, true},
		"follower has fetched, pre-vote": {base(func(m *machine) { m.toFollower(5, 3, set[2].Endpoints, now); m.fetchSucceeded(now) }), own, true, false},
		"candidate":                      {base(func(m *machine) { m.toCandidateOf(5, now) }), own, false, false},
		"candidate, pre-vote":            {base(func(m *machine) { m.toCandidateOf(5, now) }), own, true, true},
		"prospective":                    {base(func(m *machine) { m.toProspective(now) }), own, false, true},
		"leader, pre-vote":               {base(func(m *machine) { m.toCandidateOf(5, now); m.voteAnswer(2, true, now) }), own, true, false},
	} {
		got := c.m.vote(voteRequest{5, two, c.log, c.pre}, own, now)
		if got != c.granted {
			t.Errorf("%s: granted %v, want %v", name, got, c.granted)
		}
		if c.granted && !c.pre && c.m.voted.ID != 2 {
			t.Errorf("%s: the vote is not kept", name)
		}
		if c.pre && c.m.dirty {
			t.Errorf("%s: a pre-vote changed the stored state", name)
		}
	}
}

func TestHighWatermarkNeedsAMajorityOfTheEpoch(t *testing.T) {
	now := time.Unix(0, 0)
	set, _ := ParseVoters("1@a:1,2@b:2,3@c:3", "C")
	m := &machine{self: ReplicaKey{1, dirID(1)}, timing: Timing{Election: time.Second, Fetch: 2 * time.Second}, random: func() uint64 { return 0 }, voters: set}
	m.begin(stored{-1, 5, nobody}, 3, now)
	m.toCandidateOf(6, now)
	m.voteAnswer(2, true, now)
	m.start = 10
	m.replicaFetched(ReplicaKey{2, dirID(2)}, 10, 11, now)
	if m.advance(11) {
		t.Fatal("advanced on records of an earlier epoch")
	}
	m.replicaFetched(ReplicaKey{4, dirID(4)}, 11, 11, now)
	if m.advance(11) {
		t.Fatal("an observer counted")
	}
	m.replicaFetched(ReplicaKey{2, dirID(2)}, 11, 11, now)
	if m.advance(10) {
		t.Fatal("the leader counted what is not on its disk")
	}
	if !m.advance(11) || m.hw != 11 {
		t.Fatalf("high watermark %d, want 11", m.hw)
	}
	if m.deadline != now.Add(3*time.Second) {
		t.Fatalf("check-quorum timer at %v", m.deadline)
	}
	m.tick(now.Add(3 * time.Second))
	if m.role != Resigned || m.epoch != 6 {
		t.Fatalf("a leader without its majority is %v", m.role)
	}
	m.tick(m.deadline)
	if m.role != Unattached || m.epoch != 7 {
		t.Fatalf("left Resigned as %v of epoch %d", m.role, m.epoch)
	}
}

func TestSuccessorBackoff(t *testing.T) {
	keys := func(ids ...int32) (out []ReplicaKey) {
		for _, id := range ids {
			out = append(out, ReplicaKey{ID: id})
		}
		return out
	}
	for _, c := range []struct {
		list []ReplicaKey
		want time.Duration
	}{
		{nil, 0}, {keys(1, 2), 0}, {keys(2, 1), 500 * time.Millisecond}, {keys(2, 3), time.Second}, {keys(2, 3, 1), 500 * time.Millisecond}, {keys(2, 1, 3), 250 * time.Millisecond},
	} {
		if got := successorBackoff(ReplicaKey{ID: 1}, c.list, time.Second); got != c.want {
			t.Errorf("%v: %v, want %v", c.list, got, c.want)
		}
	}
}

func TestRequestsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, newFS(t), nil)
		n.Start()
		synctest.Wait()
		ask := func(rq kmsg.Request) kmsg.Response {
			resp, err := n.Handle(t.Context(), rq)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		fetch := func(change func(*kmsg.FetchRequest, *kmsg.FetchRequestTopicPartition)) *kmsg.FetchResponse {
			rq := kmsg.NewPtrFetchRequest()
			rq.Version, rq.MaxBytes, rq.ReplicaState.ID = 18, 1<<20, 7
			p := kmsg.NewFetchRequestTopicPartition()
			p.CurrentLeaderEpoch, p.LastFetchedEpoch = 1, 0
			change(rq, &p)
			if len(rq.Topics) == 0 {
				rq.Topics = []kmsg.FetchRequestTopic{{TopicID: ids.MetadataTopicID, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
			}
			return ask(rq).(*kmsg.FetchResponse)
		}
		code := func(r *kmsg.FetchResponse) int16 {
			if len(r.Topics) == 0 {
				return r.ErrorCode
			}
			return r.Topics[0].Partitions[0].ErrorCode
		}
		type fp = kmsg.FetchRequestTopicPartition
		for name, c := range map[string]struct {
			change func(*kmsg.FetchRequest, *fp)
			want   int16
		}{
			"ok":              {func(r *kmsg.FetchRequest, p *fp) {}, 0},
			"other cluster":   {func(r *kmsg.FetchRequest, p *fp) { r.ClusterID = kmsg.StringPtr("x") }, 104},
			"old version":     {func(r *kmsg.FetchRequest, p *fp) { r.Version = 12 }, 42},
			"older epoch":     {func(r *kmsg.FetchRequest, p *fp) { p.CurrentLeaderEpoch = 0 }, 74},
			"newer epoch":     {func(r *kmsg.FetchRequest, p *fp) { p.CurrentLeaderEpoch = 2 }, 75},
			"negative":        {func(r *kmsg.FetchRequest, p *fp) { p.FetchOffset = -1 }, 42},
			"epoch ahead":     {func(r *kmsg.FetchRequest, p *fp) { p.LastFetchedEpoch = 2 }, 42},
			"leader's own id": {func(r *kmsg.FetchRequest, p *fp) { r.ReplicaState.ID = 1 }, -1},
		} {
			if got := code(fetch(c.change)); got != c.want {
				t.Errorf("%s: error %d, want %d", name, got, c.want)
			}
		}
		r := fetch(func(r *kmsg.FetchRequest, p *fp) { p.FetchOffset, p.LastFetchedEpoch = 50, 1 })
		if p := r.Topics[0].Partitions[0]; p.DivergingEpoch.Epoch != 1 || p.DivergingEpoch.EndOffset != 1 {
			t.Errorf("beyond the end: %+v", p)
		}
		start := time.Now()
		r = fetch(func(r *kmsg.FetchRequest, p *fp) {
			r.MaxWaitMillis, p.FetchOffset, p.LastFetchedEpoch, p.HighWatermark = 500, 1, 1, 1
		})
		if waited := time.Since(start); waited != 500*time.Millisecond || r.Topics[0].Partitions[0].HighWatermark != 1 || len(r.Brokers) != 1 {
			t.Errorf("a fetch at the end waited %v: %+v", waited, r)
		}
		vote := kmsg.NewPtrVoteRequest()
		vote.Version = 2
		p := kmsg.NewVoteRequestTopicPartition()
		p.CandidateID, p.CandidateEpoch, p.LastOffsetEpoch, p.LastOffset = 2, 1, 0, 0
		vote.Topics = []kmsg.VoteRequestTopic{{Topic: ids.MetadataTopic, Partitions: []kmsg.VoteRequestTopicPartition{p}}}
		if got := ask(vote).(*kmsg.VoteResponse).Topics[0].Partitions[0]; got.VoteGranted || got.LeaderID != 1 || got.LeaderEpoch != 1 {
			t.Errorf("vote at the leader: %+v", got)
		}
		n.stop(t)
	})
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte(`{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`))
	f.Add([]byte(`{"leaderId":-1,"leaderEpoch":0,"votedId":3,"votedDirectoryId":"7wN14rAGsJtM4oP66-bQPA","data_version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseState(b)
		if err == nil && (s.epoch < 0 || s.leader < -1 || s.voted.ID < -1) {
			t.Fatalf("%q gives %+v", b, s)
		}
	})
}

func FuzzReadSnapshot(f *testing.F) {
	for _, name := range []string{"testdata/dynamic/00000000000000000000-0000000000.checkpoint", "testdata/static/00000000000000000117-0000000001.checkpoint"} {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-5])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := vfs.NewMem()
		h, _ := m.OpenFile("s", vfs.ReadWrite|vfs.Create)
		h.WriteAt(b, 0)
		n := 0
		for _, err := range ReadSnapshot(m, "s") {
			if err != nil {
				return
			}
			n++
		}
		if n > len(b) {
			t.Fatalf("%d records in %d bytes", n, len(b))
		}
	})
}
