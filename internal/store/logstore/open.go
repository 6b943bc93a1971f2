package logstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/commitlog"
)

// Report tells what Open found.
type Report struct {
	Logs            int
	SegmentsScanned int
	BytesScanned    int64
	TruncatedBytes  int64
	Unclean         []string // directories that were not stopped cleanly
	Notes           []string
}

// Open locks the directories, reads their identity and opens every log in them. A
// directory that fails is reported and left out, unless it holds the metadata or is the
// last.
func Open(ctx context.Context, o Options) (*Store, Report, error) {
	if o.RecoveryThreads < 1 {
		o.RecoveryThreads = 2
	}
	s := &Store{o: o, previousEpoch: -1}
	s.rolled.wake = make(chan struct{}, 1)
	s.mu.logs, s.mu.futures = map[ids.TopicPartition]*entry{}, map[ids.TopicPartition]*entry{}
	s.mu.broken, s.mu.cleanFrom = map[ids.TopicPartition]error{}, map[ids.TopicPartition]error{}
	op := opener{Store: s}
	if err := op.open(ctx); err != nil {
		s.unlock()
		return nil, op.report, err
	}
	return s, op.report, nil
}

type opener struct {
	*Store
	mu     sync.Mutex // guards report and duplicates
	report Report
}

func (op *opener) open(ctx context.Context) error {
	for _, p := range op.o.Dirs {
		op.dirs = append(op.dirs, &dir{path: path.Clean(p), data: true, metadata: p == op.o.MetadataDir || op.o.MetadataDir == "" && len(op.dirs) == 0})
	}
	if op.o.MetadataDir != "" && !slices.Contains(op.o.Dirs, op.o.MetadataDir) {
		op.dirs = append(op.dirs, &dir{path: path.Clean(op.o.MetadataDir), metadata: true})
	}
	for _, d := range op.dirs {
		if err := op.lockDir(d); errors.Is(err, vfs.ErrLocked) {
			return fmt.Errorf("log directory %s is in use by another process (its .lock is held)", d.path)
		} else if err != nil {
			op.failDir(d, err)
		}
	}
	if err := op.identify(); err != nil {
		return err
	}
	op.readMarkers()
	for _, d := range op.dirs {
		if d.failure() != nil || !d.data {
			continue
		}
		if err := op.openDir(ctx, d); err != nil {
			return err
		}
	}
	return op.enoughDirs()
}

func (op *opener) enoughDirs() error {
	alive := 0
	for _, d := range op.dirs {
		err := d.failure()
		if err != nil && d.metadata {
			return fmt.Errorf("the metadata directory failed: %w", err)
		}
		if err == nil && d.data {
			alive++
		}
	}
	if alive == 0 && len(op.o.Dirs) > 0 {
		return fmt.Errorf("no log directory of log.dirs is usable; the first says: %w", op.dirs[0].failure())
	}
	return nil
}

func (op *opener) lockDir(d *dir) error {
	if err := op.o.FS.MkdirAll(d.path); err != nil {
		return err
	}
	lock, err := op.o.FS.Lock(path.Join(d.path, ".lock"))
	d.lock = lock
	return err
}

func (s *Store) unlock() {
	for _, d := range s.dirs {
		if d.lock != nil {
			d.lock.Close()
			d.lock = nil
		}
	}
}

// identify reads meta.properties of all directories: they must agree, and one without gets
// its own once another says who we are.
func (op *opener) identify() error {
	var fresh []*dir
	known := 0
	cluster := op.o.ClusterID
	seen := map[ids.UUID]string{}
	for _, d := range op.dirs {
		if d.failure() != nil {
			continue
		}
		m, err := checkpoint.ReadMeta(op.o.FS, d.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fresh = append(fresh, d)
			continue
		case errors.Is(err, checkpoint.ErrFormat):
			return err
		case err != nil:
			op.failDir(d, err)
			continue
		}
		known++
		if cluster == "" {
			cluster = m.ClusterID
		}
		if m.ClusterID != cluster {
			return fmt.Errorf("log directory %s belongs to cluster %q, not %q: %w", d.path, m.ClusterID, cluster, kerr.InconsistentClusterID)
		}
		if m.NodeID != op.o.NodeID {
			return fmt.Errorf("log directory %s belongs to node %d, but node.id=%d", d.path, m.NodeID, op.o.NodeID)
		}
		if m.DirectoryID.IsZero() {
			m.DirectoryID = op.newID()
			if err := checkpoint.WriteMeta(op.o.FS, d.path, m); err != nil {
				op.failDir(d, err)
			}
		}
		if other, dup := seen[m.DirectoryID]; dup {
			return fmt.Errorf("log directories %s and %s carry the same directory.id %s: one is a copy", other, d.path, m.DirectoryID)
		}
		seen[m.DirectoryID] = d.path
		d.id = m.DirectoryID
	}
	if known == 0 && len(fresh) > 0 {
		return fmt.Errorf("no log directory has a meta.properties: format the storage first (%s)", fresh[0].path)
	}
	op.o.ClusterID = cluster
	for _, d := range fresh {
		d.id = op.newID()
		err := checkpoint.WriteMeta(op.o.FS, d.path, checkpoint.MetaProperties{Version: 1, ClusterID: cluster, NodeID: op.o.NodeID, DirectoryID: d.id})
		if err != nil {
			op.failDir(d, err)
		}
	}
	return nil
}

// ClusterID is what meta.properties says.
func (s *Store) ClusterID() string { return s.o.ClusterID }

