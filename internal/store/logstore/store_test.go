package logstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/commitlog"
)

var (
	ctx   = context.Background()
	dirA  = ids.UUID{1, 0xa}
	dirB  = ids.UUID{1, 0xb}
	topic = ids.UUID{7}
	tp0   = ids.TopicPartition{Topic: "t"}
)

func format(t testing.TB, fs vfs.FS, dirs ...string) {
	t.Helper()
	for i, d := range dirs {
		if err := Format(fs, d, checkpoint.MetaProperties{Version: 1, ClusterID: "c", NodeID: 1, DirectoryID: []ids.UUID{dirA, dirB}[i]}); err != nil {
			t.Fatal(err)
		}
	}
}

func storeOptions(fs vfs.FS, dirs ...string) Options {
	cfg := config.DefaultLog()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 1000, 100
	n := uint64(0)
	return Options{FS: fs, Dirs: dirs, NodeID: 1, Config: func(string) *config.Log { return cfg }, Now: time.Now,
		Random: func() uint64 { n++; return n * 0x9e3779b97f4a7c15 }, ProducerExpiryMs: 1 << 40, FileDeleteDelay: time.Minute}
}

func mustOpen(t testing.TB, o Options) *Store {
	t.Helper()
	s, _, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t testing.TB, s *Store, tp ids.TopicPartition, id, dir ids.UUID) *commitlog.Log {
	t.Helper()
	ls, err := s.Create([]New{{tp, id, dir}})
	if err != nil {
		t.Fatal(err)
	}
	return ls[0]
}

func fill(t testing.TB, l *commitlog.Log, n int) {
	t.Helper()
	for i := range n {
		b := record.Builder{Timestamp: time.Now().UnixMilli()}
		b.Add(fmt.Appendf(nil, "k%d", i%5), fmt.Appendf(nil, "value %d", i))
		a, err := l.Append(record.Trust(b.Build()), 0, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		l.AdvanceHighWatermark(a.LastOffset + 1)
	}
}

func TestCleanAndUncleanStop(t *testing.T) {
	m := vfs.NewMem()
	format(t, m, "a", "b")
	m.SyncDir("")
	o := storeOptions(m, "a", "b")
	var recovering atomic.Int32
	o.Events.Recovering = func(string, int, int) { recovering.Add(1) }
	s := mustOpen(t, o)
	for p := range int32(6) {
		fill(t, create(t, s, ids.TopicPartition{Topic: "t", Partition: p}, topic, ids.Zero), 50)
	}
	if c := s.counts(); len(c) != 2 || c[s.dirs[0]] != 3 {
		t.Errorf("placement %v", c)
	}
	if _, _, err := Open(ctx, o); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second node on the same directories: %v", err)
	}
	if err := s.Close(33); err != nil {
		t.Fatal(err)
	}
	o.FS = m.Crash(nil) // everything a clean stop wrote is durable
	s2, r, err := Open(ctx, o)
	if err != nil || r.Logs != 6 || r.SegmentsScanned != 0 || s2.PreviousBrokerEpoch() != 33 {
		t.Fatalf("%+v, %v, epoch %d", r, err, s2.PreviousBrokerEpoch())
	}
	if n := recovering.Load(); n != 0 {
		t.Errorf("%d reports of recovery after a clean stop", n)
	}
	for p := range int32(6) {
		l := s2.Log(ids.TopicPartition{Topic: "t", Partition: p})
		if off := l.Offsets(); off.End != 50 || off.HighWatermark != 50 || l.TopicID() != topic {
			t.Errorf("partition %d: %+v", p, off)
		}
	}
	// The marker is gone durably as soon as the store is open.
	o.FS = o.FS.(*vfs.Mem).Crash(nil)
	s3, r, err := Open(ctx, o)
	if err != nil || len(r.Unclean) != 2 || s3.PreviousBrokerEpoch() != -1 {
		t.Fatalf("after a crash: %+v, %v", r, err)
	}
	if n := recovering.Load(); n != 6 {
		t.Errorf("%d reports of recovery after a crash, want 6", n)
	}
}

