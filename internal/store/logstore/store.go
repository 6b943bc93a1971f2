package logstore

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/commitlog"
)

// Options says where the logs are and how they are kept.
type Options struct {
	FS          vfs.FS
	Dirs        []string // log.dirs
	MetadataDir string   // metadata.log.dir; one of Dirs, or a directory of its own, or ""
	ClusterID   string   // "" takes what meta.properties says
	NodeID      int32
	Config      func(topic string) *config.Log
	Now         func() time.Time
	Random      func() uint64

	RetentionCheck      time.Duration // log.retention.check.interval.ms
	InitialDelay        time.Duration // log.initial.task.delay.ms
	FlushCheckpoint     time.Duration // log.flush.offset.checkpoint.interval.ms
	StartCheckpoint     time.Duration // log.flush.start.offset.checkpoint.interval.ms
	HWCheckpoint        time.Duration // replica.high.watermark.checkpoint.interval.ms
	CleanerBackoff      time.Duration // log.cleaner.backoff.ms
	CleanerMapBytes     int64         // log.cleaner.dedupe.buffer.size
	CleanerBytesPerSec  float64       // log.cleaner.io.max.bytes.per.second; 0 is without limit
	CleanerDisabled     bool
	FlushScheduler      time.Duration // how often flush.ms is looked at
	ProducerExpiryMs    int64         // producer.id.expiration.ms
	ProducerExpiryCheck time.Duration
	FileDeleteDelay     time.Duration // log.segment.delete.delay.ms, for whole partitions
	RecoveryThreads     int           // num.recovery.threads.per.data.dir
	// MinFreeBytes is runnel.log.dir.min.free.bytes: below it appends are refused.
	MinFreeBytes int64
	Events       Events
}

// Events tell the outside what happened. Every field may be nil. They are called without
// a lock.
type Events struct {
	Recovering func(dir string, done, total int)
	DirFailed  func(dir string, err error)
	LogFailed  func(tp ids.TopicPartition, err error)
	Full       func(dir string, full bool)
	Deleted    func(tp ids.TopicPartition, segments int)
	Cleaned    func(tp ids.TopicPartition, before, after int64)
	CleanError func(tp ids.TopicPartition, err error)
	Note       func(dir, text string)
}

// Store is the open logs of a node.
type Store struct {
	o             Options
	dirs          []*dir
	previousEpoch int64
	rolled        rolledQueue
	// moving makes each step of a move and each removal of a partition one step: whoever
	// takes a log away may not take the one that a move is putting in place. It is taken
	// before mu.
	moving sync.Mutex
	mu     struct {
		sync.RWMutex
		logs      map[ids.TopicPartition]*entry
		futures   map[ids.TopicPartition]*entry
		broken    map[ids.TopicPartition]error
		cleanFrom map[ids.TopicPartition]error // uncleanable logs
		doomed    []doomed
	}
}

type entry struct {
	log *commitlog.Log
	dir *dir
}

// doomed is a partition directory to be removed.
type doomed struct {
	path string
	due  time.Time
}

// dir is one log directory.
type dir struct {
	path     string
	id       ids.UUID
	metadata bool // holds __cluster_metadata
	data     bool // holds partitions
	clean    bool // was stopped cleanly before
	lock     io.Closer
	err      atomic.Pointer[error]
	full     atomic.Bool
	checked  atomic.Int64 // ms of the last look at the space
	marks    marks
}

func (d *dir) failure() error {
	if p := d.err.Load(); p != nil {
		return *p
	}
	return nil
}

// Dir describes a log directory.
type Dir struct {
	ID       ids.UUID
	Path     string
	Err      error // why it is offline
	Space    vfs.Space
	Full     bool // too little space is left: appends are refused
	Metadata bool
}

// ErrNoSuchLog says that the store has no such partition.
var ErrNoSuchLog = errors.New("no such log")

// Log is the partition's log, nil if there is none.
func (s *Store) Log(tp ids.TopicPartition) *commitlog.Log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.mu.logs[tp]; e != nil {
		return e.log
	}
	return nil
}

// Broken is why a partition that is on disk could not be opened, or nil.
func (s *Store) Broken(tp ids.TopicPartition) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.broken[tp]
}

// All lists the logs as they are now.
func (s *Store) All() iter.Seq[*commitlog.Log] {
	return func(yield func(*commitlog.Log) bool) {
		for _, e := range s.entries(nil) {
			if !yield(e.log) {
				return
			}
		}
	}
}

// entries copies the list of logs, of one directory or of all.
func (s *Store) entries(d *dir) []*entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*entry, 0, len(s.mu.logs))
	for _, e := range s.mu.logs {
		if d == nil || e.dir == d {
			out = append(out, e)
		}
	}
	return out
}

// Dirs describes the log directories.
func (s *Store) Dirs() []Dir {
	out := make([]Dir, 0, len(s.dirs))
	for _, d := range s.dirs {
		out = append(out, s.describe(d))
	}
	return out
}

func (s *Store) describe(d *dir) Dir {
	space, err := s.o.FS.Space(d.path)
	if err != nil {
		space = vfs.Space{Total: -1, Free: -1}
	}
	full := space.Free >= 0 && space.Free < s.o.MinFreeBytes
	return Dir{d.id, d.path, d.failure(), space, full, d.metadata}
}

// DirOf is the directory of a partition's log.
func (s *Store) DirOf(tp ids.TopicPartition) (Dir, bool) {
	s.mu.RLock()
	e := s.mu.logs[tp]
	s.mu.RUnlock()
	if e == nil {
		return Dir{}, false
	}
	return s.describe(e.dir), true
}

