package logstore

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"sync"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
)

// mark is one of a directory's offset checkpoints.
type mark int

const (
	recoveryPoint mark = iota
	logStart
	highWatermark
	cleanerPoint
	markKinds
)

var markFiles = [markKinds]string{checkpoint.RecoveryPoint, checkpoint.LogStart, checkpoint.HighWatermark, checkpoint.Cleaner}

// marks are the checkpoint files of a directory as they are on disk.
type marks struct {
	mu struct {
		sync.Mutex
		written [markKinds]checkpoint.Offsets // immutable maps
	}
}

// load reads all four. One that cannot be parsed counts as empty: every use of it has a
// safe answer for "unknown".
func (m *marks) load(fs vfs.FS, dir string, note func(string)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, file := range markFiles {
		o, err := checkpoint.ReadOffsets(fs, path.Join(dir, file))
		if errors.Is(err, checkpoint.ErrFormat) {
			note(fmt.Sprintf("%v; it is taken as empty", err))
			o, err = checkpoint.Offsets{}, nil
		}
		if err != nil {
			return err
		}
		m.mu.written[k] = o
	}
	return nil
}

// at is the partition's value on disk, 0 without one.
func (m *marks) at(k mark, tp ids.TopicPartition) int64 {
	v, _ := m.get(k, tp)
	return v
}

func (m *marks) get(k mark, tp ids.TopicPartition) (int64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.mu.written[k][tp]
	return v, ok
}

// write replaces a file if it would change. gather is called with the files locked, so
// that what it reads is not older than what an earlier call wrote.
func (m *marks) write(fs vfs.FS, dir string, k mark, gather func(old checkpoint.Offsets) checkpoint.Offsets) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := gather(m.mu.written[k])
	if maps.Equal(o, m.mu.written[k]) {
		return nil
	}
	if err := checkpoint.WriteOffsets(fs, path.Join(dir, markFiles[k]), o); err != nil {
		return err
	}
	m.mu.written[k] = o
	return nil
}

// set changes one entry of a file; drop removes it.
func (m *marks) set(fs vfs.FS, dir string, k mark, tp ids.TopicPartition, v int64) error {
	return m.write(fs, dir, k, func(old checkpoint.Offsets) checkpoint.Offsets {
		o := make(checkpoint.Offsets, len(old)+1)
		maps.Copy(o, old)
		o[tp] = v
		return o
	})
}

func (m *marks) drop(fs vfs.FS, dir string, k mark, tps map[ids.TopicPartition]bool) error {
	return m.write(fs, dir, k, func(old checkpoint.Offsets) checkpoint.Offsets {
		o := maps.Clone(old)
		maps.DeleteFunc(o, func(tp ids.TopicPartition, _ int64) bool { return tps[tp] })
		if o == nil {
			o = checkpoint.Offsets{}
		}
		return o
	})
}

// value is what a log's entry in a checkpoint should be; ok is false for none.
func (e *entry) value(k mark) (v int64, ok bool) {
	o := e.log.Offsets()
	switch k {
	case recoveryPoint:
		return o.Durable, true
	case highWatermark:
		return o.HighWatermark, true
	case logStart:
		return o.LogStart, o.LogStart > e.log.FirstBase()
	}
	return 0, false
}

// checkpoint writes one kind for all logs of a directory.
func (s *Store) checkpoint(d *dir, k mark) error {
	if d.failure() != nil || !d.data {
		return nil
	}
	err := d.marks.write(s.o.FS, d.path, k, func(old checkpoint.Offsets) checkpoint.Offsets {
		entries := s.entries(d)
		o := make(checkpoint.Offsets, len(entries))
		for _, e := range entries {
			if v, ok := e.value(k); ok {
				o[e.log.TP()] = v
			}
		}
		// A partition that could not be opened keeps its entries.
		s.mu.RLock()
		for tp := range s.mu.broken {
			if v, ok := old[tp]; ok {
				o[tp] = v
			}
		}
		s.mu.RUnlock()
		return o
	})
	if err != nil && !vfs.IsFull(err) {
		s.failDir(d, err)
	}
	return err
}

// lowered makes the files say no more than rp before a log is cut there.
func (s *Store) lowered(d *dir, tp ids.TopicPartition, rp int64) error {
	for _, k := range []mark{recoveryPoint, logStart} {
		if v, ok := d.marks.get(k, tp); ok && v > rp {
			if err := d.marks.set(s.o.FS, d.path, k, tp, max(rp, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget removes what the files say of partitions whose names are to be used anew.
func (s *Store) forget(d *dir, tps map[ids.TopicPartition]bool) error {
	for k := range markKinds {
		if err := d.marks.drop(s.o.FS, d.path, k, tps); err != nil {
			return err
		}
	}
	return nil
}
