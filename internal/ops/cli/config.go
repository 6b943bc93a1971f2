package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/config"
)

const configResources = `KIND is topic, broker, group or client-metrics. A broker is named by its id; "broker
default" is what holds for all brokers.`

func newConfigCommand(env *Env) *cobra.Command {
	return parent("config", "Show and change the configuration of topics, brokers and groups",
		newConfigDescribe(env), newConfigSet(env), newConfigDelete(env))
}

// resource is what a configuration belongs to.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
	text string
}

var resourceKinds = map[string]kmsg.ConfigResourceType{"topic": kmsg.ConfigResourceTypeTopic, "broker": kmsg.ConfigResourceTypeBroker,
	"group": kmsg.ConfigResourceTypeGroupConfig, "client-metrics": kmsg.ConfigResourceTypeClientMetrics}

func parseResource(kind, name string) (resource, error) {
	k, ok := resourceKinds[strings.TrimSuffix(kind, "s")]
	if !ok {
		k, ok = resourceKinds[kind]
	}
	if !ok {
		f := usage("%q is no kind of resource", kind).hint("use topic, broker, group or client-metrics")
		if near := nearest(kind, sortedKeys(resourceKinds)); near != "" {
			f.hint("did you mean %s?", near)
		}
		return resource{}, f
	}
	r := resource{k, name, kind + " " + name}
	if k == kmsg.ConfigResourceTypeBroker {
		if name == "default" {
			r.name = ""
		} else if _, err := strconv.ParseUint(name, 10, 31); err != nil {
			return r, usage("%q is not the id of a broker", name).hint("see `runnel cluster describe`; `default` stands for all brokers")
		}
	}
	return r, nil
}

// failure explains an error code that the cluster answered.
func (r resource) failure(err error, message *string) error {
	switch {
	case err == kerr.UnknownTopicOrPartition && r.kind == kmsg.ConfigResourceTypeTopic:
		return noTopic(r.name)
	case err == kerr.BrokerNotAvailable, r.kind == kmsg.ConfigResourceTypeBroker && err == kerr.InvalidRequest:
		return notFound("broker %s does not exist", r.name).hint("see `runnel cluster describe`")
	}
	return withMessage(r.text, err, message)
}

// unsent explains why a request about a broker found no broker to go to.
func (r resource) unsent(err error) error {
	if r.kind == kmsg.ConfigResourceTypeBroker && strings.Contains(err.Error(), "unknown broker") {
		return notFound("%s does not exist", r.text).hint("see `runnel cluster describe`")
	}
	return err
}

type configRow struct {
	Name      string       `json:"name"`
	Value     *string      `json:"value"`
	Source    string       `json:"source"`
	ReadOnly  bool         `json:"readOnly,omitempty"`
	Sensitive bool         `json:"sensitive,omitempty"`
	Synonyms  []synonymRow `json:"synonyms,omitempty"`
	Doc       string       `json:"doc,omitempty"`
}

type synonymRow struct {
	Name   string  `json:"name"`
	Value  *string `json:"value"`
	Source string  `json:"source"`
}

type configDescribe struct {
	all, synonyms, docs bool
	keys                []string
}

func newConfigDescribe(env *Env) *cobra.Command {
	var c configDescribe
	cmd := &cobra.Command{
		Use:   "describe KIND NAME [KEY...]",
		Short: "Show configuration values and where they come from",
		Long:  "Show configuration values and where they come from: what was changed, or with --all everything.\n\n" + configResources,
		Example: `  runnel config describe topic orders
  runnel config describe broker 1 --all --synonyms
  runnel config describe topic orders retention.ms`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parseResource(args[0], args[1])
			if err != nil {
				return err
			}
			c.keys = args[2:]
			return c.run(cmd.Context(), env, r)
		},
	}
	cmd.Flags().BoolVarP(&c.all, "all", "a", false, "also values nobody changed")
	cmd.Flags().BoolVar(&c.synonyms, "synonyms", false, "also the values each one hides")
	cmd.Flags().BoolVar(&c.docs, "docs", false, "also what each key does")
	return cmd
}

func (c *configDescribe) run(ctx context.Context, env *Env, r resource) error {
	cl, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, env.timeout)
	defer cancel()
	rq := kmsg.NewPtrDescribeConfigsRequest()
	rq.IncludeSynonyms, rq.IncludeDocumentation = true, c.docs
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = r.kind, r.name
	if len(c.keys) > 0 {
		rr.ConfigNames = c.keys
	}
	rq.Resources = append(rq.Resources, rr)
	resp, err := rq.RequestWith(ctx, cl)
	if err != nil {
		return r.unsent(err)
	}
	rows := []configRow{}
	for _, got := range resp.Resources {
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return r.failure(err, got.ErrorMessage)
		}
		for _, e := range got.Configs {
			if c.all || len(c.keys) > 0 || r.changed(e.Source) {
				rows = append(rows, c.row(e))
			}
		}
	}
	for _, k := range c.keys {
		if !hasConfig(rows, k) {
			return unknownKey(r, k)
		}
	}
	return env.show(rows, func() error { return c.print(env, rows) })
}

// changed tells what somebody set. A broker's own file counts for the broker, not for what
// inherits from it.
func (r resource) changed(s kmsg.ConfigSource) bool {
	switch s {
	case kmsg.ConfigSourceDefaultConfig, kmsg.ConfigSourceUnknown:
		return false
	case kmsg.ConfigSourceStaticBrokerConfig:
		return r.kind == kmsg.ConfigResourceTypeBroker
	}
	return true
}

