package runtime

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
)

// memLog is a led partition in memory.
type memLog struct {
	mu      sync.Mutex
	batches []record.Batch
	start   int64
	end     int64
	hw      int64
	manual  bool // the test moves the high watermark
	fail    error
	watch   map[int]func(int64)
	n       int
	readErr error
}

func (l *memLog) Append(b record.Batch, epoch int32) (int64, error) {
	l.mu.Lock()
	if l.fail != nil {
		defer l.mu.Unlock()
		return 0, l.fail
	}
	b.SetBaseOffset(l.end)
	b.SetLeaderEpoch(epoch)
	l.end = b.NextOffset()
	l.batches = append(l.batches, b)
	manual := l.manual
	l.mu.Unlock()
	if !manual {
		l.commit()
	}
	return b.LastOffset(), nil
}

func (l *memLog) commit() {
	l.mu.Lock()
	l.hw = l.end
	hw, watch := l.hw, []func(int64){}
	for _, w := range l.watch {
		watch = append(watch, w)
	}
	l.mu.Unlock()
	for _, w := range watch {
		w(hw)
	}
}

func (l *memLog) HighWatermark() int64 { l.mu.Lock(); defer l.mu.Unlock(); return l.hw }
func (l *memLog) End() int64           { l.mu.Lock(); defer l.mu.Unlock(); return l.end }
func (l *memLog) LogStart() int64      { l.mu.Lock(); defer l.mu.Unlock(); return l.start }

func (l *memLog) OnHighWatermark(f func(int64)) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watch == nil {
		l.watch = map[int]func(int64){}
	}
	l.n++
	id := l.n
	l.watch[id] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watch, id)
	}
}

func (l *memLog) Read(from int64, max int) (out []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readErr != nil {
		return nil, l.readErr
	}
	for _, b := range l.batches {
		if b.LastOffset() >= from && b.NextOffset() <= l.hw {
			out = append(out, b...)
			if len(out) >= max {
				break
			}
		}
	}
	return out, nil
}

// words is a shard that keeps the values it was given.
type words struct {
	said     []string
	open     map[int64][]string
	next     time.Time
	ticks    atomic.Int32
	unloaded error
}

func (w *words) Replay(s Source, r Record) error {
	if string(r.Value) == "bad" {
		return errors.New("bad record")
	}
	if s.ProducerID >= 0 {
		w.open[s.ProducerID] = append(w.open[s.ProducerID], string(r.Value))
		return nil
	}
	w.said = append(w.said, string(r.Value))
	return nil
}

func (w *words) EndTransaction(pid int64, _ int16, commit bool) error {
	if commit {
		w.said = append(w.said, w.open[pid]...)
	}
	delete(w.open, pid)
	return nil
}
func (w *words) Loaded(time.Time) []Result { return nil }
func (w *words) Next() time.Time           { return w.next }
func (w *words) Tick(time.Time) []Result   { w.ticks.Add(1); w.next = time.Time{}; return nil }
func (w *words) Unload(err error)          { w.unloaded = err }

type bench struct {
	*Runtime
	t      *testing.T
	shards []*words
}

func newBench(t *testing.T, change func(*Options)) *bench {
	b := &bench{t: t}
	o := Options{Topic: "__t", Now: time.Now, New: func(int32) Shard {
		w := &words{open: map[int64][]string{}}
		b.shards = append(b.shards, w)
		return w
	}}
	if change != nil {
		change(&o)
	}
	b.Runtime = New(o)
	return b
}

// say appends a word and gives what became of it.
func (b *bench) say(word string) chan error {
	b.t.Helper()
	out := make(chan error, 1)
	err := b.Do(0, func(s Shard, _ time.Time) []Result {
		w := s.(*words)
		n := len(w.said)
		w.said = append(w.said, word)
		return []Result{{Records: []Record{{[]byte("k"), []byte(word)}}, Undo: func() { w.said = w.said[:n] }, Done: func(_ time.Time, err error) []Result {
			out <- err
			return nil
		}}}
	}, func(err error) { out <- err })
	if err != nil {
		out <- err
	}
	return out
}

