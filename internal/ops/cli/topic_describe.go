package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
)

// describeFilter picks partitions in trouble. Several filters add up.
type describeFilter struct {
	underReplicated, underMinISR, atMinISR, unavailable bool
}

func (f describeFilter) any() bool {
	return f.underReplicated || f.underMinISR || f.atMinISR || f.unavailable
}

func (f describeFilter) picks(p *partitionRow, minISR int) bool {
	return !f.any() ||
		f.underReplicated && len(p.ISR) < p.wanted() ||
		f.underMinISR && len(p.ISR) < minISR ||
		f.atMinISR && len(p.ISR) == minISR ||
		f.unavailable && p.Leader < 0
}

type partitionRow struct {
	Partition    int32   `json:"partition"`
	Leader       int32   `json:"leader"`
	LeaderEpoch  int32   `json:"leaderEpoch"`
	Replicas     []int32 `json:"replicas"`
	ISR          []int32 `json:"isr"`
	Adding       []int32 `json:"adding,omitempty"`
	Removing     []int32 `json:"removing,omitempty"`
	Offline      []int32 `json:"offline"`
	ELR          []int32 `json:"elr,omitempty"`
	LastKnownELR []int32 `json:"lastKnownElr,omitempty"`
	Start        int64   `json:"startOffset"`
	End          int64   `json:"endOffset"`
	Error        string  `json:"error,omitempty"`
}

// wanted is the number of replicas that should be in sync: those being added are not yet.
func (p *partitionRow) wanted() int { return len(p.Replicas) - len(p.Adding) }

type topicDescription struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Internal   bool              `json:"internal"`
	MinISR     int               `json:"minInsyncReplicas"`
	Configs    map[string]string `json:"configs"`
	Partitions []*partitionRow   `json:"partitions"`
}

func newTopicDescribe(env *Env) *cobra.Command {
	var f describeFilter
	cmd := &cobra.Command{
		Use:               "describe [TOPIC...]",
		Short:             "Show topics with their partitions, replicas, offsets and changed configuration",
		ValidArgsFunction: completeTopics(env),
		Long: `Show topics with their partitions, replicas, offsets and changed configuration;
without names all topics that are not internal. The flags show only partitions in
trouble, and nothing if there is none.`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return env.admin(cmd.Context(), func(ctx context.Context, adm *admin) error {
				return describeTopics(ctx, env, adm, names, f)
			})
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.underReplicated, "under-replicated-partitions", false, "only partitions with replicas out of sync")
	fl.BoolVar(&f.underMinISR, "under-min-isr-partitions", false, "only partitions with fewer replicas in sync than min.insync.replicas")
	fl.BoolVar(&f.atMinISR, "at-min-isr-partitions", false, "only partitions with exactly min.insync.replicas in sync")
	fl.BoolVar(&f.unavailable, "unavailable-partitions", false, "only partitions without a leader")
	return cmd
}

func describeTopics(ctx context.Context, env *Env, adm *admin, names []string, f describeFilter) error {
	topics, _, err := selectTopics(ctx, adm, names)
	if err != nil {
		return err
	}
	if len(topics) == 0 {
		return env.show([]topicDescription{}, func() error { return nil })
	}
	out := make([]*topicDescription, len(topics))
	all := make([]string, len(topics))
	for i, t := range topics {
		out[i], all[i] = describedTopic(t), t.Topic
	}
	if err := addConfigs(ctx, adm, out, all); err != nil {
		return err
	}
	addReassignments(ctx, adm, out)
	addELR(ctx, adm, out)
	if !f.any() {
		if err := addOffsets(ctx, adm, out, all); err != nil {
			return err
		}
	}
	for _, t := range out {
		t.Partitions = slices.DeleteFunc(t.Partitions, func(p *partitionRow) bool { return !f.picks(p, t.MinISR) })
	}
	if f.any() {
		out = slices.DeleteFunc(out, func(t *topicDescription) bool { return len(t.Partitions) == 0 })
		return env.show(out, func() error { return printTroubled(env.Stdout, out) })
	}
	return env.show(out, func() error { return printTopics(env.Stdout, out) })
}

func describedTopic(t kadm.TopicDetail) *topicDescription {
	d := &topicDescription{Name: t.Topic, ID: ids.UUID(t.ID).String(), Internal: t.IsInternal, MinISR: 1, Configs: map[string]string{}, Partitions: []*partitionRow{}}
	for _, p := range t.Partitions.Sorted() {
		row := &partitionRow{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Start: -1, End: -1,
			Replicas: list(p.Replicas), ISR: list(p.ISR), Offline: list(p.OfflineReplicas)}
		if p.Err != nil {
			row.Error = p.Err.Error()
		}
		d.Partitions = append(d.Partitions, row)
	}
	return d
}

// list keeps an absent list from being null in JSON.
func list(v []int32) []int32 {
	if v == nil {
		return []int32{}
	}
	return v
}

func addConfigs(ctx context.Context, adm *admin, out []*topicDescription, names []string) error {
	configs, err := adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return err
	}
	for _, d := range out {
		rc, err := configs.On(d.Name, nil)
		if err != nil || rc.Err != nil {
			continue
		}
		for _, c := range rc.Configs {
			if c.Key == "min.insync.replicas" {
				if n, err := strconv.Atoi(c.MaybeValue()); err == nil {
					d.MinISR = n
				}
			}
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
				d.Configs[c.Key] = c.MaybeValue()
			}
		}
	}
	return nil
}

