package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type groupReset struct {
	topics   []string
	earliest bool
	latest   bool
	current  bool
	offset   int64
	datetime string
	by       string
	shift    int64
	execute  bool
	noScan   bool

	set func(string) bool
}

func newGroupReset(env *Env) *cobra.Command {
	var r groupReset
	cmd := &cobra.Command{
		Use:               "reset GROUP",
		Short:             "Move a group's committed offsets",
		ValidArgsFunction: completeGroups(env),
		Long: `Move a group's committed offsets. Without --execute it only shows what would change:
how many records each partition would read again, and how many it would skip; for a time
also how many of the skipped ones are stamped at or after it.

The group must have no members. Without --topic all topics with committed offsets move.`,
		Example: `  runnel group reset audit --to-earliest --topic orders:0,1
  runnel group reset audit --to-datetime 2026-01-01T08:00:00Z --execute
  runnel group reset audit --shift-by -100 --execute`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.set = cmd.Flags().Changed
			return r.run(cmd.Context(), env, args[0])
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&r.topics, "topic", "t", nil, "TOPIC or TOPIC:PARTITION,...; may be repeated")
	f.BoolVar(&r.earliest, "to-earliest", false, "to the first record")
	f.BoolVar(&r.latest, "to-latest", false, "behind the last record")
	f.BoolVar(&r.current, "to-current", false, "to the offset committed now, or the end where there is none")
	f.Int64Var(&r.offset, "to-offset", 0, "to this offset, or the nearest one there is")
	f.StringVar(&r.datetime, "to-datetime", "", "to the first record of this time or later")
	f.StringVar(&r.by, "by-duration", "", "to the first record of this long ago or later: 1h30m, 7d, PT1H")
	f.Int64Var(&r.shift, "shift-by", 0, "forward by so many offsets, or back if negative")
	f.BoolVar(&r.execute, "execute", false, "do it, do not only show it")
	f.BoolVar(&r.noScan, "no-scan", false, "do not read the skipped records to count those stamped later")
	return cmd
}

type move struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"` // -1: nothing committed
	To        int64  `json:"to"`
	Start     int64  `json:"startOffset"`
	End       int64  `json:"endOffset"`
	Again     int64  `json:"readAgain"`
	Skipped   int64  `json:"skipped"`
	Newer     *int64 `json:"skippedNewer,omitempty"` // of the skipped: stamped at or after the time
}

func (r *groupReset) time(now time.Time) (time.Time, bool, error) {
	switch {
	case r.datetime != "":
		t, err := parseTime(r.datetime)
		return t, true, err
	case r.by != "":
		d, err := parseSpan(r.by)
		return now.Add(-d), true, err
	}
	return time.Time{}, false, nil
}

var resetModes = []string{"to-earliest", "to-latest", "to-current", "to-offset", "to-datetime", "by-duration", "shift-by"}

func (r *groupReset) check() error {
	if err := exclusive(r.set, resetModes...); err != nil {
		return err
	}
	if slices.ContainsFunc(resetModes, r.set) {
		return nil
	}
	return usage("say where to: one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration, --shift-by")
}

func (r *groupReset) run(ctx context.Context, env *Env, group string) error {
	if err := r.check(); err != nil {
		return err
	}
	at, byTime, err := r.time(env.Now())
	if err != nil {
		return err
	}
	var plan []*move
	err = env.admin(ctx, func(ctx context.Context, adm *admin) error {
		plan, err = r.plan(ctx, adm, group, at, byTime)
		return err
	})
	if err != nil {
		return err
	}
	if byTime && !r.noScan {
		for _, m := range plan {
			if m.Newer, err = countStamped(ctx, env, m.Topic, m.Partition, max(m.From, m.Start), max(m.From, m.Start)+m.Skipped, at); err != nil {
				return err
			}
		}
	}
	if r.execute {
		if err := r.commit(ctx, env, group, plan); err != nil {
			return err
		}
	}
	err = env.show(map[string]any{"group": group, "executed": r.execute, "partitions": plan}, func() error { return printMoves(env, plan, byTime) })
	if err == nil && !r.execute {
		env.say("nothing was changed; add --execute to do it")
	}
	return err
}

func printMoves(env *Env, plan []*move, byTime bool) error {
	heads := []string{"TOPIC", "PARTITION", "FROM", "TO", "START", "END", "READ AGAIN", "SKIPPED"}
	if byTime {
		heads = append(heads, "SKIPPED NEWER")
	}
	t := newTable(heads...)
	for _, m := range plan {
		cells := []any{m.Topic, m.Partition, orDash(m.From), m.To, m.Start, m.End, m.Again, m.Skipped}
		if byTime {
			cells = append(cells, countText(m.Newer))
		}
		t.add(cells...)
	}
	return t.write(env.Stdout)
}