// readMarkers learns which directories were stopped cleanly, and removes the markers
// before anything else changes.
func (op *opener) readMarkers() {
	epochs := make([]int64, 0, len(op.dirs))
	for _, d := range op.dirs {
		epoch := int64(-1)
		if d.failure() == nil {
			var err error
			if d.clean, epoch, err = checkpoint.ReadClean(op.o.FS, d.path); err == nil && d.clean {
				err = checkpoint.RemoveClean(op.o.FS, d.path)
			}
			if err != nil {
				op.failDir(d, err)
				epoch = -1
			}
			if !d.clean {
				op.report.Unclean = append(op.report.Unclean, d.path)
			}
		}
		epochs = append(epochs, epoch)
	}
	if len(epochs) > 0 && slices.Min(epochs) == slices.Max(epochs) {
		op.previousEpoch = epochs[0]
	}
}

// openDir opens the logs of one directory. Errors of the disk take the directory offline;
// only what an operator must decide is returned.
func (op *opener) openDir(ctx context.Context, d *dir) error {
	infos, err := op.o.FS.ReadDir(d.path)
	if err != nil {
		op.failDir(d, err)
		return nil
	}
	if err := d.marks.load(op.o.FS, d.path, op.note(d)); err != nil {
		op.failDir(d, err)
		return nil
	}
	var work []logDir
	for _, i := range infos {
		if !i.IsDir {
			continue
		}
		tp, k, err := parseDir(i.Name)
		if err != nil {
			return fmt.Errorf("log directory %s: %w; remove what does not belong there", d.path, err)
		}
		switch k {
		case live, future:
			work = append(work, logDir{i.Name, tp, k})
		case deleting:
			op.doom(path.Join(d.path, i.Name), op.o.Now().Add(op.o.FileDeleteDelay))
		case stray:
			op.note(d)(fmt.Sprintf("%s is not in the cluster's metadata and is left alone", i.Name))
		}
	}
	return op.openLogs(ctx, d, work)
}

type logDir struct {
	name string
	tp   ids.TopicPartition
	kind kind
}

func (op *opener) openLogs(ctx context.Context, d *dir, work []logDir) error {
	next := make(chan logDir)
	var wg sync.WaitGroup
	var fatal error
	done := 0
	for range min(op.o.RecoveryThreads, max(len(work), 1)) {
		wg.Go(func() {
			for w := range next {
				err := op.openOne(d, w)
				op.mu.Lock()
				if fatal == nil {
					fatal = err
				}
				done++
				n := done
				op.mu.Unlock()
				if op.o.Events.Recovering != nil && !d.clean {
					op.o.Events.Recovering(d.path, n, len(work))
				}
			}
		})
	}
	for _, w := range work {
		if ctx.Err() != nil || d.failure() != nil {
			break
		}
		next <- w
	}
	close(next)
	wg.Wait()
	if fatal == nil {
		fatal = ctx.Err()
	}
	return fatal
}

// openOne opens one log. Only what concerns the whole node is returned.
func (op *opener) openOne(d *dir, w logDir) error {
	o := op.logOptions(d, w.name, w.tp)
	if w.kind == live {
		o.RecoveryPoint, o.LogStart, o.HighWatermark = d.marks.at(recoveryPoint, w.tp), d.marks.at(logStart, w.tp), d.marks.at(highWatermark, w.tp)
	}
	o.CleanedTo = d.marks.at(cleanerPoint, w.tp)
	l, r, err := commitlog.Open(o)
	for _, n := range r.Notes {
		op.note(d)(w.name + ": " + n)
	}
	switch {
	case errors.Is(err, commitlog.ErrNoIdentity):
		return op.setAside(d, w, err)
	case err != nil:
		op.note(d)(err.Error())
		op.Store.mu.Lock()
		op.Store.mu.broken[w.tp] = err
		op.Store.mu.Unlock()
		if !errors.Is(err, kerr.KafkaStorageError) && !vfs.IsFull(err) {
			op.failDir(d, err)
		}
		if op.o.Events.LogFailed != nil {
			op.o.Events.LogFailed(w.tp, err)
		}
		return nil
	}
	op.mu.Lock()
	op.report.Logs++
	op.report.SegmentsScanned += r.SegmentsScanned
	op.report.BytesScanned += r.BytesScanned
	op.report.TruncatedBytes += r.TruncatedBytes
	op.mu.Unlock()
	return op.enter(d, w, l)
}

// enter puts an opened log into its map.
func (op *opener) enter(d *dir, w logDir, l *commitlog.Log) error {
	op.Store.mu.Lock()
	defer op.Store.mu.Unlock()
	m := op.Store.mu.logs
	if w.kind == future {
		m = op.Store.mu.futures
	}
	if other := m[w.tp]; other != nil {
		return fmt.Errorf("partition %s is in both %s and %s: remove the one that is not current", w.tp, other.log.Dir(), l.Dir())
	}
	m[w.tp] = &entry{l, d}
	return nil
}

// setAside renames a directory that holds data of an unknown topic: it was never flushed,
// so nothing of it was durable.
func (op *opener) setAside(d *dir, w logDir, cause error) error {
	to := op.transitionName(w.tp, straySuffix)
	if err := op.o.FS.Rename(path.Join(d.path, w.name), path.Join(d.path, to)); err != nil {
		op.failDir(d, err)
		return nil
	}
	if err := op.o.FS.SyncDir(d.path); err != nil {
		op.failDir(d, err)
		return nil
	}
	op.note(d)(fmt.Sprintf("%s was set aside as %s: %v", w.name, to, cause))
	return nil
}

func (op *opener) note(d *dir) func(string) {
	return func(text string) {
		op.mu.Lock()
		op.report.Notes = append(op.report.Notes, d.path+": "+text)
		op.mu.Unlock()
		if op.o.Events.Note != nil {
			op.o.Events.Note(d.path, text)
		}
	}
}