func TestRecreatedPartitionStartsFresh(t *testing.T) {
	m := vfs.NewMem()
	format(t, m, "a")
	o := storeOptions(m, "a")
	s := mustOpen(t, o)
	l := create(t, s, tp0, topic, ids.Zero)
	fill(t, l, 60)
	l.RaiseLogStart(40)
	l.Flush()
	for k := range markKinds {
		if k != cleanerPoint {
			s.checkpoint(s.dirs[0], k)
		}
	}
	if _, err := s.Create([]New{{tp0, ids.UUID{8}, ids.Zero}}); !errors.Is(err, kerr.InconsistentTopicID) {
		t.Fatalf("another topic id: %v", err)
	}
	if err := s.Delete(tp0); err != nil || s.Log(tp0) != nil {
		t.Fatal(err)
	}
	l = create(t, s, tp0, ids.UUID{8}, ids.Zero)
	fill(t, l, 30)
	s.Abandon() // killed before the next checkpoint
	s = mustOpen(t, o)
	l = s.Log(tp0)
	if off := l.Offsets(); off.LogStart != 0 || off.End != 30 || l.TopicID() != (ids.UUID{8}) {
		t.Fatalf("the old partition's checkpoints were used: %+v", off)
	}
	if len(s.mu.doomed) != 1 {
		t.Errorf("the deleted directory is not queued again: %v", s.mu.doomed)
	}
}

// Whoever still holds the log of a deleted partition gets an error, and takes nothing
// else down.
func TestReadersOfADeletedPartition(t *testing.T) {
	m := vfs.NewMem()
	format(t, m, "a")
	o := storeOptions(m, "a")
	s := mustOpen(t, o)
	l := create(t, s, tp0, topic, ids.Zero)
	fill(t, l, 60)
	region, err := l.Read(0, 60, 500, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(tp0); err != nil {
		t.Fatal(err)
	}
	m.RemoveAll(s.mu.doomed[0].path)
	if raw, err := region.Region.ReadAll(); err != nil || len(raw) != 500 {
		t.Errorf("a pinned region: %d bytes, %v", len(raw), err)
	}
	region.Region.Done()
	if _, err := l.Read(0, 60, 500, true); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if _, _, err := l.OffsetForTimestamp(0); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("lookup: %v", err)
	}
	if err := s.Dirs()[0].Err; err != nil || l.Failed() != nil {
		t.Errorf("the directory: %v, the log: %v", err, l.Failed())
	}
}

func TestDirectoriesMustAgree(t *testing.T) {
	for name, x := range map[string]struct {
		prepare func(m *vfs.Mem)
		want    string
	}{
		"not formatted": {func(m *vfs.Mem) {}, "format"},
		"other node": {func(m *vfs.Mem) {
			Format(m, "a", checkpoint.MetaProperties{ClusterID: "c", NodeID: 2, DirectoryID: dirA})
		}, "node.id=1"},
		"two clusters": {func(m *vfs.Mem) {
			Format(m, "a", checkpoint.MetaProperties{ClusterID: "c", NodeID: 1, DirectoryID: dirA})
			Format(m, "b", checkpoint.MetaProperties{ClusterID: "d", NodeID: 1, DirectoryID: dirB})
		}, "cluster"},
		"a copy": {func(m *vfs.Mem) {
			Format(m, "a", checkpoint.MetaProperties{ClusterID: "c", NodeID: 1, DirectoryID: dirA})
			Format(m, "b", checkpoint.MetaProperties{ClusterID: "c", NodeID: 1, DirectoryID: dirA})
		}, "copy"},
		"a new directory joins": {func(m *vfs.Mem) {
			Format(m, "a", checkpoint.MetaProperties{ClusterID: "c", NodeID: 1, DirectoryID: dirA})
		}, ""},
		"a stranger's directory": {func(m *vfs.Mem) {
			format(t, m, "a", "b")
			m.MkdirAll("b/photos")
		}, "photos"},
	} {
		m := vfs.NewMem()
		x.prepare(m)
		s, _, err := Open(ctx, storeOptions(m, "a", "b"))
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (s.Dirs()[1].ID.IsZero() || s.Dirs()[1].ID == dirA) {
			t.Errorf("%s: the new directory has id %s", name, s.Dirs()[1].ID)
		}
	}
}

