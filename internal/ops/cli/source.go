package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// span is a range of a partition: from inclusive, to exclusive; endless has no end.
type span struct{ from, to int64 }

const endless = math.MaxInt64

// source reads partitions without a group, each from and to an offset.
type source struct {
	topics map[string]map[int32]span
	opts   []kgo.Opt
}

// errEnough ends a read early and without an error.
var errEnough = errors.New("enough")

// quietFetches counts, by broker, the fetches that were answered since the last record.
type quietFetches struct {
	mu struct {
		sync.Mutex
		n map[int32]int
	}
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (q *quietFetches) OnBrokerE2E(broker kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key != int16(kmsg.Fetch) || e2e.Err() != nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.n == nil {
		q.mu.n = map[int32]int{}
	}
	q.mu.n[broker.NodeID]++
}

// record starts the count again.
func (q *quietFetches) record() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.mu.n)
}

// enough is how many fetches in a row without a record say that a partition has nothing
// more, though its end is not reached: compaction may have taken the last records before
// it. Each waits for half a second.
const enough = 3

// passed reports brokers that answered enough fetches.
func (q *quietFetches) passed() map[int32]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[int32]bool{}
	for id, n := range q.mu.n {
		if n >= enough {
			out[id] = true
		}
	}
	return out
}

// settled is true once the leader of every open partition answered enough.
func (q *quietFetches) settled(ctx context.Context, cl *kgo.Client, open map[string][]int32) (bool, error) {
	passed := q.passed()
	if len(passed) == 0 {
		return false, nil
	}
	meta, err := kadm.NewClient(cl).Metadata(ctx, sortedKeys(open)...)
	if err != nil {
		return false, err
	}
	for t, ps := range open {
		for _, p := range ps {
			if d, ok := meta.Topics[t].Partitions[p]; !ok || !passed[d.Leader] {
				return false, nil
			}
		}
	}
	return true, nil
}

