package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"runnel/internal/kit/vfs"
)

type produce struct {
	env       *Env
	key       string
	value     string
	keyDelim  string
	delim     string
	null      string
	headers   []string
	partition int32
	codec     string
	acks      string
	plain     bool
	tombstone bool
	files     []string
	whole     bool
	input     string
	timestamp string
	count     int64
	create    bool
	linger    time.Duration
	maxBytes  int32

	set   func(string) bool
	topic string
	fixed []kgo.RecordHeader
	stamp time.Time
}

func newProduceCommand(env *Env) *cobra.Command {
	p := produce{env: env}
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Write records to a topic, from stdin, files or the command line",
		Long: `Write records to a topic. Every line of stdin is a record; --delimiter changes what
ends one, --key-delimiter what parts its key from its value. --whole makes one record of
each file. --input json reads one JSON object a line, as ` + "`runnel consume -o json`" + ` prints.`,
		Example: `  echo 'user1:hello' | runnel produce greetings -K :
  runnel produce greetings -k user1 -v hello -H trace=42
  runnel produce greetings -k user1 --tombstone
  runnel produce images --whole --file a.png --file b.png -z zstd`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeTopics(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.set, p.topic = cmd.Flags().Changed, args[0]
			return p.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&p.key, "key", "k", "", "the key of every record")
	f.StringVarP(&p.value, "value", "v", "", "one record with this value; stdin is not read")
	f.StringVarP(&p.keyDelim, "key-delimiter", "K", "", "what parts key and value in the input")
	f.StringVarP(&p.delim, "delimiter", "D", `\n`, "what ends a record in the input")
	f.StringVarP(&p.null, "null", "Z", "", "a key or value that is exactly this is null")
	f.StringArrayVarP(&p.headers, "header", "H", nil, "header KEY=VALUE of every record; may be repeated")
	f.Int32VarP(&p.partition, "partition", "p", -1, "write to this partition, not to the key's")
	f.StringVarP(&p.codec, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	f.StringVar(&p.acks, "acks", "all", "wait for all in-sync replicas, for the leader (1), or not at all (0)")
	f.BoolVar(&p.plain, "no-idempotence", false, "produce without a producer id; a retry may then write twice")
	f.BoolVar(&p.tombstone, "tombstone", false, "null values: with --key one record, else every input record is a key")
	f.StringArrayVarP(&p.files, "file", "f", nil, "read this file in place of stdin; may be repeated; - is stdin")
	f.BoolVar(&p.whole, "whole", false, "each file is one record")
	f.StringVar(&p.input, "input", "text", "text or json")
	f.StringVar(&p.timestamp, "timestamp", "", "the time of every record (default: now)")
	f.Int64VarP(&p.count, "count", "c", 0, "stop after this many records")
	f.BoolVar(&p.create, "create", false, "let the cluster make the topic (needs auto.create.topics.enable)")
	f.DurationVar(&p.linger, "linger", 5*time.Millisecond, "wait this long to fill a batch")
	f.Int32Var(&p.maxBytes, "max-batch-bytes", 1<<20, "largest batch, and so the largest record")
	return cmd
}

func (p *produce) prepare() (opts []kgo.Opt, err error) {
	if p.delim, err = unescape(p.delim); err != nil {
		return nil, err
	}
	if p.keyDelim, err = unescape(p.keyDelim); err != nil {
		return nil, err
	}
	hs, err := pairs(p.headers, "--header")
	if err != nil {
		return nil, err
	}
	for _, kv := range hs {
		p.fixed = append(p.fixed, kgo.RecordHeader{Key: kv[0], Value: []byte(kv[1])})
	}
	if p.timestamp != "" {
		if p.stamp, err = parseTime(p.timestamp); err != nil {
			return nil, err
		}
	}
	switch {
	case p.delim == "":
		return nil, usage("--delimiter must not be empty").hint("use --whole for one record a file")
	case p.input != "text" && p.input != "json":
		return nil, usage("--input %q is not known", p.input).hint("use text or json")
	case p.set("key") && p.set("key-delimiter"):
		return nil, usage("--key and --key-delimiter exclude each other")
	case p.set("value") && (len(p.files) > 0 || p.tombstone || p.input == "json"):
		return nil, usage("--value excludes --file, --tombstone and --input json")
	case p.tombstone && p.input == "json":
		return nil, usage("--tombstone excludes --input json: write \"value\": null")
	}
	return p.options()
}

var codecs = map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}