func TestBrokenDirectoryGoesOffline(t *testing.T) {
	f := vfs.NewFault(vfs.NewMem())
	format(t, f, "a", "b")
	o := storeOptions(f, "a", "b")
	o.MetadataDir = "a"
	failed := make(chan string, 4)
	o.Events.DirFailed = func(dir string, _ error) { failed <- dir }
	s := mustOpen(t, o)
	good, bad := create(t, s, tp0, topic, dirA), create(t, s, ids.TopicPartition{Topic: "t", Partition: 1}, topic, dirB)
	f.Script(vfs.FailWhen(func(op vfs.Op) bool { return strings.HasPrefix(op.Name, "b/") && op.Kind.Changes() }, syscall.EIO))
	b := record.Builder{}
	b.Add(nil, []byte("x"))
	if _, err := bad.Append(record.Trust(b.Build()), 0, time.Now()); !errors.Is(err, kerr.KafkaStorageError) {
		t.Fatal(err)
	}
	if dir := <-failed; dir != "b" {
		t.Fatalf("%s failed", dir)
	}
	if s.Log(bad.TP()) != nil || s.Log(tp0) != good || s.Dirs()[1].Err == nil || s.Dirs()[0].Err != nil {
		t.Fatal("the wrong logs are offline")
	}
	if err := s.Writable("b"); !errors.Is(err, kerr.KafkaStorageError) {
		t.Fatal(err)
	}
	if _, err := s.Create([]New{{ids.TopicPartition{Topic: "u"}, topic, dirB}}); !errors.Is(err, kerr.KafkaStorageError) {
		t.Fatalf("create in a broken directory: %v", err)
	}
	if l := create(t, s, ids.TopicPartition{Topic: "u"}, topic, ids.Zero); !strings.HasPrefix(l.Dir(), "a/") {
		t.Fatalf("placed in %s", l.Dir())
	}
	fill(t, good, 3)
	if err := s.Close(1); err == nil {
		t.Error("closing with a broken directory gave no error")
	}
	f.Script()
	if clean, _, _ := checkpoint.ReadClean(f, "b"); clean {
		t.Error("the broken directory is marked as clean")
	}
	if clean, _, _ := checkpoint.ReadClean(f, "a"); !clean {
		t.Error("the good directory is not")
	}
}

func TestFullDirectoryRefusesAppends(t *testing.T) {
	f := vfs.NewFault(vfs.NewMem())
	format(t, f, "a")
	o := storeOptions(f, "a")
	now := time.Now()
	o.Now = func() time.Time { return now }
	o.MinFreeBytes = 1000
	var seen []bool
	o.Events.Full = func(_ string, full bool) { seen = append(seen, full) }
	s := mustOpen(t, o)
	for _, free := range []int64{5000, 999, 500, 1000} {
		f.SetSpace(&vfs.Space{Total: 10000, Free: free})
		now = now.Add(time.Second)
		err := s.Writable("a")
		if (err != nil) != (free < 1000) || err != nil && (!errors.Is(err, kerr.KafkaStorageError) || !strings.Contains(err.Error(), "runnel.log.dir.min.free.bytes")) {
			t.Errorf("%d bytes free: %v", free, err)
		}
	}
	if fmt.Sprint(seen) != "[true false]" {
		t.Errorf("events %v", seen)
	}
}

func TestDataWithoutIdentityIsSetAside(t *testing.T) {
	m := vfs.NewMem()
	format(t, m, "a")
	o := storeOptions(m, "a")
	s := mustOpen(t, o)
	fill(t, create(t, s, tp0, topic, ids.Zero), 5)
	s.Abandon()
	m.Remove("a/t-0/partition.metadata")
	s = mustOpen(t, o)
	if s.Log(tp0) != nil {
		t.Fatal("opened without a topic id")
	}
	l := create(t, s, tp0, topic, ids.Zero)
	if l.Offsets().End != 0 {
		t.Fatalf("%+v", l.Offsets())
	}
	strays := 0
	infos, _ := m.ReadDir("a")
	for _, i := range infos {
		if strings.HasSuffix(i.Name, "-stray") {
			strays++
		}
	}
	if strays != 1 {
		t.Fatalf("%d stray directories", strays)
	}
}

