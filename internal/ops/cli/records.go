package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

type recordsDelete struct {
	offsets    []string // P:OFFSET
	partitions []int32
	beforeTime string
	all        bool
	yes        bool
	dryRun     bool
	noScan     bool
}

func newRecordsDelete(env *Env) *cobra.Command {
	var r recordsDelete
	cmd := &cobra.Command{
		Use:   "delete TOPIC",
		Short: "Delete the records of a topic before an offset or a time",
		Long: `Delete the records of a topic before an offset or a time. The plan is shown first:
from where to where records go, and for --before-time how many of them are stamped at or
after that time. A time becomes an offset, the first record stamped at or after it: where
timestamps are out of order, older records after that offset stay.`,
		Example: `  runnel topic records delete orders --before-offset 0:1200,1:900
  runnel topic records delete orders --before-time 2026-01-01 --dry-run`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeTopics(env),
		RunE:              func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), env, args[0]) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.offsets, "before-offset", nil, "PARTITION:OFFSET,...: delete what is before the offset")
	f.StringVar(&r.beforeTime, "before-time", "", "delete what is before the first record of this time or later")
	f.BoolVar(&r.all, "all", false, "delete all records; the topic stays")
	f.Int32SliceVarP(&r.partitions, "partition", "p", nil, "only these partitions (with --before-time, --all)")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&r.dryRun, "dry-run", false, "show the plan and delete nothing")
	f.BoolVar(&r.noScan, "no-scan", false, "do not read the records to count those stamped later (with --before-time)")
	return cmd
}

type deletion struct {
	Partition int32  `json:"partition"`
	Start     int64  `json:"startOffset"`
	Before    int64  `json:"beforeOffset"`
	End       int64  `json:"endOffset"`
	Newer     *int64 `json:"newerRecords,omitempty"` // stamped at or after the time and deleted all the same
	Low       *int64 `json:"lowWatermark,omitempty"` // where the partition starts now
}

func (d *deletion) span() int64 { return max(d.Before-d.Start, 0) }

func (r *recordsDelete) check() error {
	modes := 0
	for _, on := range []bool{len(r.offsets) > 0, r.beforeTime != "", r.all} {
		if on {
			modes++
		}
	}
	if modes != 1 {
		return usage("give one of --before-offset, --before-time and --all")
	}
	if len(r.offsets) > 0 && len(r.partitions) > 0 {
		return usage("--before-offset names its partitions; drop --partition")
	}
	return nil
}

func (r *recordsDelete) run(ctx context.Context, env *Env, topic string) error {
	if err := r.check(); err != nil {
		return err
	}
	plan, err := r.plan(ctx, env, topic)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, d := range plan {
		total += d.span()
	}
	if r.dryRun {
		return r.print(env, topic, plan)
	}
	if !r.yes && env.output != "json" {
		if err := r.print(env, topic, plan); err != nil {
			return err
		}
	}
	if err := env.confirm(r.yes, "delete up to %d records of topic %s", total, topic); err != nil {
		return err
	}
	if err := deleteRecords(ctx, env, topic, plan); err != nil {
		return err
	}
	if env.output == "json" || r.yes {
		if err := r.print(env, topic, plan); err != nil {
			return err
		}
	}
	env.say("deleted")
	return nil
}

