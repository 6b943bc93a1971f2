package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// assignment is what the group gave this member, and how far it has to read with --exit.
type assignment struct {
	mu struct {
		sync.Mutex
		open map[string]map[int32]int64 // end offsets not reached yet
		got  bool                       // an assignment came
	}
}

// assigned notes where new partitions end. A partition read up to its end is not among
// them.
func (a *assignment) assigned(ends map[string]map[int32]int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.got = true
	for t, ps := range ends {
		if a.mu.open[t] == nil {
			a.mu.open[t] = map[int32]int64{}
		}
		for p, end := range ps {
			a.mu.open[t][p] = end
		}
	}
}

func (a *assignment) lost(parts map[string][]int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t, ps := range parts {
		for _, p := range ps {
			delete(a.mu.open[t], p)
		}
	}
}

func (a *assignment) read(r *kgo.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if end, ok := a.mu.open[r.Topic][r.Partition]; ok && r.Offset+1 >= end {
		delete(a.mu.open[r.Topic], r.Partition)
	}
}

// done is true once an assignment came and all of it was read, or nothing more comes.
func (a *assignment) done(ctx context.Context, cl *kgo.Client, quiet *quietFetches) (bool, error) {
	open, got := a.unread()
	if !got || len(open) == 0 {
		return got, nil
	}
	return quiet.settled(ctx, cl, open)
}

func (a *assignment) unread() (open map[string][]int32, got bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	open = map[string][]int32{}
	for t, ps := range a.mu.open {
		if len(ps) > 0 {
			open[t] = slices.Collect(maps.Keys(ps))
		}
	}
	return open, a.mu.got
}

func (c *consume) groupOptions(a *assignment, topics []string, from place) ([]kgo.Opt, error) {
	start := kgo.NewOffset().AtStart()
	switch from.kind {
	case atEnd:
		start = kgo.NewOffset().AtEnd()
	case atOffset:
		start = kgo.NewOffset().At(from.n)
	case beforeEnd:
		start = kgo.NewOffset().AtEnd().Relative(-from.n)
	case atTime:
		start = kgo.NewOffset().AfterMilli(from.n)
	}
	opts := append(c.options(), kgo.ConsumerGroup(c.group), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(start),
		kgo.BlockRebalanceOnPoll(), kgo.KeepControlRecords(), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.OnPartitionsAssigned(func(ctx context.Context, cl *kgo.Client, parts map[string][]int32) {
			if ends, err := c.assignedEnds(ctx, cl, parts); err == nil {
				a.assigned(ends)
			}
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { a.lost(parts) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { a.lost(parts) }))
	if c.noCommit {
		opts = append(opts, kgo.DisableAutoCommit())
	} else {
		opts = append(opts, kgo.AutoCommitMarks(), kgo.AutoCommitInterval(commitEvery)) // what was printed, not what was fetched
	}
	if c.instance != "" {
		opts = append(opts, kgo.InstanceID(c.instance))
	}
	return opts, nil
}

// assignedEnds looks up what --exit has to reach in newly assigned partitions.
func (c *consume) assignedEnds(ctx context.Context, cl *kgo.Client, parts map[string][]int32) (map[string]map[int32]int64, error) {
	out := map[string]map[int32]int64{}
	if !c.untilEnd {
		return out, nil
	}
	adm := &admin{kadm.NewClient(cl), cl}
	var topics []string
	for t := range parts {
		topics = append(topics, t)
	}
	if len(topics) == 0 {
		return out, nil
	}
	starts, ends, err := bounds(ctx, adm, topics...)
	if err != nil {
		return nil, err
	}
	if c.isolation == "committed" {
		if ends, err = adm.ListCommittedOffsets(ctx, topics...); err != nil {
			return nil, err
		}
	}
	at, err := adm.FetchOffsets(ctx, c.group)
	if err != nil {
		return nil, err
	}
	for t, ps := range parts {
		out[t] = map[int32]int64{}
		for _, p := range ps {
			end, done := ends[t][p].Offset, starts[t][p].Offset
			if o, ok := at.Lookup(t, p); ok && o.At >= 0 {
				done = o.At
			}
			if done < end {
				out[t][p] = end
			}
		}
	}
	return out, nil
}

func (c *consume) runGroup(ctx context.Context, topics []string, from place) error {
	err := c.env.admin(ctx, func(ctx context.Context, adm *admin) error {
		_, _, err := selectTopics(ctx, adm, topics)
		return err
	})
	if err != nil {
		return err
	}
	a := &assignment{}
	a.mu.open = map[string]map[int32]int64{}
	opts, err := c.groupOptions(a, topics, from)
	if err != nil {
		return err
	}
	quiet := &quietFetches{}
	cl, err := c.env.connect(ctx, append(opts, kgo.WithHooks(quiet))...)
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance() // leaves the group
	err = c.pollGroup(ctx, cl, a, quiet)
	if c.noCommit {
		return err
	}
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.env.timeout)
	defer cancel()
	if cerr := cl.CommitMarkedOffsets(cctx); err == nil || errors.Is(err, context.Canceled) && cerr != nil {
		err = cerr
	}
	return err
}

// commitEvery bounds how much is printed again after a crash.
const commitEvery = 5 * time.Second

// pollGroup prints what comes, and marks a record for the next commit once it is printed.
func (c *consume) pollGroup(ctx context.Context, cl *kgo.Client, a *assignment, quiet *quietFetches) error {
	for {
		pctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
		fetches := cl.PollFetches(pctx)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := fetchError(fetches); err != nil {
			return err
		}
		err := c.takeGroup(cl, a, fetches)
		if ferr := c.out.Flush(); ferr != nil {
			return ferr
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			quiet.record()
		}
		if c.untilEnd {
			done, err := a.done(ctx, cl, quiet)
			if err != nil || done {
				return err
			}
		}
		cl.AllowRebalance()
	}
}

func (c *consume) takeGroup(cl *kgo.Client, a *assignment, fetches kgo.Fetches) error {
	for it := fetches.RecordIter(); !it.Done(); {
		r := it.Next()
		var err error
		if !r.Attrs.IsControl() {
			err = c.write(r)
		}
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		cl.MarkCommitRecords(r)
		a.read(r)
		if err != nil {
			return err
		}
	}
	return nil
}