func TestMoveBetweenDirectories(t *testing.T) {
	m := vfs.NewMem()
	format(t, m, "a", "b")
	o := storeOptions(m, "a", "b")
	s := mustOpen(t, o)
	l := create(t, s, tp0, topic, dirA)
	fill(t, l, 80)
	l.RaiseLogStart(20)
	if err := s.MoveTo(tp0, dirB); err != nil {
		t.Fatal(err)
	}
	for done := false; !done; {
		var err error
		if done, err = s.CatchUp(tp0, 700); err != nil {
			t.Fatal(err)
		}
	}
	next, err := s.Promote(tp0)
	if err != nil {
		t.Fatal(err)
	}
	if d, _ := s.DirOf(tp0); d.ID != dirB || s.Log(tp0) != next || next.Dir() != "b/t-0" {
		t.Fatalf("in %s at %s", d.Path, next.Dir())
	}
	if off := next.Offsets(); off.End != 80 || off.LogStart != 20 || off.HighWatermark != 80 {
		t.Fatalf("%+v", off)
	}
	fill(t, next, 20)
	s.Abandon()
	s = mustOpen(t, o)
	if off := s.Log(tp0).Offsets(); off.End != 100 {
		t.Fatalf("reopened: %+v", off)
	}
}

// A log start may be anywhere inside a batch; the copy holds that batch whole.
func TestMoveALogThatStartsInsideABatch(t *testing.T) {
	for start := range int64(9) {
		m := vfs.NewMem()
		format(t, m, "a", "b")
		s := mustOpen(t, storeOptions(m, "a", "b"))
		l := create(t, s, tp0, topic, dirA)
		for range 2 {
			b := record.Builder{Timestamp: 1}
			for range 4 {
				b.Add(nil, []byte("v"))
			}
			if _, err := l.Append(record.Trust(b.Build()), 0, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		l.AdvanceHighWatermark(8)
		if start%2 == 0 { // raised before the future is made
			l.RaiseLogStart(start)
		}
		if err := s.MoveTo(tp0, dirB); err != nil {
			t.Fatal(err)
		}
		if start%2 == 1 { // while it is filled
			s.CatchUp(tp0, 1)
			l.RaiseLogStart(start)
		}
		done, turns := false, 0
		for ; !done && turns < 10; turns++ {
			var err error
			if done, err = s.CatchUp(tp0, 1); err != nil {
				t.Fatalf("start %d: %v", start, err)
			}
		}
		next, err := s.Promote(tp0)
		if err != nil {
			t.Fatalf("start %d after %d turns: %v", start, turns, err)
		}
		if o := next.Offsets(); o.LogStart != min(start, 8) || o.End != 8 || o.HighWatermark != 8 {
			t.Errorf("start %d: %+v", start, o)
		}
		s.Close(1)
	}
}

// A move that a stop interrupted is known to the next start.
func TestAMoveOutlivesAStop(t *testing.T) {
	m := vfs.NewMem()
	format(t, m, "a", "b")
	o := storeOptions(m, "a", "b")
	s := mustOpen(t, o)
	fill(t, create(t, s, tp0, topic, dirA), 80)
	if err := s.MoveTo(tp0, dirB); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CatchUp(tp0, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(1); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, o)
	if f := s.Futures(); len(f) != 1 || f[0] != tp0 {
		t.Fatalf("futures %v", f)
	}
	for done := false; !done; {
		var err error
		if done, err = s.CatchUp(tp0, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Promote(tp0); err != nil {
		t.Fatal(err)
	}
	if off := s.Log(tp0).Offsets(); off.End != 80 || len(s.Futures()) != 0 {
		t.Fatalf("%+v, futures %v", off, s.Futures())
	}
}

func TestRunDoesTheMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfs.NewMem()
		format(t, m, "a")
		o := storeOptions(m, "a")
		compacted := *o.Config("")
		compacted.Compact, compacted.Delete = true, false
		short := *o.Config("")
		short.RetentionMs = 3600_000
		o.Config = func(topic string) *config.Log {
			if topic == "c" {
				return &compacted
			}
			return &short
		}
		o.RetentionCheck, o.InitialDelay, o.FlushCheckpoint, o.StartCheckpoint, o.HWCheckpoint = 5*time.Minute, 30*time.Second, time.Minute, time.Minute, 5*time.Second
		o.CleanerBackoff, o.CleanerMapBytes = 15*time.Second, 1<<20
		var cleaned, writes atomic.Int64
		o.Events.Cleaned = func(ids.TopicPartition, int64, int64) { cleaned.Add(1) }
		s := mustOpen(t, o)
		stop, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { s.Run(stop); close(done) }()
		l := create(t, s, tp0, topic, ids.Zero)
		c := create(t, s, ids.TopicPartition{Topic: "c"}, topic, ids.Zero)
		fill(t, l, 60)
		fill(t, c, 200)
		time.Sleep(10 * time.Second)
		if hw, _ := checkpoint.ReadOffsets(m, "a/"+checkpoint.HighWatermark); hw[tp0] != 60 {
			t.Errorf("high watermarks %v", hw)
		}
		if d := l.Offsets().Durable; d != l.ActiveBase() || d == 0 {
			t.Errorf("durable %d, the active segment begins at %d", d, l.ActiveBase())
		}
		time.Sleep(time.Minute)
		if cleaned.Load() == 0 || c.Size() > 4000 {
			t.Errorf("cleaned %d times, %d bytes left", cleaned.Load(), c.Size())
		}
		if rp, _ := checkpoint.ReadOffsets(m, "a/"+checkpoint.RecoveryPoint); rp[tp0] != l.ActiveBase() {
			t.Errorf("recovery points %v", rp)
		}
		time.Sleep(2 * time.Hour)
		if off := l.Offsets(); off.LogStart != 60 {
			t.Errorf("retention: %+v", off)
		}
		if err := s.Delete(tp0); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Minute)
		infos, _ := m.ReadDir("a")
		for _, i := range infos {
			if strings.HasSuffix(i.Name, "-delete") {
				t.Errorf("%s was not removed", i.Name)
			}
		}
		m.OnOp(func(op vfs.Op) {
			if op.Kind.Changes() {
				writes.Add(1)
			}
		})
		time.Sleep(time.Hour)
		if n := writes.Load(); n > 4 {
			t.Errorf("%d writes in an idle hour", n)
		}
		m.OnOp(nil)
		cancel()
		<-done
		if err := s.Close(1); err != nil {
			t.Error(err)
		}
	})
}