// chosen gives the partitions to move: those named, or all with a committed offset.
func (r *groupReset) chosen(ctx context.Context, adm *admin, committed kadm.OffsetResponses) (map[string][]int32, error) {
	out := map[string][]int32{}
	if len(r.topics) == 0 {
		for _, o := range committed.Sorted() {
			out[o.Topic] = append(out[o.Topic], o.Partition)
		}
		return out, nil
	}
	for _, arg := range r.topics {
		topic, partitions, err := topicPartitions(arg)
		if err != nil {
			return nil, err
		}
		topics, _, err := selectTopics(ctx, adm, []string{topic})
		if err != nil {
			return nil, err
		}
		for _, p := range partitions {
			if _, ok := topics[0].Partitions[p]; !ok {
				return nil, notFound("topic %q has no partition %d", topic, p).hint("see `runnel topic describe %s`", topic)
			}
		}
		if partitions == nil {
			partitions = slices.Sorted(maps.Keys(topics[0].Partitions))
		}
		out[topic] = append(out[topic], partitions...)
	}
	return out, nil
}

func (r *groupReset) plan(ctx context.Context, adm *admin, group string, at time.Time, byTime bool) ([]*move, error) {
	listed, err := adm.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	g, known := listed[group]
	if known && g.State != "Empty" && g.State != "Dead" && g.State != "" {
		return nil, refused("group %q is %s: offsets move only while it has no members", group, g.State).hint("stop its members first; see `runnel group describe %s`", group)
	}
	if !known && len(r.topics) == 0 {
		return nil, noGroup(group)
	}
	committed := kadm.OffsetResponses{}
	if known {
		if committed, err = adm.FetchOffsets(ctx, group); err != nil {
			return nil, err
		}
	}
	chosen, err := r.chosen(ctx, adm, committed)
	if err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return nil, notFound("group %q has no committed offsets", group).hint("name topics with --topic")
	}
	topics := sortedKeys(chosen)
	starts, ends, err := bounds(ctx, adm, topics...)
	if err != nil {
		return nil, err
	}
	var times kadm.ListedOffsets
	if byTime {
		if times, err = adm.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topics...); err != nil {
			return nil, err
		}
	}
	var plan []*move
	for _, t := range topics {
		slices.Sort(chosen[t])
		for _, p := range slices.Compact(chosen[t]) {
			m := &move{Topic: t, Partition: p, From: -1, Start: starts[t][p].Offset, End: ends[t][p].Offset}
			if o, ok := committed.Lookup(t, p); ok {
				m.From = o.At
			}
			m.decide(r, times)
			plan = append(plan, m)
		}
	}
	return plan, nil
}

// decide sets where the partition goes, never outside of what it holds.
func (m *move) decide(r *groupReset, times kadm.ListedOffsets) {
	switch {
	case r.earliest:
		m.To = m.Start
	case r.latest:
		m.To = m.End
	case r.set("to-offset"):
		m.To = r.offset
	case r.set("shift-by"):
		m.To = m.From + r.shift
		if m.From < 0 {
			m.To = m.End + r.shift
		}
	case times != nil:
		m.To = m.End // all records are older
		if o, ok := times.Lookup(m.Topic, m.Partition); ok && o.Offset >= 0 {
			m.To = o.Offset
		}
	default:
		m.To = m.From
		if m.From < 0 {
			m.To = m.End
		}
	}
	m.To = min(max(m.To, m.Start), m.End)
	now := m.From
	if now < 0 {
		now = m.Start
	}
	now = min(max(now, m.Start), m.End)
	m.Again, m.Skipped = max(now-m.To, 0), max(m.To-now, 0)
	if m.From < 0 {
		m.Again = 0
	}
}

func (r *groupReset) commit(ctx context.Context, env *Env, group string, plan []*move) error {
	return env.admin(ctx, func(ctx context.Context, adm *admin) error {
		offsets := kadm.Offsets{}
		for _, m := range plan {
			offsets.Add(kadm.Offset{Topic: m.Topic, Partition: m.Partition, At: m.To, LeaderEpoch: -1})
		}
		resp, err := adm.CommitOffsets(ctx, group, offsets)
		if err != nil {
			return err
		}
		var bad error
		for _, o := range resp.Sorted() {
			if o.Err != nil {
				bad = errors.Join(bad, fmt.Errorf("%s: %w", tpName(o.Topic, o.Partition), o.Err))
			}
		}
		return bad
	})
}