func (p *produce) options() ([]kgo.Opt, error) {
	codec, ok := codecs[p.codec]
	if !ok {
		return nil, usage("--compression %q is not known", p.codec).hint("use none, gzip, snappy, lz4 or zstd")
	}
	if p.maxBytes < 1 || p.maxBytes > 1<<30 {
		return nil, usage("--max-batch-bytes must be 1 to %d", 1<<30)
	}
	opts := []kgo.Opt{
		kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(p.linger), kgo.AllowIdempotentProduceCancellation(),
		kgo.ProducerBatchMaxBytes(p.maxBytes), kgo.BrokerMaxWriteBytes(max(100<<20, p.maxBytes+1<<20)),
		kgo.UnknownTopicRetries(5), kgo.MaxBufferedBytes(256 << 20),
		kgo.RecordPartitioner(givenPartition{kgo.StickyKeyPartitioner(nil)}),
	}
	if p.create {
		opts = append(opts, kgo.AllowAutoTopicCreation())
	}
	switch p.acks {
	case "all", "-1":
		if p.plain {
			opts = append(opts, kgo.DisableIdempotentWrite())
		}
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usage("--acks %q is not known", p.acks).hint("use all, 1 or 0")
	}
	return opts, nil
}

// givenPartition keeps the partition of a record that names one, and lets the key decide
// for the others.
type givenPartition struct{ kgo.Partitioner }

func (g givenPartition) ForTopic(t string) kgo.TopicPartitioner {
	return givenTopicPartition{g.Partitioner.ForTopic(t)}
}

type givenTopicPartition struct{ kgo.TopicPartitioner }

func (g givenTopicPartition) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || g.TopicPartitioner.RequiresConsistency(r)
}

func (g givenTopicPartition) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition) // an unknown one fails the record
	}
	return g.TopicPartitioner.Partition(r, n)
}

func (g givenTopicPartition) OnNewBatch() {
	if o, ok := g.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		o.OnNewBatch()
	}
}

type producedRange struct {
	Partition int32 `json:"partition"`
	Count     int64 `json:"count"`
	First     int64 `json:"firstOffset"`
	Last      int64 `json:"lastOffset"`
}

var errNoAck = (&failure{code: exitUnreachable, text: "the cluster acknowledged no record within the timeout"}).hint("see `runnel topic describe --unavailable-partitions`, or try a longer --timeout")

// produced collects the acknowledgements.
type produced struct {
	mu struct {
		sync.Mutex
		ranges map[int32]*producedRange
		err    error // the first
		failed int64
	}
	stop  context.CancelFunc // on the first error
	acked atomic.Int64       // acknowledgements and errors so far
}

// watch gives up when records are waiting and none is acknowledged for the timeout. The
// client's own limit counts from a record's timestamp, which may be years ago.
func (d *produced) watch(ctx context.Context, cl *kgo.Client, limit time.Duration, giveUp context.CancelCauseFunc) {
	tick := time.NewTicker(max(limit/8, time.Millisecond))
	defer tick.Stop()
	seen, since := int64(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if n := d.acked.Load(); n != seen || cl.BufferedProduceRecords() == 0 {
				seen, since = n, now
			} else if now.Sub(since) >= limit {
				giveUp(errNoAck)
				return
			}
		}
	}
}