func TestNames(t *testing.T) {
	s := &Store{o: storeOptions(vfs.NewMem())}
	long := ids.TopicPartition{Topic: strings.Repeat("x", 249), Partition: 12345}
	if n := s.transitionName(long, deleteSuffix); len(n) != 255 || !strings.HasSuffix(n, deleteSuffix) {
		t.Errorf("%d characters: %s", len(n), n)
	}
	for _, suffix := range []string{deleteSuffix, futureSuffix, straySuffix} {
		tp := ids.TopicPartition{Topic: "a.b-c", Partition: 7}
		if got, _, err := parseDir(s.transitionName(tp, suffix)); err != nil || got != tp {
			t.Errorf("%s: %v, %v", suffix, got, err)
		}
	}
}

// An idle log must be cheap to make and to keep.
func TestManyIdleLogs(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
	const n = 500
	fs, dir := vfs.OS{}, t.TempDir()
	format(t, fs, dir)
	s := mustOpen(t, storeOptions(fs, dir))
	news := make([]New, n)
	for i := range news {
		news[i] = New{ids.TopicPartition{Topic: "t", Partition: int32(i)}, topic, ids.Zero}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	if _, err := s.Create(news); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapInuse) - int64(before.HeapInuse)) / n
	t.Logf("%d bytes a log, %v for %d", each, time.Since(start), n)
	if each > 8000 {
		t.Errorf("an idle log takes %d bytes", each)
	}
	s.Abandon()
}
