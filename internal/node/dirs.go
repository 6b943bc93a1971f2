package node

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/ids"
	"runnel/internal/serve/handle/admin"
	"runnel/internal/store/logstore"
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
			d.n.move(tp)
		}
		return nil
	}
	return fmt.Errorf("no directory %s in log.dirs: %w", to, kerr.LogDirNotFound)
}

// moveRetry is the wait for a replica that is about to come or go.
const moveRetry = 100 * time.Millisecond

// move carries a replica into its future log. One that was withdrawn, by a later request
// or with its topic, is no failure.
func (n *Node) move(tp ids.TopicPartition) {
	n.tasks.Go(func() {
		err := n.replicas.Move(n.ctx, tp)
		for errors.Is(err, kerr.ReplicaNotAvailable) && n.store.Future(tp) != nil && n.ctx.Err() == nil {
			// The topic is being made or deleted: soon the replica is there, or the future is not.
			select {
			case <-time.After(moveRetry):
				err = n.replicas.Move(n.ctx, tp)
			case <-n.ctx.Done():
			}
		}
		if err == nil || n.ctx.Err() != nil || errors.Is(err, logstore.ErrNoSuchLog) || n.store.Future(tp) == nil {
			return
		}
		n.opts.Log.Error("cannot move a replica", "partition", tp.String(), "err", err)
	})
}
