package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newGroupCommand(env *Env) *cobra.Command {
	return parent("group", "List, describe, reset and delete consumer groups",
		newGroupList(env), newGroupDescribe(env), newGroupDelete(env), newGroupReset(env),
		parent("offsets", "Delete a group's committed offsets", newOffsetsDelete(env)))
}

type groupRow struct {
	Group       string `json:"group"`
	Type        string `json:"type"`
	Protocol    string `json:"protocolType"`
	State       string `json:"state"`
	Coordinator int32  `json:"coordinator"`
}

func newGroupList(env *Env) *cobra.Command {
	var states []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List groups",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.admin(cmd.Context(), func(ctx context.Context, adm *admin) error {
				groups, err := adm.ListGroups(ctx, states...)
				if err != nil {
					return err
				}
				rows := []groupRow{}
				for _, g := range groups.Sorted() {
					rows = append(rows, groupRow{g.Group, strings.ToLower(g.GroupType), g.ProtocolType, g.State, g.Coordinator})
				}
				return env.show(rows, func() error {
					t := newTable("GROUP", "TYPE", "PROTOCOL", "STATE", "COORDINATOR")
					for _, r := range rows {
						t.add(r.Group, r.Type, r.Protocol, r.State, r.Coordinator)
					}
					return t.write(env.Stdout)
				})
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in these states: Stable, Empty, Dead, PreparingRebalance, CompletingRebalance")
	return cmd
}

type memberRow struct {
	ID         string   `json:"memberId"`
	Instance   string   `json:"instanceId,omitempty"`
	Client     string   `json:"clientId"`
	Host       string   `json:"host"`
	Partitions []string `json:"partitions"`
}

type lagRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"` // -1: none
	Start     int64  `json:"startOffset"`
	End       int64  `json:"endOffset"`
	Lag       int64  `json:"lag"` // -1: unknown
	Metadata  string `json:"metadata,omitempty"`
	Member    string `json:"memberId,omitempty"`
	Error     string `json:"error,omitempty"`
}

type groupDescription struct {
	Group       string      `json:"group"`
	State       string      `json:"state"`
	Type        string      `json:"type"`
	Protocol    string      `json:"protocolType"`
	Assignor    string      `json:"assignor"`
	Coordinator int32       `json:"coordinator"`
	TotalLag    int64       `json:"totalLag"`
	Members     []memberRow `json:"members"`
	Offsets     []lagRow    `json:"offsets"`
}

func newGroupDescribe(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:               "describe GROUP...",
		Short:             "Show members, committed offsets and lag",
		ValidArgsFunction: completeGroups(env),
		Args:              cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return env.admin(cmd.Context(), func(ctx context.Context, adm *admin) error {
				out := []*groupDescription{}
				for _, name := range names {
					d, err := describeGroup(ctx, adm, name)
					if err != nil {
						return err
					}
					out = append(out, d)
				}
				return env.show(out, func() error { return printGroups(env.Stdout, out) })
			})
		},
	}
}

// describeGroup looks a group up by the protocol it uses: classic, or KIP-848's.
func describeGroup(ctx context.Context, adm *admin, name string) (*groupDescription, error) {
	listed, err := adm.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	l, ok := listed[name]
	if !ok {
		return nil, noGroup(name)
	}
	d := &groupDescription{Group: name, State: l.State, Type: strings.ToLower(l.GroupType), Protocol: l.ProtocolType, Coordinator: l.Coordinator, Members: []memberRow{}, Offsets: []lagRow{}}
	owners := map[string]string{}
	switch d.Type {
	case "", "classic":
		err = d.addClassic(ctx, adm, owners)
	case "consumer":
		err = d.addConsumer(ctx, adm, owners)
	default:
		return d, nil // share and streams groups keep no committed offsets of this kind
	}
	if err != nil {
		return nil, err
	}
	return d, d.addOffsets(ctx, adm, owners)
}

func (d *groupDescription) addClassic(ctx context.Context, adm *admin, owners map[string]string) error {
	groups, err := adm.DescribeGroups(ctx, d.Group)
	if err != nil {
		return err
	}
	g := groups[d.Group]
	if g.Err != nil {
		return withMessage("group "+strconv.Quote(d.Group), g.Err, &g.ErrMessage)
	}
	d.State, d.Assignor, d.Coordinator = g.State, g.Protocol, g.Coordinator.NodeID
	for _, m := range g.Members {
		row := memberRow{ID: m.MemberID, Client: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/"), Partitions: []string{}}
		if m.InstanceID != nil {
			row.Instance = *m.InstanceID
		}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				row.own(owners, t.Topic, t.Partitions)
			}
		}
		d.Members = append(d.Members, row)
	}
	return nil
}

