package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
)

func newTopicCommand(env *Env) *cobra.Command {
	return parent("topic", "List, make, describe, change and delete topics",
		newTopicList(env), newTopicCreate(env), newTopicDescribe(env), newTopicDelete(env), newTopicAlter(env),
		parent("records", "Delete a topic's oldest records", newRecordsDelete(env)))
}

type topicRow struct {
	Name        string `json:"name"`
	ID          string `json:"id"`
	Partitions  int    `json:"partitions"`
	Replication int    `json:"replication"`
	Internal    bool   `json:"internal"`
}

func newTopicList(env *Env) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List topics",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.admin(cmd.Context(), func(ctx context.Context, adm *admin) error {
				topics, err := adm.ListTopicsWithInternal(ctx)
				if err != nil {
					return err
				}
				rows := []topicRow{}
				for _, t := range topics.Sorted() {
					if t.IsInternal && !internal {
						continue
					}
					rows = append(rows, topicRow{t.Topic, ids.UUID(t.ID).String(), len(t.Partitions), t.Partitions.NumReplicas(), t.IsInternal})
				}
				return env.show(rows, func() error {
					t := newTable("TOPIC", "PARTITIONS", "REPLICATION")
					for _, r := range rows {
						t.add(r.Name, r.Partitions, r.Replication)
					}
					return t.write(env.Stdout)
				})
			})
		},
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "also internal topics, such as __consumer_offsets")
	return cmd
}

type topicCreate struct {
	partitions  int32
	replication int16
	configs     []string
	assignment  string
	ifNotExists bool
	dryRun      bool
}

func newTopicCreate(env *Env) *cobra.Command {
	var c topicCreate
	cmd := &cobra.Command{
		Use:   "create TOPIC...",
		Short: "Make topics",
		Example: `  runnel topic create orders --partitions 6 -c cleanup.policy=compact
  runnel topic create placed --assignment 1:2,2:3   # partition 0 on brokers 1 and 2, partition 1 on 2 and 3`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), env, args) },
	}
	f := cmd.Flags()
	f.Int32VarP(&c.partitions, "partitions", "p", -1, "number of partitions (default: the cluster's num.partitions)")
	f.Int16VarP(&c.replication, "replication-factor", "r", -1, "replicas of each partition (default: the cluster's default.replication.factor)")
	f.StringArrayVarP(&c.configs, "config", "c", nil, "topic configuration KEY=VALUE; may be repeated")
	f.StringVar(&c.assignment, "assignment", "", "brokers of each partition: B:B,B:B,... in place of the two numbers")
	f.BoolVar(&c.ifNotExists, "if-not-exists", false, "no error if the topic exists")
	f.BoolVar(&c.dryRun, "dry-run", false, "let the cluster check everything, and make nothing")
	return cmd
}

type createdTopic struct {
	Name        string `json:"name"`
	ID          string `json:"id,omitempty"`
	Partitions  int32  `json:"partitions,omitempty"`
	Replication int16  `json:"replication,omitempty"`
	Created     bool   `json:"created"`
}

func (c *topicCreate) request(topics []string, timeoutMs int32) (*kmsg.CreateTopicsRequest, error) {
	configs, err := pairs(c.configs, "--config")
	if err != nil {
		return nil, err
	}
	assigned, err := parseAssignment(c.assignment)
	if err != nil {
		return nil, err
	}
	if assigned != nil && (c.partitions != -1 || c.replication != -1) {
		return nil, usage("--assignment excludes --partitions and --replication-factor")
	}
	if c.partitions == 0 || c.partitions < -1 || c.replication == 0 || c.replication < -1 {
		return nil, usage("--partitions and --replication-factor must be at least 1")
	}
	rq := kmsg.NewPtrCreateTopicsRequest()
	rq.TimeoutMillis, rq.ValidateOnly = timeoutMs, c.dryRun
	for _, name := range topics {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor, t.ReplicaAssignment = name, c.partitions, c.replication, assigned
		for _, kv := range configs {
			e := kmsg.NewCreateTopicsRequestTopicConfig()
			e.Name, e.Value = kv[0], &kv[1]
			t.Configs = append(t.Configs, e)
		}
		rq.Topics = append(rq.Topics, t)
	}
	return rq, nil
}

func (c *topicCreate) run(ctx context.Context, env *Env, topics []string) error {
	rq, err := c.request(topics, int32(min(env.timeout.Milliseconds(), 1<<31-1)))
	if err != nil {
		return err
	}
	cl, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	rctx, cancel := context.WithTimeout(ctx, env.timeout)
	defer cancel()
	resp, err := rq.RequestWith(rctx, cl)
	if err != nil {
		return err
	}
	made := []createdTopic{}
	var bad error
	for _, t := range resp.Topics {
		terr := kerr.ErrorForCode(t.ErrorCode)
		switch {
		case terr == nil:
			made = append(made, createdTopic{t.Topic, ids.UUID(t.TopicID).String(), t.NumPartitions, t.ReplicationFactor, !c.dryRun})
		case errors.Is(terr, kerr.TopicAlreadyExists) && c.ifNotExists:
			made = append(made, createdTopic{Name: t.Topic})
		default:
			bad = errors.Join(bad, withMessage("topic "+strconv.Quote(t.Topic), terr, t.ErrorMessage))
		}
	}
	if len(made) > 0 || bad == nil {
		if err := env.show(made, func() error { return c.print(env.Stdout, made) }); err != nil {
			return err
		}
	}
	return bad
}