// ask reads the shard behind all that was appended.
func (b *bench) ask() chan string {
	out := make(chan string, 1)
	err := b.Do(0, func(s Shard, _ time.Time) []Result {
		said := strings.Join(s.(*words).said, " ")
		return []Result{{Done: func(_ time.Time, err error) []Result {
			if err != nil {
				said = err.Error()
			}
			out <- said
			return nil
		}}}
	}, func(err error) { out <- err.Error() })
	if err != nil {
		out <- err.Error()
	}
	return out
}

func TestAppendCommitReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := newBench(t, nil), &memLog{}
		if err := <-b.say("x"); !errors.Is(err, kerr.NotCoordinator) {
			t.Fatalf("before leading: %v", err)
		}
		b.Lead(0, 1, log)
		synctest.Wait()
		for _, w := range []string{"a", "b"} {
			if err := <-b.say(w); err != nil {
				t.Fatal(err)
			}
		}
		b.Lead(0, 1, log) // the same epoch changes nothing
		b.Lead(0, 2, log)
		synctest.Wait()
		if got := <-b.ask(); got != "a b" || len(b.shards) != 2 {
			t.Fatalf("reloaded %q in %d shards", got, len(b.shards))
		}
		if !errors.Is(b.shards[0].unloaded, kerr.NotCoordinator) {
			t.Fatalf("the old shard ended with %v", b.shards[0].unloaded)
		}
		<-b.say("c")
		if e := log.batches[2].LeaderEpoch(); e != 2 {
			t.Fatalf("appended in epoch %d", e)
		}
		b.Resign(0)
		synctest.Wait()
		if err := <-b.say("d"); !errors.Is(err, kerr.NotCoordinator) {
			t.Fatalf("after resigning: %v", err)
		}
		if len(log.watch) != 0 {
			t.Fatal("still watches the log")
		}
		b.Close()
	})
}

func TestOperationsThatWaitShareAnAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := newBench(t, func(o *Options) { o.MaxBatch = 2000 }), &memLog{manual: true}
		b.Lead(0, 1, log)
		synctest.Wait()
		gate := make(chan struct{})
		b.Do(0, func(Shard, time.Time) []Result { <-gate; return nil }, nil)
		synctest.Wait()
		var answers []chan error
		for i := range 50 {
			answers = append(answers, b.say(fmt.Sprint(i)))
		}
		read := b.ask()
		close(gate)
		synctest.Wait()
		if len(log.batches) != 1 || log.batches[0].Count() != 50 {
			t.Fatalf("%d appends", len(log.batches))
		}
		for i, a := range answers {
			if len(a) != 0 {
				t.Fatalf("operation %d answered before its commit", i)
			}
		}
		if len(read) != 0 {
			t.Fatal("a read of uncommitted state was answered")
		}
		log.commit()
		synctest.Wait()
		for i, a := range answers {
			if err := <-a; err != nil {
				t.Fatalf("operation %d: %v", i, err)
			}
		}
		<-read
		// More than fits one batch goes into several, never an operation into two.
		gate = make(chan struct{})
		b.Do(0, func(Shard, time.Time) []Result { <-gate; return nil }, nil)
		synctest.Wait()
		for range 10 {
			b.say(strings.Repeat("x", 900))
		}
		close(gate)
		synctest.Wait()
		if n := len(log.batches) - 1; n != 5 {
			t.Fatalf("10 operations of 900 bytes went into %d batches of 2000", n)
		}
		b.Close()
	})
}

func TestFailedAppendIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := newBench(t, nil), &memLog{}
		b.Lead(0, 1, log)
		synctest.Wait()
		<-b.say("a")
		log.mu.Lock()
		log.fail = kerr.NotEnoughReplicas
		log.mu.Unlock()
		x, y := b.say("x"), b.say("y")
		if err := <-x; ClientError(err) != kerr.CoordinatorNotAvailable {
			t.Fatal(err)
		}
		<-y
		log.mu.Lock()
		log.fail = nil
		log.mu.Unlock()
		if got := <-b.ask(); got != "a" {
			t.Fatalf("left after a failed append: %q", got)
		}
		b.Close()
	})
}

func TestCommitTimeoutAndLossOfLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := newBench(t, nil), &memLog{manual: true}
		b.Lead(0, 1, log)
		synctest.Wait()
		start := time.Now()
		if err := <-b.say("slow"); ClientError(err) != kerr.CoordinatorNotAvailable || time.Since(start) != 5*time.Second {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		a := b.say("lost")
		synctest.Wait()
		b.Resign(0)
		if err := <-a; !errors.Is(err, kerr.NotCoordinator) {
			t.Fatal(err)
		}
		b.Close()
	})
}

func TestLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{manual: true}
		add := func(pid int64, control int16, values ...string) {
			rb := record.Builder{Timestamp: 1, HasProducer: pid >= 0, ProducerID: pid, Codec: record.Zstd}
			if pid >= 0 {
				rb.Attributes = record.TransactionalBit
			}
			if control >= 0 {
				rb.Attributes |= record.ControlBit
				rb.Codec = record.None
				rb.Add([]byte{0, 0, 0, byte(control)}, []byte{0, 0, 0, 0, 0, 0})
			}
			for _, v := range values {
				rb.Add([]byte("k"), []byte(v))
			}
			log.Append(rb.Build(), 0)
		}
		add(-1, -1, "a", "bad", "b")
		add(5, -1, "t1")
		add(6, -1, "t2")
		add(5, 1)
		add(6, 0)
		log.commit()
		add(-1, -1, "tail") // not committed when leading begins
		b := newBench(t, func(o *Options) { o.LoadBuffer = 1 })
		b.Lead(0, 1, log)
		synctest.Wait()
		if got := <-b.ask(); !strings.Contains(got, kerr.CoordinatorLoadInProgress.Message) {
			t.Fatalf("while loading: %q", got)
		}
		log.commit()
		synctest.Wait()
		if got := <-b.ask(); got != "a b t1 tail" {
			t.Fatalf("loaded %q", got)
		}
		if got := b.Led(); !slices.Equal(got, []int32{0}) {
			t.Fatal(got)
		}
		b.Close()

		log.readErr = errors.New("disk")
		b = newBench(t, nil)
		b.Lead(0, 1, log)
		synctest.Wait()
		if err := <-b.say("x"); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Fatalf("after a failed load: %v", err)
		}
		log.readErr = nil
		b.Lead(0, 2, log)
		synctest.Wait()
		if got := <-b.ask(); got != "a b t1 tail" {
			t.Fatalf("loaded %q", got)
		}
		// Resigning in the middle of a load.
		log.mu.Lock()
		log.end++
		log.mu.Unlock()
		b.Lead(0, 3, log)
		synctest.Wait()
		b.Resign(0)
		b.Close()
	})
}

func TestTimerAndRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := newBench(t, nil), &memLog{}
		b.Lead(0, 1, log)
		synctest.Wait()
		b.Do(0, func(s Shard, now time.Time) []Result { s.(*words).next = now.Add(time.Minute); return nil }, nil)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if b.shards[0].ticks.Load() != 0 {
			t.Fatal("ticked early")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if b.shards[0].ticks.Load() != 1 {
			t.Fatalf("%d ticks", b.shards[0].ticks.Load())
		}
		b.Close()
		if err := b.Do(0, nil, nil); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Fatal(err)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := newBench(t, func(o *Options) { o.MaxQueue = 2 }), &memLog{}
		b.Lead(0, 1, log)
		synctest.Wait()
		gate := make(chan struct{})
		b.Do(0, func(Shard, time.Time) []Result { <-gate; return nil }, nil)
		synctest.Wait()
		b.say("a")
		b.say("b")
		if err := <-b.say("c"); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			t.Fatalf("a full queue: %v", err)
		}
		close(gate)
		b.Close()
	})
}

func FuzzReplayBatches(f *testing.F) {
	rb := record.Builder{Timestamp: 1}
	rb.Add([]byte("k"), []byte("v"))
	f.Add([]byte(rb.Build()))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := &words{open: map[int64][]string{}}
		Replay(w, b, 0, func(int64, error) {})
	})
}
