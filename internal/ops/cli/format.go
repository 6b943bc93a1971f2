package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/format"
	"runnel/internal/meta/metarec"
)

type formatFlags struct {
	clusterID     string
	release       string
	features      []string
	standalone    bool
	initial       string
	noInitial     bool
	skipFormatted bool
	relaxed       bool
	set           []string
	randomID      bool
}

func newFormatCommand(env *Env) *cobra.Command {
	var f formatFlags
	cmd := &cobra.Command{
		Use:   "format FILE",
		Short: "Give a node's empty directories their identity",
		Long: `Give the directories that FILE, a server.properties, names their identity, as
` + "`kafka storage format`" + ` does; both servers take the result. ` + "`runnel server`" + ` formats empty
directories by itself where FILE has cluster.id or the node is the only voter.

With controller.quorum.voters in FILE the voters are fixed. Without it a controller needs
one of --standalone, --initial-controllers and --no-initial-controllers.`,
		Example: `  runnel format --random-id
  runnel format server.properties --cluster-id MkU3OEVBNTcwNTJENDM2Qg --standalone`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exclusive(cmd.Flags().Changed, "standalone", "initial-controllers", "no-initial-controllers"); err != nil {
				return err
			}
			return f.run(env, args)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.clusterID, "cluster-id", "t", "", "the cluster's id (default: the key cluster.id in FILE, or a new one for a lone node)")
	fl.StringVarP(&f.release, "release-version", "r", "", "the Kafka release to start at, such as 4.4 or 4.2-IV1")
	fl.StringArrayVar(&f.features, "feature", nil, "start a feature at a level: NAME=LEVEL; may be repeated")
	fl.BoolVarP(&f.standalone, "standalone", "s", false, "this node is the only controller")
	fl.StringVarP(&f.initial, "initial-controllers", "I", "", "the first controllers: ID@HOST:PORT:DIRECTORY_ID,...")
	fl.BoolVarP(&f.noInitial, "no-initial-controllers", "N", false, "this controller joins a quorum that exists")
	fl.BoolVarP(&f.skipFormatted, "ignore-formatted", "g", false, "leave directories that are formatted as they are")
	fl.BoolVar(&f.relaxed, "allow-unknown-keys", false, "warn of unknown keys in FILE instead of refusing them")
	fl.StringArrayVar(&f.set, "set", nil, "KEY=VALUE in place of what FILE says; may be repeated")
	fl.BoolVar(&f.randomID, "random-id", false, "print a new random id, and format nothing")
	return cmd
}

func drawID(b []byte) { rand.Read(b) }

func (f *formatFlags) run(env *Env, args []string) error {
	if f.randomID {
		id := ids.NewUUID(drawID).String()
		return env.done(map[string]string{"id": id}, "%s", id)
	}
	if len(args) == 0 {
		return usage("FILE is missing").hint("name the node's server.properties")
	}
	server, err := f.load(env, args[0])
	if err != nil {
		return err
	}
	o, err := f.options(env, server)
	if err != nil {
		return err
	}
	res, err := format.Node(env.FS, o)
	if errors.Is(err, format.ErrFormatted) {
		return refused("%s", oneLine(err)).hint("use --ignore-formatted to format only the others")
	}
	if err != nil {
		return err
	}
	return env.show(formatted(o, res), func() error { return printFormatted(env, o, res) })
}

func (f *formatFlags) load(env *Env, file string) (*config.Server, error) {
	text, err := vfs.ReadFile(env.FS, file)
	if err != nil {
		return nil, err
	}
	p, err := config.ParseProperties(file, text)
	if err != nil {
		return nil, err
	}
	sets, err := pairs(f.set, "--set")
	if err != nil {
		return nil, err
	}
	for _, kv := range sets {
		p.Set(kv[0], kv[1], "--set")
	}
	warnings, _, err := p.Check(f.relaxed)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		env.say("warning: %s", w)
	}
	return config.Load(p)
}