// addReassignments is best effort: without it a moving partition counts as lacking replicas.
func addReassignments(ctx context.Context, adm *admin, out []*topicDescription) {
	moving, err := adm.ListPartitionReassignments(ctx, nil)
	if err != nil {
		return
	}
	for _, d := range out {
		for _, p := range d.Partitions {
			if m, ok := moving[d.Name][p.Partition]; ok {
				p.Adding, p.Removing = m.AddingReplicas, m.RemovingReplicas
			}
		}
	}
}

// addELR is best effort: clusters before 4.0 have no eligible leader replicas to show.
func addELR(ctx context.Context, adm *admin, out []*topicDescription) {
	byName := map[string]*topicDescription{}
	rq := kmsg.NewPtrDescribeTopicPartitionsRequest()
	rq.ResponsePartitionLimit = 2000
	for _, d := range out {
		byName[d.Name] = d
		t := kmsg.NewDescribeTopicPartitionsRequestTopic()
		t.Topic = d.Name
		rq.Topics = append(rq.Topics, t)
	}
	cl := adm.raw
	for {
		resp, err := rq.RequestWith(ctx, cl)
		if err != nil {
			return
		}
		for _, t := range resp.Topics {
			if t.Topic == nil || byName[*t.Topic] == nil {
				continue
			}
			for _, p := range t.Partitions {
				i, ok := slices.BinarySearchFunc(byName[*t.Topic].Partitions, p.Partition, func(r *partitionRow, n int32) int { return int(r.Partition - n) })
				if ok {
					r := byName[*t.Topic].Partitions[i]
					r.ELR, r.LastKnownELR = p.EligibleLeaderReplicas, p.LastKnownELR
				}
			}
		}
		if resp.NextCursor == nil {
			return
		}
		next := kmsg.NewDescribeTopicPartitionsRequestCursor()
		next.Topic, next.Partition = resp.NextCursor.Topic, resp.NextCursor.Partition
		rq.Cursor = &next
	}
}

func addOffsets(ctx context.Context, adm *admin, out []*topicDescription, names []string) error {
	starts, err := adm.ListStartOffsets(ctx, names...)
	if err != nil && len(starts) == 0 {
		return err
	}
	ends, err := adm.ListEndOffsets(ctx, names...)
	if err != nil && len(ends) == 0 {
		return err
	}
	for _, d := range out {
		for _, p := range d.Partitions {
			if o, ok := starts.Lookup(d.Name, p.Partition); ok && o.Err == nil {
				p.Start = o.Offset
			}
			if o, ok := ends.Lookup(d.Name, p.Partition); ok && o.Err == nil {
				p.End = o.Offset
			}
		}
	}
	return nil
}

func printTopics(w io.Writer, topics []*topicDescription) error {
	for i, d := range topics {
		if i > 0 {
			fmt.Fprintln(w)
		}
		replicas := 0
		if len(d.Partitions) > 0 {
			replicas = len(d.Partitions[0].Replicas)
		}
		fmt.Fprintf(w, "topic %s  id %s  partitions %d  replicas %d  min.insync.replicas %d\n", d.Name, d.ID, len(d.Partitions), replicas, d.MinISR)
		for _, k := range sortedKeys(d.Configs) {
			fmt.Fprintf(w, "  %s=%s\n", k, d.Configs[k])
		}
		if err := partitionTable(d.Partitions).write(w); err != nil {
			return err
		}
	}
	return nil
}

func partitionTable(rows []*partitionRow) *table {
	extra := slices.ContainsFunc(rows, func(p *partitionRow) bool {
		return len(p.ELR)+len(p.Offline)+len(p.Adding)+len(p.Removing) > 0 || p.Error != ""
	})
	heads := []string{"PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"}
	if extra {
		heads = append(heads, "OFFLINE", "ELR", "NOTE")
	}
	t := newTable(heads...)
	for _, p := range rows {
		cells := []any{p.Partition, leaderText(p.Leader), p.LeaderEpoch, p.Replicas, p.ISR, orDash(p.Start), orDash(p.End)}
		if extra {
			cells = append(cells, p.Offline, p.ELR, p.note())
		}
		t.add(cells...)
	}
	return t
}

func (p *partitionRow) note() string {
	var notes []string
	if p.Error != "" {
		notes = append(notes, p.Error)
	}
	if len(p.Adding) > 0 {
		notes = append(notes, "adding "+joinInts(p.Adding))
	}
	if len(p.Removing) > 0 {
		notes = append(notes, "removing "+joinInts(p.Removing))
	}
	return strings.Join(notes, "; ")
}

func leaderText(id int32) any {
	if id < 0 {
		return "none"
	}
	return id
}

func printTroubled(w io.Writer, topics []*topicDescription) error {
	if len(topics) == 0 {
		return nil
	}
	t := newTable("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "MIN ISR", "OFFLINE", "ELR")
	for _, d := range topics {
		for _, p := range d.Partitions {
			t.add(d.Name, p.Partition, leaderText(p.Leader), p.Replicas, p.ISR, d.MinISR, p.Offline, p.ELR)
		}
	}
	return t.write(w)
}
