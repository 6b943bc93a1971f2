package logstore

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
)

// A power loss at any operation of a store's life: it opens again, a partition that was
// flushed is there with all of it, and a partition made anew under an old name never
// inherits what a checkpoint said of the old one.
func TestStoreCrashAtEveryOperation(t *testing.T) {
	points := 0
	for seed := range uint64(2) {
		rnd := rand.New(rand.NewPCG(seed, 21))
		m := vfs.NewMem()
		format(t, m, "a", "b")
		m.SyncDir("")
		o := storeOptions(m, "a", "b")
		s := mustOpen(t, o)
		first, second := ids.UUID{10}, ids.UUID{11}
		flushed := map[ids.UUID]int64{} // topic id -> durable end
		alive := map[ids.UUID]bool{}
		type crash struct {
			disk    *vfs.Mem
			op      vfs.Op
			flushed map[ids.UUID]int64
			alive   map[ids.UUID]bool
		}
		var crashes []crash
		var mu sync.Mutex // directories close side by side
		m.OnOp(func(op vfs.Op) {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind.Changes() {
				f, a := map[ids.UUID]int64{}, map[ids.UUID]bool{}
				for k, v := range flushed {
					f[k] = v
				}
				for k, v := range alive {
					a[k] = v
				}
				crashes = append(crashes, crash{m.Crash(rnd), op, f, a}, crash{m.Crash(nil), op, f, a})
			}
		})
		keep := ids.TopicPartition{Topic: "keep"}
		k := create(t, s, keep, topic, dirB)
		fill(t, k, 30)
		k.Flush()
		flushed[topic], alive[topic] = 30, true
		l := create(t, s, tp0, first, dirA)
		fill(t, l, 60)
		l.RaiseLogStart(40)
		l.Flush()
		flushed[first], alive[first] = 60, true
		for _, mk := range []mark{recoveryPoint, logStart, highWatermark} {
			s.checkpoints(mk)
		}
		alive[first] = false
		if err := s.Delete(tp0); err != nil {
			t.Fatal(err)
		}
		l = create(t, s, tp0, second, dirA)
		fill(t, l, 20)
		l.Flush()
		flushed[second], alive[second] = 20, true
		s.checkpoints(recoveryPoint)
		if err := s.Close(3); err != nil {
			t.Fatal(err)
		}
		m.OnOp(nil)
		for i, c := range crashes {
			o.FS = c.disk
			s2, _, err := Open(ctx, o)
			if err != nil {
				t.Fatalf("seed %d crash %d before %+v: %v", seed, i, c.op, err)
			}
			for d := range s2.dirs {
				if err := s2.dirs[d].failure(); err != nil {
					t.Fatalf("seed %d crash %d before %+v: %v", seed, i, c.op, err)
				}
			}
			found := map[ids.UUID]int64{}
			for l := range s2.All() {
				found[l.TopicID()] = l.Offsets().End
				if l.TopicID() == second && l.Offsets().LogStart != 0 {
					t.Fatalf("seed %d crash %d before %+v: the new partition starts at %d", seed, i, c.op, l.Offsets().LogStart)
				}
			}
			for id, isAlive := range c.alive {
				if isAlive && found[id] < c.flushed[id] {
					t.Fatalf("seed %d crash %d before %+v: %d of %d flushed offsets of %s are there (broken: %v)", seed, i, c.op, found[id], c.flushed[id], id, s2.mu.broken)
				}
			}
			points++
		}
	}
	if points < 100 {
		t.Fatalf("only %d crashes", points)
	}
}

// A power loss at any operation of the close of many logs, which share their syncs: what
// was flushed before is there, and a directory marked as clean holds everything.
func TestCrashWhileManyLogsClose(t *testing.T) {
	const logs = closeTogether + 4
	rnd := rand.New(rand.NewPCG(3, 33))
	m := vfs.NewMem()
	format(t, m, "a")
	m.SyncDir("")
	o := storeOptions(m, "a")
	s := mustOpen(t, o)
	for i := range logs {
		l := create(t, s, ids.TopicPartition{Topic: "many", Partition: int32(i)}, ids.UUID{20, byte(i)}, dirA)
		if err := l.AssignEpoch(4, 0); err != nil {
			t.Fatal(err)
		}
		fill(t, l, 10)
		l.Flush()
		if err := l.AssignEpoch(5, 10); err != nil {
			t.Fatal(err)
		}
		fill(t, l, 5)
	}
	var crashes []*vfs.Mem
	var mu sync.Mutex
	m.OnOp(func(op vfs.Op) {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind.Changes() {
			crashes = append(crashes, m.Crash(rnd), m.Crash(nil))
		}
	})
	if err := s.Close(3); err != nil {
		t.Fatal(err)
	}
	m.OnOp(nil)
	crashes = append(crashes, m.Crash(nil))
	for i, disk := range crashes {
		_, err := disk.Stat("a/.kafka_cleanshutdown")
		clean := err == nil
		o.FS = disk
		s2, _, err := Open(ctx, o)
		if err != nil {
			t.Fatalf("crash %d: %v", i, err)
		}
		n := 0
		for l := range s2.All() {
			n++
			end, epoch := l.Offsets().End, l.LatestEpoch()
			if end < 10 || clean && (end != 15 || epoch != 5) {
				t.Fatalf("crash %d (clean %v): %s ends at %d in epoch %d", i, clean, l.TP(), end, epoch)
			}
		}
		if n != logs {
			t.Fatalf("crash %d: %d logs of %d", i, n, logs)
		}
		if i == len(crashes)-1 && !clean {
			t.Fatal("a finished close did not mark the directory")
		}
		s2.Abandon()
	}
}

// A full disk while a store works and closes: no partition is lost, and no directory whose
// logs did not close is marked as clean.
func TestFullDiskWhileClosing(t *testing.T) {
	for n := 1; n < 30; n++ {
		f := vfs.NewFault(vfs.NewMem())
		format(t, f, "a")
		o := storeOptions(f, "a")
		s := mustOpen(t, o)
		fill(t, create(t, s, tp0, topic, ids.Zero), 30)
		count := 0
		f.Script(func(_ int, op vfs.Op) vfs.Verdict {
			if op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate {
				if count++; count >= n {
					return vfs.Verdict{Err: syscall.ENOSPC}
				}
			}
			return vfs.Verdict{}
		})
		err := s.Close(1)
		f.Script()
		s2, r, oerr := Open(ctx, o)
		if oerr != nil {
			t.Fatalf("operation %d: %v", n, oerr)
		}
		if (err != nil) != (len(r.Unclean) == 1) {
			t.Fatalf("operation %d: close said %v, unclean %v", n, err, r.Unclean)
		}
		if off := s2.Log(tp0).Offsets(); off.End != 30 {
			t.Fatalf("operation %d: %+v", n, off)
		}
		if err == nil {
			return
		}
	}
	t.Fatal("close never worked")
}