func (d *produced) ack(r *kgo.Record, err error) {
	d.acked.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.mu.failed++
		if d.mu.err == nil {
			d.mu.err = err
			d.stop()
		}
		return
	}
	pr := d.mu.ranges[r.Partition]
	if pr == nil {
		pr = &producedRange{Partition: r.Partition, First: r.Offset}
		d.mu.ranges[r.Partition] = pr
	}
	pr.Count, pr.Last = pr.Count+1, r.Offset
}

func (p *produce) run(ctx context.Context) error {
	opts, err := p.prepare()
	if err != nil {
		return err
	}
	if err := p.checkTopic(ctx); err != nil {
		return err
	}
	cl, err := p.env.connect(ctx, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	rctx, stop := context.WithCancel(ctx)
	defer stop()
	d := &produced{stop: stop}
	d.mu.ranges = map[int32]*producedRange{}
	// Records live on after Ctrl-C: what was read is sent.
	sctx, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	go d.watch(sctx, cl, p.env.timeout, giveUp)
	err = p.pump(rctx, sctx, cl, d)
	if ferr := cl.Flush(sctx); ferr != nil && err == nil {
		err = errNoAck
	}
	return p.report(ctx, d, err)
}

// pump hands the input to the client until it ends or rctx does. sctx is the records' own.
func (p *produce) pump(rctx, sctx context.Context, cl *kgo.Client, d *produced) error {
	records, readErr := make(chan *kgo.Record, 256), make(chan error, 1)
	go func() {
		// Ends with the input, or with the process where a read of stdin cannot be cut short.
		defer close(records)
		readErr <- p.read(func(r *kgo.Record) error {
			select {
			case records <- r:
				return nil
			case <-rctx.Done():
				return rctx.Err()
			}
		})
	}()
	show := progress{env: p.env, what: "records"}
	defer show.end()
	for n := int64(0); p.count == 0 || n < p.count; n++ {
		select {
		case <-rctx.Done():
			return nil
		case r, ok := <-records:
			if !ok {
				return <-readErr
			}
			cl.Produce(sctx, r, d.ack)
			show.at(n+1, 0)
		}
	}
	return nil
}

func (p *produce) report(ctx context.Context, d *produced, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ranges, total := []producedRange{}, int64(0)
	for _, n := range slices.Sorted(maps.Keys(d.mu.ranges)) {
		r := *d.mu.ranges[n]
		ranges, total = append(ranges, r), total+r.Count
	}
	if p.env.output == "json" {
		werr := p.env.show(map[string]any{"topic": p.topic, "produced": total, "failed": d.mu.failed, "partitions": ranges}, nil)
		if err == nil {
			err = werr
		}
	} else if total > 0 {
		p.env.say("produced %d %s to %s%s", total, plural(total, "record"), p.topic, rangesText(ranges, p.acks == "0"))
	}
	switch {
	case errors.Is(d.mu.err, context.Canceled), err == errNoAck:
		return errNoAck
	case d.mu.err != nil:
		return p.produceError(d.mu.err, d.mu.failed)
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errInterrupted
	}
	return nil
}

func (p *produce) produceError(err error, n int64) error {
	if n > 1 {
		return fmt.Errorf("%d records of topic %s were not written: %w", n, p.topic, err)
	}
	return fmt.Errorf("a record of topic %s was not written: %w", p.topic, err)
}

func plural(n int64, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

func rangesText(ranges []producedRange, unknown bool) string {
	if unknown || len(ranges) > 8 {
		return ""
	}
	var parts []string
	for _, r := range ranges {
		if r.First == r.Last {
			parts = append(parts, fmt.Sprintf("partition %d offset %d", r.Partition, r.First))
		} else {
			parts = append(parts, fmt.Sprintf("partition %d offsets %d-%d", r.Partition, r.First, r.Last))
		}
	}
	return ": " + strings.Join(parts, ", ")
}

func (p *produce) checkTopic(ctx context.Context) error {
	return p.env.admin(ctx, func(ctx context.Context, adm *admin) error {
		topics, _, err := selectTopics(ctx, adm, []string{p.topic})
		var f *failure
		if errors.As(err, &f) && f.code == exitNotFound && p.create {
			return nil
		}
		if err != nil {
			return err
		}
		if n := len(topics[0].Partitions); p.partition >= int32(n) {
			return notFound("topic %q has no partition %d: it has %d", p.topic, p.partition, n)
		}
		return nil
	})
}

// read gives the records of the input to emit.
func (p *produce) read(emit func(*kgo.Record) error) error {
	if p.set("value") {
		return emit(p.dress(&kgo.Record{Partition: p.partition, Value: p.nullable([]byte(p.value))}))
	}
	if p.tombstone && p.set("key") {
		return emit(p.dress(&kgo.Record{Partition: p.partition}))
	}
	files := p.files
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		if err := p.readFile(name, emit); err != nil {
			return err
		}
	}
	return nil
}

func (p *produce) readFile(name string, emit func(*kgo.Record) error) error {
	in := p.env.Stdin
	if name != "-" {
		f, err := p.env.FS.OpenFile(name, vfs.ReadOnly)
		if err != nil {
			return err
		}
		defer f.Close()
		in = io.NewSectionReader(f, 0, 1<<62)
	}
	if p.whole {
		value, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return emit(p.dress(&kgo.Record{Partition: p.partition, Value: value}))
	}
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 0, 64<<10), 1<<30)
	delim := p.delim
	if p.input == "json" {
		delim = "\n"
	}
	sc.Split(splitBy([]byte(delim)))
	for n := 1; sc.Scan(); n++ {
		r, err := p.parse(sc.Bytes())
		if err != nil {
			return failed("%s, record %d: %s", inputName(name), n, err)
		}
		if r == nil {
			continue
		}
		if err := emit(p.dress(r)); err != nil {
			return err
		}
	}
	return sc.Err()
}