func (d *groupDescription) addConsumer(ctx context.Context, adm *admin, owners map[string]string) error {
	groups, err := adm.DescribeConsumerGroups(ctx, d.Group)
	if err != nil {
		return err
	}
	g := groups[d.Group]
	if g.Err != nil {
		return fmt.Errorf("group %q: %w", d.Group, g.Err)
	}
	d.State, d.Assignor, d.Coordinator = g.State, g.AssignorName, g.Coordinator.NodeID
	for _, m := range g.Members {
		row := memberRow{ID: m.MemberID, Client: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/"), Partitions: []string{}}
		if m.InstanceID != nil {
			row.Instance = *m.InstanceID
		}
		for _, t := range m.Assignment.Sorted() {
			row.own(owners, t.Topic, t.Partitions)
		}
		d.Members = append(d.Members, row)
	}
	return nil
}

func (m *memberRow) own(owners map[string]string, topic string, partitions []int32) {
	slices.Sort(partitions)
	for _, p := range partitions {
		tp := topic + "-" + strconv.Itoa(int(p))
		m.Partitions = append(m.Partitions, tp)
		owners[tp] = m.ID
	}
}

// addOffsets adds the committed offsets, and the assigned partitions that have none.
func (d *groupDescription) addOffsets(ctx context.Context, adm *admin, owners map[string]string) error {
	committed, err := adm.FetchOffsets(ctx, d.Group)
	if err != nil {
		return err
	}
	var topics []string
	for _, o := range committed.Sorted() {
		topics = append(topics, o.Topic)
		d.Offsets = append(d.Offsets, lagRow{Topic: o.Topic, Partition: o.Partition, Committed: o.At, Metadata: o.Metadata, Member: owners[tpName(o.Topic, o.Partition)]})
	}
	for _, m := range d.Members {
		for _, tp := range m.Partitions {
			i := strings.LastIndexByte(tp, '-')
			n, _ := strconv.Atoi(tp[i+1:])
			if _, ok := committed.Lookup(tp[:i], int32(n)); !ok {
				topics = append(topics, tp[:i])
				d.Offsets = append(d.Offsets, lagRow{Topic: tp[:i], Partition: int32(n), Committed: -1, Member: m.ID})
			}
		}
	}
	if len(topics) == 0 {
		return nil
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	starts, err1 := adm.ListStartOffsets(ctx, topics...)
	ends, err2 := adm.ListEndOffsets(ctx, topics...)
	if err := errors.Join(err1, err2); err != nil && len(ends) == 0 {
		return err
	}
	for i := range d.Offsets {
		o := &d.Offsets[i]
		o.measure(starts, ends)
		d.TotalLag += max(o.Lag, 0)
	}
	slices.SortFunc(d.Offsets, func(a, b lagRow) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return nil
}

func (o *lagRow) measure(starts, ends kadm.ListedOffsets) {
	o.Start, o.End, o.Lag = -1, -1, -1
	if s, ok := starts.Lookup(o.Topic, o.Partition); ok && s.Err == nil {
		o.Start = s.Offset
	}
	e, ok := ends.Lookup(o.Topic, o.Partition)
	switch {
	case !ok:
		o.Error = "the partition does not exist"
	case e.Err != nil:
		o.Error = e.Err.Error()
	default:
		o.End = e.Offset
		o.Lag = o.End - max(o.Committed, o.Start)
	}
}

func tpName(topic string, partition int32) string { return topic + "-" + strconv.Itoa(int(partition)) }

func printGroups(w io.Writer, groups []*groupDescription) error {
	for i, d := range groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "group %s  state %s  type %s  assignor %s  coordinator %d  lag %d\n", d.Group, d.State, word(d.Type), word(d.Assignor), d.Coordinator, d.TotalLag)
		if len(d.Members) > 0 {
			t := newTable("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")
			for _, m := range d.Members {
				t.add(m.ID, m.Instance, m.Client, m.Host, strings.Join(m.Partitions, ","))
			}
			if err := t.write(w); err != nil {
				return err
			}
		}
		if len(d.Offsets) > 0 {
			t := newTable("TOPIC", "PARTITION", "COMMITTED", "START", "END", "LAG", "MEMBER")
			for _, o := range d.Offsets {
				member := o.Member
				if o.Error != "" {
					member = o.Error
				}
				t.add(o.Topic, o.Partition, orDash(o.Committed), orDash(o.Start), orDash(o.End), orDash(o.Lag), member)
			}
			if err := t.write(w); err != nil {
				return err
			}
		}
	}
	return nil
}

func word(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newGroupDelete(env *Env) *cobra.Command {
	var yes, ifExists bool
	cmd := &cobra.Command{
		Use:               "delete GROUP...",
		Aliases:           []string{"rm"},
		Short:             "Delete groups that have no members, with their committed offsets",
		ValidArgsFunction: completeGroups(env),
		Args:              cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return deleteGroups(cmd.Context(), env, names, yes, ifExists)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "no error if a group does not exist")
	return cmd
}

func deleteGroups(ctx context.Context, env *Env, names []string, yes, ifExists bool) error {
	var there []string
	err := env.admin(ctx, func(ctx context.Context, adm *admin) error {
		listed, err := adm.ListGroups(ctx)
		if err != nil {
			return err
		}
		for _, n := range names {
			if _, ok := listed[n]; ok {
				there = append(there, n)
			} else if !ifExists {
				return noGroup(n)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(there) == 0 {
		return env.done([]string{}, "nothing to delete")
	}
	if err := env.confirm(yes, "delete %s and all committed offsets", strings.Join(there, ", ")); err != nil {
		return err
	}
	return env.admin(ctx, func(ctx context.Context, adm *admin) error {
		resp, err := adm.DeleteGroups(ctx, there...)
		if err != nil {
			return err
		}
		gone, bad := []string{}, error(nil)
		for _, r := range resp.Sorted() {
			switch {
			case errors.Is(r.Err, kerr.NonEmptyGroup):
				bad = errors.Join(bad, refused("group %q has members", r.Group).hint("stop them first; see `runnel group describe %s`", r.Group))
			case r.Err != nil:
				bad = errors.Join(bad, fmt.Errorf("group %q: %w", r.Group, r.Err))
			default:
				gone = append(gone, r.Group)
			}
		}
		if len(gone) > 0 {
			if err := env.done(gone, "deleted %s", strings.Join(gone, ", ")); err != nil {
				return err
			}
		}
		return bad
	})
}

func newOffsetsDelete(env *Env) *cobra.Command {
	var topics []string
	var yes bool
	cmd := &cobra.Command{
		Use:               "delete GROUP --topic TOPIC[:PARTITION,...]",
		Short:             "Delete the committed offsets of topics the group does not consume now",
		ValidArgsFunction: completeGroups(env),
		Example:           "  runnel group offsets delete audit --topic orders:0,1",
		Args:              cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return deleteOffsets(cmd.Context(), env, args[0], topics, yes)
		},
	}
	cmd.Flags().StringArrayVarP(&topics, "topic", "t", nil, "TOPIC or TOPIC:PARTITION,...; may be repeated")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func deleteOffsets(ctx context.Context, env *Env, group string, topics []string, yes bool) error {
	if len(topics) == 0 {
		return usage("--topic must be given")
	}
	set, n := kadm.TopicsSet{}, 0
	err := env.admin(ctx, func(ctx context.Context, adm *admin) error {
		committed, err := committedOf(ctx, adm, group)
		if err != nil {
			return err
		}
		for _, arg := range topics {
			topic, partitions, err := topicPartitions(arg)
			if err != nil {
				return err
			}
			for _, o := range committed.Sorted() {
				if o.Topic == topic && (partitions == nil || slices.Contains(partitions, o.Partition)) {
					set.Add(topic, o.Partition)
					n++
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n == 0 {
		return notFound("group %q has no committed offset there", group).hint("see `runnel group describe %s`", group)
	}
	if err := env.confirm(yes, "delete %d committed %s of group %s", n, plural(int64(n), "offset"), group); err != nil {
		return err
	}
	return env.admin(ctx, func(ctx context.Context, adm *admin) error {
		resp, err := adm.DeleteOffsets(ctx, group, set)
		if err != nil {
			return err
		}
		gone, bad := []string{}, error(nil)
		for t, ps := range resp {
			for p, err := range ps {
				if err != nil {
					bad = errors.Join(bad, fmt.Errorf("%s: %w", tpName(t, p), err))
					continue
				}
				gone = append(gone, tpName(t, p))
			}
		}
		slices.Sort(gone)
		if len(gone) > 0 {
			if err := env.done(gone, "deleted the offsets of %s", strings.Join(gone, ", ")); err != nil {
				return err
			}
		}
		return bad
	})
}

// committedOf gives a group's offsets; a group that does not exist has none in Kafka's
// eyes, but not in a person's.
func committedOf(ctx context.Context, adm *admin, group string) (kadm.OffsetResponses, error) {
	listed, err := adm.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := listed[group]; !ok {
		return nil, noGroup(group)
	}
	return adm.FetchOffsets(ctx, group)
}