// PreviousBrokerEpoch is what all clean markers agreed on, or -1.
func (s *Store) PreviousBrokerEpoch() int64 { return s.previousEpoch }

// spaceEvery is how long a look at a directory's free space holds, in ms.
const spaceEvery = 200

// Writable says whether appends to a directory's logs are welcome: nil, or why not.
func (s *Store) Writable(dirPath string) error {
	for _, d := range s.dirs {
		if d.path == dirPath {
			return s.writable(d)
		}
	}
	return fmt.Errorf("%s is not a log directory: %w", dirPath, kerr.LogDirNotFound)
}

func (s *Store) writable(d *dir) error {
	if err := d.failure(); err != nil {
		return err
	}
	if s.o.MinFreeBytes <= 0 {
		return nil
	}
	now := s.o.Now().UnixMilli()
	if last := d.checked.Load(); now-last >= spaceEvery || now < last {
		if d.checked.CompareAndSwap(last, now) {
			s.checkSpace(d)
		}
	}
	if d.full.Load() {
		return fmt.Errorf("log directory %s has less than runnel.log.dir.min.free.bytes=%d bytes free: %w", d.path, s.o.MinFreeBytes, kerr.KafkaStorageError)
	}
	return nil
}

func (s *Store) checkSpace(d *dir) {
	space, err := s.o.FS.Space(d.path)
	if err != nil || space.Free < 0 {
		return
	}
	full := space.Free < s.o.MinFreeBytes
	if d.full.Swap(full) != full && s.o.Events.Full != nil {
		s.o.Events.Full(d.path, full)
	}
}

// failDir takes a directory offline: its logs are dropped and its files left alone.
func (s *Store) failDir(d *dir, err error) {
	err = fmt.Errorf("log directory %s is offline: %w: %w", d.path, kerr.KafkaStorageError, err)
	if !d.err.CompareAndSwap(nil, &err) {
		return
	}
	for _, e := range s.entries(d) {
		e.log.Fail(err)
	}
	s.mu.Lock()
	for tp, e := range s.mu.logs {
		if e.dir == d {
			delete(s.mu.logs, tp)
			s.mu.broken[tp] = err
		}
	}
	for tp, e := range s.mu.futures {
		if e.dir == d {
			delete(s.mu.futures, tp)
		}
	}
	s.mu.Unlock()
	if s.o.Events.DirFailed != nil {
		s.o.Events.DirFailed(d.path, err)
	}
}

// logBroke takes a log whose bytes are damaged out of service; any other error of the disk
// takes its whole directory.
func (s *Store) logBroke(d *dir, l *commitlog.Log, err error) {
	if !errors.Is(err, kerr.CorruptMessage) {
		s.failDir(d, err)
		return
	}
	tp := l.TP()
	s.mu.Lock()
	if e := s.mu.logs[tp]; e != nil && e.log == l {
		delete(s.mu.logs, tp)
		s.mu.broken[tp] = err
	}
	s.mu.Unlock()
	if s.o.Events.LogFailed != nil {
		s.o.Events.LogFailed(tp, err)
	}
}

// logOptions is how the store opens a log.
func (s *Store) logOptions(d *dir, name string, tp ids.TopicPartition) commitlog.Options {
	return commitlog.Options{
		FS: s.o.FS, Dir: path.Join(d.path, name), TP: tp, Config: s.o.Config(tp.Topic), Now: s.o.Now, Random: s.o.Random,
		ProducerExpiryMs: s.o.ProducerExpiryMs, Clean: d.clean, Rolled: s.rolled.add,
		Lowered: func(l *commitlog.Log, rp int64) error { return s.lowered(d, tp, rp) },
		Broken:  func(l *commitlog.Log, err error) { s.logBroke(d, l, err) },
	}
}

// OpenMetadataLog opens __cluster_metadata in the metadata directory.
func (s *Store) OpenMetadataLog(cfg *config.Log) (*commitlog.Log, commitlog.Recovery, error) {
	for _, d := range s.dirs {
		if !d.metadata {
			continue
		}
		if err := d.failure(); err != nil {
			return nil, commitlog.Recovery{}, err
		}
		tp := ids.TopicPartition{Topic: ids.MetadataTopic}
		return commitlog.Open(commitlog.Options{
			FS: s.o.FS, Dir: path.Join(d.path, tp.String()), TP: tp, TopicID: ids.MetadataTopicID, Config: cfg, Now: s.o.Now, Random: s.o.Random,
			ProducerExpiryMs: s.o.ProducerExpiryMs, Clean: d.clean, MetadataLog: true, Rolled: s.rolled.add,
			Broken: func(_ *commitlog.Log, err error) { s.failDir(d, err) },
		})
	}
	return nil, commitlog.Recovery{}, fmt.Errorf("no metadata directory: set metadata.log.dir or log.dirs")
}

// MetadataDir is the path of the metadata directory.
func (s *Store) MetadataDir() string {
	for _, d := range s.dirs {
		if d.metadata {
			return d.path
		}
	}
	return ""
}

// Format writes meta.properties into an empty directory.
func Format(fs vfs.FS, dir string, m checkpoint.MetaProperties) error {
	if err := fs.MkdirAll(dir); err != nil {
		return err
	}
	if err := checkpoint.WriteMeta(fs, dir, m); err != nil {
		return err
	}
	return fs.SyncDir(path.Dir(dir))
}

// ReadMeta and WriteMeta are a directory's identity.
func ReadMeta(fs vfs.FS, dir string) (checkpoint.MetaProperties, error) {
	return checkpoint.ReadMeta(fs, dir)
}

func WriteMeta(fs vfs.FS, dir string, m checkpoint.MetaProperties) error {
	return checkpoint.WriteMeta(fs, dir, m)
}