func inputName(name string) string {
	if name == "-" {
		return "stdin"
	}
	return name
}

func (p *produce) parse(item []byte) (*kgo.Record, error) {
	if p.input == "json" {
		if len(bytes.TrimSpace(item)) == 0 {
			return nil, nil
		}
		var j jsonRecord
		dec := json.NewDecoder(bytes.NewReader(item))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&j); err != nil {
			return nil, fmt.Errorf("not a record in JSON: %w", err)
		}
		r, err := j.record()
		if err == nil && r.Partition < 0 {
			r.Partition = p.partition
		}
		return r, err
	}
	r := &kgo.Record{Partition: p.partition}
	item = bytes.Clone(item)
	if item == nil {
		item = []byte{}
	}
	if p.tombstone {
		r.Key = item
		return r, nil
	}
	r.Value = item
	if p.keyDelim != "" {
		if k, v, ok := bytes.Cut(item, []byte(p.keyDelim)); ok {
			r.Key, r.Value = p.nullable(k), v
		}
	}
	r.Value = p.nullable(r.Value)
	return r, nil
}

func (p *produce) nullable(v []byte) []byte {
	if p.set("null") && string(v) == p.null {
		return nil
	}
	return v
}

// dress gives a record what the flags say for all of them.
func (p *produce) dress(r *kgo.Record) *kgo.Record {
	r.Topic = p.topic
	if p.set("key") {
		r.Key = p.nullable([]byte(p.key))
	}
	r.Headers = append(r.Headers, p.fixed...)
	if !p.stamp.IsZero() {
		r.Timestamp = p.stamp
	}
	return r
}

// splitBy is a split function of bufio.Scanner: items end with delim, the last one may not.
func splitBy(delim []byte) bufio.SplitFunc {
	return func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.Index(data, delim); i >= 0 {
			return i + len(delim), data[:i], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	}
}