// read gives every record of the source to each, and returns when all partitions reached
// their ends, each returns an error, or ctx ends.
func (s *source) read(ctx context.Context, env *Env, each func(*kgo.Record) error, flush ...func() error) error {
	start, open := map[string]map[int32]kgo.Offset{}, map[string]map[int32]span{}
	bounded := true
	for topic, spans := range s.topics {
		for p, sp := range spans {
			if sp.from >= sp.to {
				continue
			}
			if start[topic] == nil {
				start[topic], open[topic] = map[int32]kgo.Offset{}, map[int32]span{}
			}
			start[topic][p], open[topic][p] = kgo.NewOffset().At(sp.from), sp
			bounded = bounded && sp.to != endless
		}
	}
	if len(open) == 0 {
		return nil
	}
	quiet := &quietFetches{}
	cl, err := env.connect(ctx, append([]kgo.Opt{kgo.ConsumePartitions(start), kgo.KeepControlRecords(), kgo.WithHooks(quiet),
		kgo.FetchMaxWait(500 * time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, s.opts...)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	r := reading{cl: cl, open: open, each: each, flush: flush, quiet: quiet, bounded: bounded}
	return r.run(ctx)
}

type reading struct {
	cl      *kgo.Client
	open    map[string]map[int32]span // not at their ends yet
	each    func(*kgo.Record) error
	flush   []func() error
	quiet   *quietFetches
	bounded bool
}

func (r *reading) run(ctx context.Context) error {
	for len(r.open) > 0 {
		pctx, cancel := ctx, context.CancelFunc(func() {})
		if r.bounded {
			pctx, cancel = context.WithTimeout(ctx, 250*time.Millisecond)
		}
		fetches := r.cl.PollFetches(pctx)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := fetchError(fetches); err != nil {
			return err
		}
		err := r.take(fetches)
		for _, f := range r.flush {
			err = errors.Join(err, f())
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			r.quiet.record()
		} else if r.bounded {
			done, err := r.quiet.settled(ctx, r.cl, r.partitions())
			if err != nil || done {
				return err
			}
		}
	}
	return nil
}

func (r *reading) take(fetches kgo.Fetches) error {
	for it := fetches.RecordIter(); !it.Done(); {
		rec := it.Next()
		sp, ok := r.open[rec.Topic][rec.Partition]
		if !ok {
			continue
		}
		if rec.Offset < sp.to && !rec.Attrs.IsControl() {
			if err := r.each(rec); err != nil {
				return err
			}
		}
		if rec.Offset+1 >= sp.to {
			r.close(rec.Topic, rec.Partition)
		}
	}
	return nil
}

func (r *reading) partitions() map[string][]int32 {
	out := map[string][]int32{}
	for t, ps := range r.open {
		out[t] = slices.Collect(maps.Keys(ps))
	}
	return out
}

func (r *reading) close(topic string, partition int32) {
	delete(r.open[topic], partition)
	if len(r.open[topic]) == 0 {
		delete(r.open, topic)
	}
	r.cl.PauseFetchPartitions(map[string][]int32{topic: {partition}})
}

// fetchError is the first error of a poll that is not its own time running out.
func fetchError(fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, kgo.ErrClientClosed) {
			continue
		}
		if e.Topic == "" {
			return e.Err
		}
		return fmt.Errorf("%s-%d: %w", e.Topic, e.Partition, e.Err)
	}
	return nil
}

// place is where to start or stop: a word, an offset, a number before the end, or a time.
type place struct {
	kind placeKind
	n    int64
}

type placeKind int

const (
	atBeginning placeKind = iota
	atEnd
	atOffset
	beforeEnd
	atTime
)

func parsePlace(s string, now time.Time) (place, error) {
	switch strings.ToLower(s) {
	case "beginning", "start", "earliest":
		return place{kind: atBeginning}, nil
	case "end", "latest":
		return place{kind: atEnd}, nil
	}
	bad := usage("%q is not a place in a topic", s).hint("write beginning, end, an offset, -N for N before the end, or @TIME (@-1h for an hour ago)")
	if rest, ok := strings.CutPrefix(s, "@"); ok {
		if ago, ok := strings.CutPrefix(rest, "-"); ok {
			d, err := parseSpan(ago)
			return place{atTime, now.Add(-d).UnixMilli()}, err
		}
		t, err := parseTime(rest)
		return place{atTime, t.UnixMilli()}, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		return place{}, bad
	case n < 0:
		return place{beforeEnd, -n}, nil
	}
	return place{atOffset, n}, nil
}

// places resolves where partitions start and end, with one round of requests.
type places struct {
	starts, ends kadm.ListedOffsets
	from, to     kadm.ListedOffsets // of times
}

func lookupPlaces(ctx context.Context, adm *admin, from, to place, committed bool, topics []string) (places, error) {
	var pl places
	var err error
	if pl.starts, pl.ends, err = bounds(ctx, adm, topics...); err != nil {
		return pl, err
	}
	if committed {
		if pl.ends, err = adm.ListCommittedOffsets(ctx, topics...); err != nil {
			return pl, err
		}
	}
	if from.kind == atTime {
		if pl.from, err = adm.ListOffsetsAfterMilli(ctx, from.n, topics...); err != nil {
			return pl, err
		}
	}
	if to.kind == atTime {
		pl.to, err = adm.ListOffsetsAfterMilli(ctx, to.n, topics...)
	}
	return pl, err
}

func (pl *places) offset(p place, times kadm.ListedOffsets, topic string, partition int32) int64 {
	start, end := pl.starts[topic][partition].Offset, pl.ends[topic][partition].Offset
	switch p.kind {
	case atBeginning:
		return start
	case beforeEnd:
		return max(start, end-p.n)
	case atOffset:
		return p.n
	case atTime:
		if o, ok := times.Lookup(topic, partition); ok && o.Offset >= 0 {
			return o.Offset
		}
	}
	return end
}

// spans gives the range of every wanted partition; to is nil to follow without an end.
func (pl *places) spans(from place, to *place, partitions []int32) (map[string]map[int32]span, error) {
	out := map[string]map[int32]span{}
	for topic, ps := range pl.ends {
		out[topic] = map[int32]span{}
		for _, p := range slices.Sorted(maps.Keys(ps)) {
			if len(partitions) > 0 && !slices.Contains(partitions, p) {
				continue
			}
			sp := span{from: pl.offset(from, pl.from, topic, p), to: endless}
			if to != nil {
				sp.to = min(pl.offset(*to, pl.to, topic, p), ps[p].Offset)
			}
			start, end := pl.starts[topic][p].Offset, ps[p].Offset
			if from.kind == atOffset && (sp.from < start || sp.from > end) {
				return nil, failed("offset %d is not in %s-%d, which holds %d to %d", sp.from, topic, p, start, end).hint("use -p to pick partitions, or --from beginning")
			}
			out[topic][p] = sp
		}
		for _, p := range partitions {
			if _, ok := ps[p]; !ok {
				return nil, notFound("topic %q has no partition %d", topic, p).hint("see `runnel topic describe %s`", topic)
			}
		}
	}
	return out, nil
}
