package replica

import (
	"iter"
	"log/slog"
	"path"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/repl/partition"
	"runnel/internal/store/commitlog"
	"runnel/internal/store/logstore"
)

// Store is what the table needs of the log directories.
type Store interface {
	Log(tp ids.TopicPartition) *commitlog.Log
	Create([]logstore.New) ([]*commitlog.Log, error)
	Delete(tp ids.TopicPartition) error
	Stray(tp ids.TopicPartition) error
	All() iter.Seq[*commitlog.Log]
	// Broken is why a log that is on disk could not be opened, or nil.
	Broken(tp ids.TopicPartition) error
	// Writable says why a directory takes no appends now, nil if it does.
	Writable(dir string) error
	CatchUp(tp ids.TopicPartition, bytes int) (done bool, err error)
	Promote(tp ids.TopicPartition) (*commitlog.Log, error)
}

// Options make a Table.
type Options struct {
	NodeID          int32
	Store           Store
	Layers          func() *config.Layers
	MaxDecompressed int
	Log             *slog.Logger
}

// Table is this broker's replicas.
type Table struct {
	opts Options
	mu   struct {
		sync.RWMutex
		byTP map[ids.TopicPartition]*partition.Partition
	}
	// placing is held from a look at the store's log until the partition has it, so that
	// no move puts another one in between. It is taken before a partition's lock.
	placing sync.Mutex
	moves   struct {
		sync.Mutex
		asked map[ids.TopicPartition]int // times Move was asked since the running one began
	}
}

// New makes an empty table.
func New(o Options) *Table {
	t := &Table{opts: o}
	t.moves.asked = map[ids.TopicPartition]int{}
	t.mu.byTP = map[ids.TopicPartition]*partition.Partition{}
	return t
}

// Get finds a replica, nil if this broker has none.
func (t *Table) Get(tp ids.TopicPartition) *partition.Partition {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.mu.byTP[tp]
}

// All lists the replicas in no particular order.
func (t *Table) All() []*partition.Partition {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]*partition.Partition, 0, len(t.mu.byTP))
	for _, p := range t.mu.byTP {
		out = append(out, p)
	}
	return out
}

// Apply carries out what a new image changes for this broker: deletions first, then new
// and changed roles. Logs of new replicas are made together, so that their directory is
// synced once.
func (t *Table) Apply(img *image.Image, delta *image.Delta) {
	var wanted []role
	for _, d := range delta.Topics {
		t.removed(d)
		if d.New == nil {
			continue
		}
		for _, i := range d.Changed {
			p := d.New.Partitions[i]
			if slices.Contains(p.Replicas, t.opts.NodeID) {
				wanted = append(wanted, role{ids.TopicPartition{Topic: d.New.Name, Partition: i}, d.New.ID, p})
			}
		}
	}
	t.assume(img, wanted)
	t.reconfigure(img, delta)
}

// role is a partition as this broker is to serve it.
type role struct {
	tp      ids.TopicPartition
	topicID ids.UUID
	want    *image.Partition
}

// removed deletes the replicas that a topic's change takes from this broker.
func (t *Table) removed(d *image.TopicDelta) {
	if d.Old == nil {
		return
	}
	for i, p := range d.Old.Partitions {
		if !slices.Contains(p.Replicas, t.opts.NodeID) {
			continue
		}
		if d.New != nil {
			if now := d.New.Partition(int32(i)); now != nil && slices.Contains(now.Replicas, t.opts.NodeID) {
				continue
			}
		}
		t.delete(ids.TopicPartition{Topic: d.Old.Name, Partition: int32(i)})
	}
}

func (t *Table) delete(tp ids.TopicPartition) {
	t.mu.Lock()
	p := t.mu.byTP[tp]
	delete(t.mu.byTP, tp)
	t.mu.Unlock()
	if p != nil {
		p.Delete()
	}
	if t.opts.Store.Log(tp) == nil {
		return
	}
	if err := t.opts.Store.Delete(tp); err != nil {
		t.opts.Log.Error("cannot delete a replica's log", "partition", tp.String(), "err", err)
	}
}