func (f *formatFlags) options(env *Env, s *config.Server) (format.Options, error) {
	o := format.ForServer(s)
	o.Now, o.Random, o.SkipFormatted = env.Now(), drawID, f.skipFormatted
	switch {
	case f.clusterID != "":
		if s.ClusterID != "" && s.ClusterID != f.clusterID {
			return o, usage("--cluster-id %s contradicts cluster.id=%s of the file", f.clusterID, s.ClusterID)
		}
		o.ClusterID = f.clusterID
	case o.ClusterID == "" && s.OnlyVoter():
		o.ClusterID = ids.NewUUID(drawID).String()
	case o.ClusterID == "":
		return o, usage("--cluster-id is missing").hint("all nodes of a cluster need the same; `runnel format --random-id` draws one")
	}
	if f.release != "" {
		level, err := feature.ParseMetadata(f.release)
		if err != nil {
			return o, usage("--release-version: %s", err)
		}
		o.MetadataVersion = level
	}
	levels, err := pairs(f.features, "--feature")
	if err != nil {
		return o, err
	}
	for _, kv := range levels {
		n, err := strconv.ParseInt(kv[1], 10, 16)
		if err != nil {
			return o, usage("--feature %s=%s: the level is not a number", kv[0], kv[1])
		}
		switch kv[0] {
		case feature.MetadataVersion:
			o.MetadataVersion = int16(n)
		case feature.KRaftVersion:
			if int16(n) != o.KRaftVersion {
				return o, usage("--feature kraft.version=%d: it is %d, by whether controller.quorum.voters is set", n, o.KRaftVersion)
			}
		default:
			if o.Features == nil {
				o.Features = map[string]int16{}
			}
			o.Features[kv[0]] = int16(n)
		}
	}
	return o, f.voters(&o, s)
}

// voters fills who votes at first (kraft.version 1).
func (f *formatFlags) voters(o *format.Options, s *config.Server) (err error) {
	chosen := f.standalone || f.initial != "" || f.noInitial
	switch {
	case o.KRaftVersion == 0 && chosen:
		return usage("controller.quorum.voters fixes the voters").hint("drop the flag, or the key to have voters that can change")
	case o.KRaftVersion == 0 || !s.Controller && !chosen:
		return nil
	case !s.Controller:
		return usage("--standalone, --initial-controllers and --no-initial-controllers are for controllers; process.roles is broker")
	case !chosen:
		return usage("say which controllers vote").hint("use --standalone, --initial-controllers or --no-initial-controllers")
	case f.standalone:
		o.Standalone, err = format.OwnEndpoints(s)
	case f.initial != "":
		if o.Voters, err = format.ParseInitialControllers(f.initial, s.ControllerListeners[0]); err != nil {
			return usage("--initial-controllers: %s", err)
		}
	}
	return err
}

func formatted(o format.Options, res format.Result) map[string]any {
	levels := map[string]int16{}
	for _, r := range res.Records {
		if l, ok := r.(*metarec.FeatureLevel); ok {
			levels[l.Name] = l.FeatureLevel
		}
	}
	return map[string]any{"clusterId": o.ClusterID, "nodeId": o.NodeID, "formatted": orEmpty(res.Formatted), "skipped": orEmpty(res.Skipped), "features": levels}
}

func orEmpty(v []string) []string {
	if v == nil {
		return []string{}
	}
	return v
}

func printFormatted(env *Env, o format.Options, res format.Result) error {
	if len(res.Skipped) > 0 {
		fmt.Fprintf(env.Stdout, "left as they are: %s\n", strings.Join(res.Skipped, ", "))
	}
	if len(res.Formatted) == 0 {
		_, err := fmt.Fprintln(env.Stdout, "nothing to format")
		return err
	}
	_, err := fmt.Fprintf(env.Stdout, "formatted %s for node %d of cluster %s at Kafka %s\n", strings.Join(res.Formatted, ", "), o.NodeID, o.ClusterID, res.Metadata)
	return err
}