// plan decides the offset of each partition, and changes nothing.
func (r *recordsDelete) plan(ctx context.Context, env *Env, topic string) (plan []*deletion, err error) {
	var at time.Time
	if r.beforeTime != "" {
		if at, err = parseTime(r.beforeTime); err != nil {
			return nil, err
		}
	}
	given, err := parseOffsets(r.offsets)
	if err != nil {
		return nil, err
	}
	err = env.admin(ctx, func(ctx context.Context, adm *admin) error {
		if _, _, err := selectTopics(ctx, adm, []string{topic}); err != nil {
			return err
		}
		starts, ends, err := bounds(ctx, adm, topic)
		if err != nil {
			return err
		}
		var times kadm.ListedOffsets
		if r.beforeTime != "" {
			if times, err = adm.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topic); err != nil {
				return err
			}
		}
		plan, err = r.decide(topic, given, starts, ends, times)
		return err
	})
	if err != nil || r.beforeTime == "" || r.noScan {
		return plan, err
	}
	for _, d := range plan {
		if d.Newer, err = countStamped(ctx, env, topic, d.Partition, d.Start, d.Before, at); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

func (r *recordsDelete) decide(topic string, given map[int32]int64, starts, ends, times kadm.ListedOffsets) ([]*deletion, error) {
	var plan []*deletion
	for _, p := range slices.Sorted(maps.Keys(ends[topic])) {
		d := &deletion{Partition: p, Start: starts[topic][p].Offset, End: ends[topic][p].Offset}
		switch {
		case given != nil:
			off, ok := given[p]
			if !ok {
				continue
			}
			delete(given, p)
			if off > d.End {
				return nil, usage("partition %d ends at offset %d; nothing can be deleted up to %d", p, d.End, off)
			}
			d.Before = off
		case len(r.partitions) > 0 && !slices.Contains(r.partitions, p):
			continue
		case times != nil:
			d.Before = times[topic][p].Offset // the end if all records are older
			if d.Before < 0 {
				d.Before = d.End
			}
		default:
			d.Before = d.End
		}
		plan = append(plan, d)
	}
	for p := range given {
		return nil, notFound("topic %q has no partition %d", topic, p)
	}
	for _, p := range r.partitions {
		if _, ok := ends[topic][p]; !ok {
			return nil, notFound("topic %q has no partition %d", topic, p)
		}
	}
	return plan, nil
}

func (r *recordsDelete) print(env *Env, topic string, plan []*deletion) error {
	return env.show(map[string]any{"topic": topic, "partitions": plan}, func() error {
		heads := []string{"PARTITION", "START", "DELETE BEFORE", "END", "RECORDS AT MOST"}
		if r.beforeTime != "" {
			heads = append(heads, "STAMPED LATER")
		}
		t := newTable(heads...)
		for _, d := range plan {
			cells := []any{d.Partition, d.Start, d.Before, d.End, d.span()}
			if r.beforeTime != "" {
				cells = append(cells, countText(d.Newer))
			}
			t.add(cells...)
		}
		return t.write(env.Stdout)
	})
}

func countText(n *int64) any {
	if n == nil {
		return "not counted"
	}
	return *n
}

func deleteRecords(ctx context.Context, env *Env, topic string, plan []*deletion) error {
	return env.admin(ctx, func(ctx context.Context, adm *admin) error {
		offsets := kadm.Offsets{}
		for _, d := range plan {
			if d.span() > 0 {
				offsets.Add(kadm.Offset{Topic: topic, Partition: d.Partition, At: d.Before, LeaderEpoch: -1})
			}
		}
		if len(offsets) == 0 {
			return nil
		}
		resp, err := adm.DeleteRecords(ctx, offsets)
		if err != nil {
			return err
		}
		var bad error
		for _, d := range plan {
			if got, ok := resp[topic][d.Partition]; ok {
				if got.Err != nil {
					bad = errors.Join(bad, fmt.Errorf("%s-%d: %w", topic, d.Partition, got.Err))
					continue
				}
				d.Low = &got.LowWatermark
			}
		}
		return bad
	})
}

func parseOffsets(items []string) (map[int32]int64, error) {
	if len(items) == 0 {
		return nil, nil
	}
	out := map[int32]int64{}
	for _, item := range items {
		ps, os, ok := strings.Cut(item, ":")
		p, err1 := strconv.ParseInt(ps, 10, 32)
		o, err2 := strconv.ParseInt(os, 10, 64)
		if !ok || err1 != nil || err2 != nil || p < 0 || o < 0 {
			return nil, usage("%q is not PARTITION:OFFSET", item)
		}
		out[int32(p)] = o
	}
	return out, nil
}

// bounds lists where a topic's partitions start and end; an error of one is an error.
func bounds(ctx context.Context, adm *admin, topics ...string) (starts, ends kadm.ListedOffsets, err error) {
	if starts, err = adm.ListStartOffsets(ctx, topics...); err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, nil, err
	}
	if ends, err = adm.ListEndOffsets(ctx, topics...); err == nil {
		err = ends.Error()
	}
	return starts, ends, err
}

// scanLimit bounds what is read to count records; beyond it the count is not given.
const scanLimit = 5_000_000

// countStamped reads [from, to) of a partition and counts the records stamped at or after
// a time; nil if that are too many to read.
func countStamped(ctx context.Context, env *Env, topic string, partition int32, from, to int64, at time.Time) (*int64, error) {
	n := int64(0)
	if to <= from {
		return &n, nil
	}
	if to-from > scanLimit {
		return nil, nil
	}
	p := progress{env: env, what: fmt.Sprintf("reading %s-%d", topic, partition)}
	defer p.end()
	src := source{topics: map[string]map[int32]span{topic: {partition: {from, to}}}}
	err := src.read(ctx, env, func(rec *kgo.Record) error {
		if rec.Offset < to && !rec.Attrs.IsControl() && !rec.Timestamp.Before(at) {
			n++
		}
		p.at(rec.Offset-from, to-from)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &n, nil
}