// assume puts replicas into their roles, making those that do not exist.
func (t *Table) assume(img *image.Image, roles []role) {
	var missing []logstore.New
	for _, r := range roles {
		if log := t.opts.Store.Log(r.tp); log == nil {
			missing = append(missing, logstore.New{TP: r.tp, TopicID: r.topicID, Dir: t.directory(r.want)})
		}
	}
	if len(missing) > 0 {
		if _, err := t.opts.Store.Create(missing); err != nil {
			t.opts.Log.Error("cannot create logs", "partitions", len(missing), "err", err)
		}
	}
	for _, r := range roles {
		t.place(t.replica(img, r), r)
	}
}

func (t *Table) place(p *partition.Partition, r role) {
	t.placing.Lock()
	defer t.placing.Unlock()
	log := t.opts.Store.Log(r.tp)
	if log == nil {
		err := t.opts.Store.Broken(r.tp)
		if err == nil {
			err = kerr.KafkaStorageError
		}
		p.Fail(err)
		return
	}
	if err := p.Apply(log, r.want); err != nil {
		t.opts.Log.Error("cannot serve a replica", "partition", r.tp.String(), "err", err)
	}
}

// directory is where the image places this broker's replica.
func (t *Table) directory(p *image.Partition) ids.UUID {
	if i := slices.Index(p.Replicas, t.opts.NodeID); i >= 0 && i < len(p.Directories) {
		return p.Directories[i]
	}
	return ids.DirUnassigned
}

// replica finds the table's entry for a role, new if there is none or it is of another
// topic of the same name.
func (t *Table) replica(img *image.Image, r role) *partition.Partition {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.mu.byTP[r.tp]
	if p != nil && p.TopicID() == r.topicID {
		return p
	}
	p = partition.New(partition.Options{
		TP: r.tp, TopicID: r.topicID, NodeID: t.opts.NodeID, Config: t.config(img, r.tp.Topic),
		MaxDecompressed: t.opts.MaxDecompressed,
		Admit:           func(log *commitlog.Log) error { return t.opts.Store.Writable(path.Dir(log.Dir())) },
	})
	t.mu.byTP[r.tp] = p
	return p
}

// Lost takes the replicas offline whose logs the store does not have any more.
func (t *Table) Lost(err error) {
	for _, p := range t.All() {
		if t.opts.Store.Log(p.TP()) == nil {
			p.Fail(err)
		}
	}
}

func (t *Table) config(img *image.Image, topic string) *config.Log {
	return t.opts.Layers().Topic(img.Config(image.TopicConfig, topic))
}

// reconfigure puts changed topic and broker configs in force.
func (t *Table) reconfigure(img *image.Image, delta *image.Delta) {
	everything := false
	changed := map[string]bool{}
	for r := range delta.Configs {
		switch r.Type {
		case image.TopicConfig:
			changed[r.Name] = true
		case image.BrokerConfig:
			everything = true
		}
	}
	if !everything && len(changed) == 0 {
		return
	}
	configs := map[string]*config.Log{}
	for _, p := range t.All() {
		name := p.TP().Topic
		if !everything && !changed[name] {
			continue
		}
		c := configs[name]
		if c == nil {
			c = t.config(img, name)
			configs[name] = c
		}
		p.SetConfig(c)
	}
}

// SetAside marks logs that the cluster does not place here: kept on disk, never served
// and never deleted by us. It is called once, after the first image.
func (t *Table) SetAside(img *image.Image) {
	for log := range t.opts.Store.All() {
		tp := log.TP()
		topic := img.Topic(tp.Topic)
		p := topic.Partition(tp.Partition)
		if p != nil && slices.Contains(p.Replicas, t.opts.NodeID) && (log.TopicID() == ids.Zero || log.TopicID() == topic.ID) {
			continue
		}
		t.opts.Log.Warn("a log on disk belongs to no partition of this broker; it is set aside as stray", "partition", tp.String(), "topic.id", log.TopicID().String())
		if err := t.opts.Store.Stray(tp); err != nil {
			t.opts.Log.Error("cannot set a stray log aside", "partition", tp.String(), "err", err)
		}
	}
}