func (c *topicCreate) print(w io.Writer, made []createdTopic) error {
	for _, t := range made {
		verb := "created"
		switch {
		case t.ID == "":
			fmt.Fprintf(w, "topic %s exists\n", t.Name)
			continue
		case c.dryRun:
			verb = "would be created"
		}
		if _, err := fmt.Fprintf(w, "topic %s %s: %d partitions, %d replicas\n", t.Name, verb, t.Partitions, t.Replication); err != nil {
			return err
		}
	}
	return nil
}

// parseAssignment reads B:B,B:B: one item a partition.
func parseAssignment(text string) ([]kmsg.CreateTopicsRequestTopicReplicaAssignment, error) {
	var out []kmsg.CreateTopicsRequestTopicReplicaAssignment
	for i, item := range config.SplitList(text) {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition = int32(i)
		for b := range strings.SplitSeq(item, ":") {
			n, err := strconv.ParseInt(strings.TrimSpace(b), 10, 32)
			if err != nil || n < 0 {
				return nil, usage("--assignment: %q is not a broker id", b)
			}
			a.Replicas = append(a.Replicas, int32(n))
		}
		out = append(out, a)
	}
	return out, nil
}

func newTopicDelete(env *Env) *cobra.Command {
	var yes, ifExists bool
	cmd := &cobra.Command{
		Use:               "delete TOPIC...",
		Aliases:           []string{"rm"},
		Short:             "Delete topics and all their records",
		ValidArgsFunction: completeTopics(env),
		Args:              cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, topics []string) error {
			return deleteTopics(cmd.Context(), env, topics, yes, ifExists)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "no error if a topic does not exist")
	return cmd
}

func deleteTopics(ctx context.Context, env *Env, topics []string, yes, ifExists bool) error {
	var there []string
	partitions := 0
	err := env.admin(ctx, func(ctx context.Context, adm *admin) (err error) {
		there, partitions, err = existing(ctx, adm, topics, ifExists)
		return err
	})
	if err != nil {
		return err
	}
	if len(there) == 0 {
		return env.done([]string{}, "nothing to delete")
	}
	if err := env.confirm(yes, "delete %s with %d partitions and all records", strings.Join(there, ", "), partitions); err != nil {
		return err
	}
	return env.admin(ctx, func(ctx context.Context, adm *admin) error {
		resp, err := adm.DeleteTopics(ctx, there...)
		if err != nil {
			return err
		}
		var gone []string
		var bad error
		for _, r := range resp.Sorted() {
			if r.Err != nil {
				bad = errors.Join(bad, withMessage("topic "+strconv.Quote(r.Topic), r.Err, &r.ErrMessage))
				continue
			}
			gone = append(gone, r.Topic)
		}
		slices.Sort(gone)
		if len(gone) > 0 {
			if err := env.done(gone, "deleted %s", strings.Join(gone, ", ")); err != nil {
				return err
			}
		}
		return bad
	})
}

func existing(ctx context.Context, adm *admin, topics []string, ifExists bool) (there []string, partitions int, err error) {
	known, err := adm.ListTopicsWithInternal(ctx, topics...)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range topics {
		t := known[name]
		switch {
		case t.Err == nil:
			there, partitions = append(there, name), partitions+len(t.Partitions)
		case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			if !ifExists {
				return nil, 0, noTopic(name)
			}
		default:
			return nil, 0, fmt.Errorf("topic %q: %w", name, t.Err)
		}
	}
	return there, partitions, nil
}

func newTopicAlter(env *Env) *cobra.Command {
	var partitions int
	cmd := &cobra.Command{
		Use:               "alter TOPIC --partitions N",
		Short:             "Raise the number of a topic's partitions",
		ValidArgsFunction: completeTopics(env),
		Long: `Raise the number of a topic's partitions. Keys are then spread over the new number:
records of one key that were in one partition may be in two. To change the
configuration use ` + "`runnel config set topic`.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if partitions < 1 {
				return usage("--partitions must be given, and at least 1")
			}
			return env.admin(cmd.Context(), func(ctx context.Context, adm *admin) error {
				resp, err := adm.UpdatePartitions(ctx, partitions, args[0])
				if err != nil {
					return err
				}
				for _, r := range resp {
					if errors.Is(r.Err, kerr.UnknownTopicOrPartition) {
						return noTopic(r.Topic)
					}
					if r.Err != nil {
						return withMessage("topic "+strconv.Quote(r.Topic), r.Err, &r.ErrMessage)
					}
				}
				return env.done(map[string]any{"topic": args[0], "partitions": partitions}, "topic %s has %d partitions", args[0], partitions)
			})
		},
	}
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "the new number")
	return cmd
}

// selectTopics gives the named topics, or all of them that are not internal, by name.
func selectTopics(ctx context.Context, adm *admin, names []string) ([]kadm.TopicDetail, kadm.Metadata, error) {
	var meta kadm.Metadata
	var err error
	if meta, err = adm.Metadata(ctx, names...); err != nil {
		return nil, meta, err
	}
	var out []kadm.TopicDetail
	for _, name := range slices.Sorted(maps.Keys(meta.Topics)) {
		t := meta.Topics[name]
		if errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			return nil, meta, noTopic(name)
		}
		if t.Err != nil && len(names) > 0 {
			return nil, meta, fmt.Errorf("topic %q: %w", name, t.Err)
		}
		if len(names) > 0 || !t.IsInternal {
			out = append(out, t)
		}
	}
	return out, meta, nil
}
