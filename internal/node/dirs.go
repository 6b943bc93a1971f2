package node

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/ids"
	"runnel/internal/serve/handle/admin"
)

// logDirs shows and moves replicas between directories (serve/handle/admin's Dirs).
type logDirs struct{ n *Node }

// List describes every configured directory with the replicas in it.
func (d logDirs) List() []admin.Dir {
	var out []admin.Dir
	index := map[string]int{}
	for _, dir := range d.n.store.Dirs() {
		index[dir.Path] = len(out)
		out = append(out, admin.Dir{Path: absolute(dir.Path), Err: dir.Err, Total: dir.Space.Total, Free: dir.Space.Free})
	}
	add := func(dir string, r admin.DirReplica) {
		if i, ok := index[dir]; ok {
			out[i].Replicas = append(out[i].Replicas, r)
		}
	}
	for log := range d.n.store.All() {
		o := log.Offsets()
		add(path.Dir(log.Dir()), admin.DirReplica{TP: log.TP(), Size: log.Size(), Lag: max(o.HighWatermark-o.End, 0)})
		if f := d.n.store.Future(log.TP()); f != nil {
			add(path.Dir(f.Dir()), admin.DirReplica{TP: f.TP(), Size: f.Size(), Lag: o.End - f.Offsets().End, Future: true})
		}
	}
	for i := range out {
		slices.SortFunc(out[i].Replicas, func(a, b admin.DirReplica) int {
			return cmp.Or(cmp.Compare(a.TP.Topic, b.TP.Topic), cmp.Compare(a.TP.Partition, b.TP.Partition))
		})
	}
	return out
}

func absolute(p string) string {
	if abs, err := filepath.Abs(filepath.FromSlash(p)); err == nil {
		return abs
	}
	return p
}

// Move starts moving a replica to the directory of a path.
func (d logDirs) Move(tp ids.TopicPartition, to string) error {
	for _, dir := range d.n.store.Dirs() {
		if dir.Path != path.Clean(to) && absolute(dir.Path) != absolute(to) {
			continue
		}
		if dir.Err != nil {
			return fmt.Errorf("directory %s is offline: %w", to, kerr.KafkaStorageError)
		}
		if err := d.n.store.MoveTo(tp, dir.ID); err != nil {
			return err
		}
		if d.n.store.Future(tp) != nil {
			d.n.tasks.Go(func() {
				if err := d.n.replicas.Move(d.n.ctx, tp); err != nil && d.n.ctx.Err() == nil {
					d.n.opts.Log.Error("cannot move a replica", "partition", tp.String(), "to", to, "err", err)
				}
			})
		}
		return nil
	}
	return fmt.Errorf("no directory %s in log.dirs: %w", to, kerr.LogDirNotFound)
}
