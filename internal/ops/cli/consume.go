package cli

import (
	"bufio"
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consume struct {
	env        *Env
	from, to   string
	untilEnd   bool
	count      int64
	partitions []int32
	format     string
	keyDelim   string
	delim      string
	null       string
	keysOnly   bool
	group      string
	instance   string
	noCommit   bool
	isolation  string

	print func([]byte, *kgo.Record) []byte
	out   *bufio.Writer
	buf   []byte
	taken int64
}

func newConsumeCommand(env *Env) *cobra.Command {
	c := consume{env: env}
	cmd := &cobra.Command{
		Use:   "consume TOPIC...",
		Short: "Print the records of topics",
		Long: `Print the records of topics: all of them and then what comes, until Ctrl-C. Bytes are
printed as they are. With -o json each record is one line, as ` + "`runnel produce --input json`" + `
reads it.

Without --group each partition is read from --from (beginning). With --group the group's
committed offsets decide, --from only where there are none, and what was printed is
committed.

` + formatHelp,
		Example: `  runnel consume orders -e                       all there is, then stop
  runnel consume orders --from -10 -e            the last 10 of each partition
  runnel consume orders --from @-1h -f '%T %k %v\n'
  runnel consume orders -p 0 --from 1200 -c 1 -o json
  runnel consume a b --group audit`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeTopics(env),
		RunE: func(cmd *cobra.Command, topics []string) error {
			return c.run(cmd.Context(), topics, cmd.Flags().Changed)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.from, "from", "s", "beginning", "where to start: beginning, end, OFFSET, -N before the end, @TIME, @-1h")
	f.StringVar(&c.to, "to", "", "where to stop, the same words; records that come later are not printed")
	f.BoolVarP(&c.untilEnd, "exit", "e", false, "stop at the end the topics have now")
	f.Int64VarP(&c.count, "count", "c", 0, "stop after this many records")
	f.Int32SliceVarP(&c.partitions, "partition", "p", nil, "only these partitions")
	f.StringVarP(&c.format, "format", "f", "", "how to print a record (see above)")
	f.StringVarP(&c.keyDelim, "key-delimiter", "K", "", "print the key and this before the value")
	f.StringVarP(&c.delim, "delimiter", "D", `\n`, "print this after each record")
	f.StringVarP(&c.null, "null", "Z", "", "print this for a null key or value")
	f.BoolVar(&c.keysOnly, "keys-only", false, "print keys, no values")
	f.StringVarP(&c.group, "group", "g", "", "consume as a member of this group")
	f.StringVar(&c.instance, "instance-id", "", "static member id (with --group)")
	f.BoolVar(&c.noCommit, "no-commit", false, "commit nothing (with --group)")
	f.StringVar(&c.isolation, "isolation", "committed", "committed leaves out records of open and aborted transactions; uncommitted does not")
	return cmd
}

func (c *consume) prepare(set func(string) bool) error {
	delim, err := unescape(c.delim)
	if err != nil {
		return err
	}
	keyDelim, err := unescape(c.keyDelim)
	if err != nil {
		return err
	}
	c.out = bufio.NewWriterSize(c.env.Stdout, 256<<10)
	null := []byte(c.null)
	switch {
	case c.env.output == "json":
		if c.format != "" {
			return usage("--format and -o json exclude each other")
		}
		c.print = func(b []byte, r *kgo.Record) []byte { return appendJSONRecord(b, r, c.keysOnly) }
	case c.format != "":
		f, err := parseFormat(c.format, null)
		if err != nil {
			return err
		}
		c.print = func(b []byte, r *kgo.Record) []byte {
			for _, part := range f {
				b = part(b, r)
			}
			return b
		}
	default:
		withKey := set("key-delimiter")
		c.print = func(b []byte, r *kgo.Record) []byte {
			if withKey || c.keysOnly {
				b = appendOr(b, r.Key, null)
			}
			if withKey && !c.keysOnly {
				b = append(b, keyDelim...)
			}
			if !c.keysOnly {
				b = appendOr(b, r.Value, null)
			}
			return append(b, delim...)
		}
	}
	switch {
	case c.isolation != "committed" && c.isolation != "uncommitted":
		return usage("--isolation %q is not known", c.isolation).hint("use committed or uncommitted")
	case c.untilEnd && c.to != "":
		return usage("--exit and --to exclude each other")
	case c.count < 0:
		return usage("--count must be at least 1")
	case c.group != "" && (len(c.partitions) > 0 || c.to != ""):
		return usage("--group excludes --partition and --to: the group assigns partitions")
	case c.group == "" && (c.noCommit || c.instance != ""):
		return usage("--no-commit and --instance-id need --group")
	}
	return nil
}

func (c *consume) options() []kgo.Opt {
	level := kgo.ReadCommitted()
	if c.isolation == "uncommitted" {
		level = kgo.ReadUncommitted()
	}
	return []kgo.Opt{kgo.FetchIsolationLevel(level)}
}

// write prints one record; errEnough after the last one that is wanted.
func (c *consume) write(r *kgo.Record) error {
	c.buf = c.print(c.buf[:0], r)
	if _, err := c.out.Write(c.buf); err != nil {
		return err
	}
	if c.taken++; c.count > 0 && c.taken >= c.count {
		return errEnough
	}
	return nil
}

func (c *consume) run(ctx context.Context, topics []string, set func(string) bool) error {
	if err := c.prepare(set); err != nil {
		return err
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	from, err := parsePlace(c.from, c.env.Now())
	if err != nil {
		return err
	}
	if c.group != "" {
		err = c.runGroup(ctx, topics, from)
	} else {
		err = c.runDirect(ctx, topics, from)
	}
	if ferr := c.out.Flush(); err == nil {
		err = ferr
	}
	return err
}

func (c *consume) runDirect(ctx context.Context, topics []string, from place) error {
	var to *place
	switch {
	case c.untilEnd:
		to = &place{kind: atEnd}
	case c.to != "":
		p, err := parsePlace(c.to, c.env.Now())
		if err != nil {
			return err
		}
		to = &p
	}
	src := source{opts: c.options()}
	err := c.env.admin(ctx, func(ctx context.Context, adm *admin) error {
		if _, _, err := selectTopics(ctx, adm, topics); err != nil {
			return err
		}
		until := place{kind: atEnd}
		if to != nil {
			until = *to
		}
		pl, err := lookupPlaces(ctx, adm, from, until, c.isolation == "committed", topics)
		if err != nil {
			return err
		}
		src.topics, err = pl.spans(from, to, c.partitions)
		return err
	})
	if err != nil {
		return err
	}
	err = src.read(ctx, c.env, c.write, c.out.Flush)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