func hasConfig(rows []configRow, key string) bool {
	for _, r := range rows {
		if r.Name == key {
			return true
		}
	}
	return false
}

// unknownKey names the nearest key where we know the kind's keys.
func unknownKey(r resource, key string) error {
	f := notFound("%s has no configuration %q", r.text, key)
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := config.UnknownTopic(key); err != nil {
			return notFound("%s", oneLine(err))
		}
	case kmsg.ConfigResourceTypeBroker:
		if err := config.UnknownBroker(key); err != nil {
			return notFound("%s", oneLine(err))
		}
	}
	return f.hint("see `runnel config describe %s --all`", r.text)
}

func (c *configDescribe) row(e kmsg.DescribeConfigsResponseResourceConfig) configRow {
	row := configRow{Name: e.Name, Value: e.Value, Source: e.Source.String(), ReadOnly: e.ReadOnly, Sensitive: e.IsSensitive}
	if c.docs && e.Documentation != nil {
		row.Doc = *e.Documentation
	}
	if c.synonyms {
		for _, s := range e.ConfigSynonyms {
			row.Synonyms = append(row.Synonyms, synonymRow{s.Name, s.Value, s.Source.String()})
		}
	}
	return row
}

func (c *configDescribe) print(env *Env, rows []configRow) error {
	if len(rows) == 0 {
		env.say("nothing was changed; add --all to see every value")
		return nil
	}
	t := newTable("KEY", "VALUE", "SOURCE", "NOTE")
	for _, r := range rows {
		note := ""
		if r.ReadOnly {
			note = "read-only"
		}
		t.add(r.Name, valueText(r.Value, r.Sensitive), r.Source, note)
		for i, s := range r.Synonyms {
			if i > 0 || s.Name != r.Name {
				t.add("  "+s.Name, valueText(s.Value, r.Sensitive), s.Source, "")
			}
		}
		if r.Doc != "" {
			t.add("  "+r.Doc, " ", " ", " ")
		}
	}
	return t.write(env.Stdout)
}

func valueText(v *string, sensitive bool) string {
	switch {
	case sensitive:
		return "(hidden)"
	case v == nil:
		return "(none)"
	}
	return *v
}

func newConfigSet(env *Env) *cobra.Command {
	var appended, subtracted []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "set KIND NAME KEY=VALUE...",
		Short: "Change configuration values",
		Long:  "Change configuration values. Each value is checked by the cluster.\n\n" + configResources,
		Example: `  runnel config set topic orders retention.ms=86400000 cleanup.policy=compact,delete
  runnel config set broker default log.retention.ms=86400000
  runnel config set topic orders --append cleanup.policy=compact`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parseResource(args[0], args[1])
			if err != nil {
				return err
			}
			var ops []configOp
			for _, in := range []struct {
				op    kmsg.IncrementalAlterConfigOp
				items []string
			}{{kmsg.IncrementalAlterConfigOpSet, args[2:]}, {kmsg.IncrementalAlterConfigOpAppend, appended}, {kmsg.IncrementalAlterConfigOpSubtract, subtracted}} {
				kvs, err := pairs(in.items, "argument")
				if err != nil {
					return err
				}
				for _, kv := range kvs {
					ops = append(ops, configOp{in.op, kv[0], &kv[1]})
				}
			}
			return alterConfig(cmd.Context(), env, r, ops, dryRun)
		},
	}
	cmd.Flags().StringArrayVar(&appended, "append", nil, "add VALUE to a list: KEY=VALUE")
	cmd.Flags().StringArrayVar(&subtracted, "subtract", nil, "take VALUE out of a list: KEY=VALUE")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "let the cluster check everything, and change nothing")
	return cmd
}

func newConfigDelete(env *Env) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:     "delete KIND NAME KEY...",
		Aliases: []string{"unset"},
		Short:   "Drop changed values, so that the ones they hide hold again",
		Long:    "Drop changed values, so that the ones they hide hold again.\n\n" + configResources,
		Args:    cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parseResource(args[0], args[1])
			if err != nil {
				return err
			}
			var ops []configOp
			for _, k := range args[2:] {
				if strings.Contains(k, "=") {
					return usage("%q: name only the key", k)
				}
				ops = append(ops, configOp{kmsg.IncrementalAlterConfigOpDelete, k, nil})
			}
			return alterConfig(cmd.Context(), env, r, ops, dryRun)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "let the cluster check everything, and change nothing")
	return cmd
}

type configOp struct {
	op    kmsg.IncrementalAlterConfigOp
	key   string
	value *string
}

func alterConfig(ctx context.Context, env *Env, r resource, ops []configOp, dryRun bool) error {
	if len(ops) == 0 {
		return usage("no KEY=VALUE was given")
	}
	cl, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, env.timeout)
	defer cancel()
	rq := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rq.ValidateOnly = dryRun
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = r.kind, r.name
	keys := []string{}
	for _, op := range ops {
		e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		e.Name, e.Op, e.Value = op.key, op.op, op.value
		rr.Configs = append(rr.Configs, e)
		keys = append(keys, op.key)
	}
	rq.Resources = append(rq.Resources, rr)
	resp, err := rq.RequestWith(ctx, cl)
	if err != nil {
		return r.unsent(err)
	}
	for _, got := range resp.Resources {
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return r.failure(err, got.ErrorMessage)
		}
	}
	verb := "changed"
	if dryRun {
		verb = "would change"
	}
	return env.done(map[string]any{"resource": r.text, "keys": keys, "changed": !dryRun}, "%s: %s %s", r.text, verb, strings.Join(keys, ", "))
}
