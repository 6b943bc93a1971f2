package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
)

type dump struct {
	env    *Env
	deep   bool
	decode string

	out     *bufio.Writer
	damaged int // things found broken
}

func newDumpCommand(env *Env) *cobra.Command {
	d := dump{env: env}
	cmd := &cobra.Command{
		Use:   "dump FILE...",
		Short: "Print the files of a log directory",
		Long: `Print the files of a log directory, Runnel's or Apache Kafka's: .log, .index, .timeindex,
.txnindex, .snapshot, checkpoints, meta.properties, partition.metadata, quorum-state, and
metadata snapshots. A directory stands for the files in it.

Records of __cluster_metadata, __consumer_offsets and __transaction_state are decoded; of
other topics --deep prints them. With -o json every entry is one line. What is damaged is
named, and the exit code is then 1.`,
		Example: `  runnel dump runnel-data/orders-0/00000000000000000000.log --deep
  runnel dump runnel-data/__cluster_metadata-0 -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error { return d.run(names) },
	}
	cmd.Flags().BoolVar(&d.deep, "deep", false, "also print the records of batches")
	cmd.Flags().StringVar(&d.decode, "decode", "auto", "what records hold: auto, metadata, offsets, transactions or bytes")
	return cmd
}

// entry is one thing in a file: where it is, what it is, and its fields in order.
type entry struct {
	kind   string
	fields []field
}

type field struct {
	name  string
	value any
}

func (e *entry) add(name string, value any) *entry {
	e.fields = append(e.fields, field{name, value})
	return e
}

func newEntry(kind string) *entry { return &entry{kind: kind} }

// document is a JSON object that keeps the order of its fields.
type document []field

// MarshalJSON implements json.Marshaler.
func (d document) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, f := range d {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// emit prints one entry of a file.
func (d *dump) emit(file string, e *entry) error {
	if d.env.output == "json" {
		line, err := json.Marshal(append(document{{"file", file}, {"kind", e.kind}}, e.fields...))
		if err != nil {
			return err
		}
		_, err = d.out.Write(append(line, '\n'))
		return err
	}
	var b strings.Builder
	b.WriteString(indents[e.kind] + e.kind)
	for _, f := range e.fields {
		b.WriteString("  " + f.name + " ")
		switch v := f.value.(type) {
		case string:
			b.WriteString(v)
		case *string:
			b.WriteString(valueText(v, false))
		case bool, int, int16, int32, int64, uint32:
			fmt.Fprint(&b, v)
		default:
			text, err := json.Marshal(v)
			if err != nil {
				return err
			}
			b.Write(text)
		}
	}
	_, err := fmt.Fprintln(d.out, b.String())
	return err
}

var indents = map[string]string{"record": "  ", "control": "  "}

// broken reports damage and goes on.
func (d *dump) broken(file string, at int64, format string, args ...any) error {
	d.damaged++
	return d.emit(file, newEntry("damage").add("at", at).add("what", fmt.Sprintf(format, args...)))
}

func (d *dump) run(names []string) error {
	switch d.decode {
	case "auto", "metadata", "offsets", "transactions", "bytes":
	default:
		return usage("--decode %q is not known", d.decode).hint("use auto, metadata, offsets, transactions or bytes")
	}
	files, err := d.expand(names)
	if err != nil {
		return err
	}
	d.out = bufio.NewWriterSize(d.env.Stdout, 64<<10)
	err = d.files(files)
	if ferr := d.out.Flush(); err == nil {
		err = ferr
	}
	if err == nil && d.damaged > 0 {
		return failed("%d damaged %s found", d.damaged, plural(int64(d.damaged), "place")).hint("the server rebuilds indexes and cuts a torn tail when it starts")
	}
	return err
}

func (d *dump) files(names []string) error {
	for i, name := range names {
		if d.env.output != "json" {
			if i > 0 {
				fmt.Fprintln(d.out)
			}
			fmt.Fprintf(d.out, "%s\n", name)
		}
		if err := d.file(name); err != nil {
			return err
		}
	}
	return nil
}

func (d *dump) expand(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		name = filepath.ToSlash(name)
		info, err := d.env.FS.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, notFound("%s does not exist", name).hint("check the path")
		}
		if err != nil {
			return nil, err
		}
		if !info.IsDir {
			out = append(out, name)
			continue
		}
		in, err := d.env.FS.ReadDir(name)
		if err != nil {
			return nil, err
		}
		found := false
		for _, f := range in {
			if !f.IsDir && kindOf(f.Name) != "" {
				out, found = append(out, path.Join(name, f.Name)), true
			}
		}
		if !found {
			return nil, notFound("%s holds no file that can be printed", name).hint("name a partition's directory, or one of its files")
		}
	}
	return out, nil
}

var (
	leftover     = regexp.MustCompile(`\.(deleted|cleaned|swap|part|tmp)$`)
	snapshotName = regexp.MustCompile(`^\d{20}-\d{10}(-[0-9a-f]+)?\.checkpoint$`)
)

// kindOf says by its name what a file is; empty if it is none of ours.
func kindOf(name string) string {
	for leftover.MatchString(name) {
		name = leftover.ReplaceAllString(name, "")
	}
	switch {
	case snapshotName.MatchString(name), name == "bootstrap.checkpoint":
		return "batches"
	case name == "leader-epoch-checkpoint":
		return "epochs"
	case strings.HasSuffix(name, "-offset-checkpoint"):
		return "offsets"
	case name == "meta.properties", name == "partition.metadata":
		return "properties"
	case name == "quorum-state", name == ".kafka_cleanshutdown":
		return "json"
	}
	switch path.Ext(name) {
	case ".log":
		return "batches"
	case ".index", ".timeindex", ".txnindex", ".snapshot":
		return path.Ext(name)[1:]
	}
	return ""
}

func (d *dump) file(name string) error {
	kind := kindOf(path.Base(name))
	if kind == "" {
		return usage("%s: the name does not say what this file is", name).hint("it must be called as in a log directory, such as 00000000000000000000.log")
	}
	if kind == "batches" {
		return d.batches(name)
	}
	data, err := vfs.ReadFile(d.env.FS, name)
	if err != nil {
		return err
	}
	switch kind {
	case "index":
		return d.offsetIndex(name, data)
	case "timeindex":
		return d.timeIndex(name, data)
	case "txnindex":
		return d.txnIndex(name, data)
	case "snapshot":
		return d.producerSnapshot(name, data)
	case "epochs", "offsets":
		return d.checkpoint(name, kind, data)
	case "json":
		return d.jsonFile(name, data)
	}
	return d.properties(name, data)
}

// topicOf is the topic whose directory holds the file; empty if unknown.
func topicOf(file string) string {
	dir := path.Base(path.Dir(file))
	if i := strings.IndexByte(dir, '.'); i > 0 && (strings.HasSuffix(dir, "-delete") || strings.HasSuffix(dir, "-future") || strings.HasSuffix(dir, "-stray")) {
		dir = dir[:strings.LastIndexByte(dir, '.')]
	}
	tp, err := ids.ParseDirName(dir)
	if err != nil {
		return ""
	}
	return tp.Topic
}

// contents says how to read the records of a file with batches.
func (d *dump) contents(file string) string {
	if d.decode != "auto" {
		return d.decode
	}
	switch base := path.Base(file); {
	case strings.Contains(base, ".checkpoint"), topicOf(file) == ids.MetadataTopic:
		return "metadata"
	case topicOf(file) == ids.ConsumerOffsetsTopic:
		return "offsets"
	case topicOf(file) == ids.TransactionTopic:
		return "transactions"
	}
	return "bytes"
}
