package quorum

import (
	"fmt"
	"iter"
	"path"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/record"
	"runnel/internal/meta/metarec"
)

// ask runs fn in the loop and waits for it.
func (q *Quorum) ask(fn func()) error {
	ran := make(chan struct{})
	if !q.post(func() { fn(); close(ran) }) {
		return errClosed
	}
	select {
	case <-ran:
		return nil
	case <-q.done:
		return errClosed
	}
}

// WriteSnapshot makes a snapshot of the state below id.EndOffset, which values describe;
// ts is the timestamp of the last batch in it. It blocks for as long as the disk takes and
// leaves the loop alone. An id that exists already, or that does not fit the committed log
// at the start of a batch, is refused.
func (q *Quorum) WriteSnapshot(id SnapshotID, ts int64, values iter.Seq[[]byte]) error {
	var head []metarec.Control
	var nonce uint64
	var err error
	if asked := q.ask(func() {
		nonce = q.opt.Random()
		if err = q.mayWrite(id); err == nil {
			head = headOf(q.hist.versionUpTo(id.EndOffset-1), q.hist.votersAt(id.EndOffset-1))
		}
	}); asked != nil {
		return asked
	}
	if err != nil {
		return err
	}
	if err := writeSnapshot(q.opt.FS, q.opt.Dir, id, ts, head, values, nonce); err != nil {
		return err
	}
	return q.ask(func() {
		if i, have := slices.BinarySearchFunc(q.snaps, id, compareSnapshots); !have {
			q.snaps = slices.Insert(q.snaps, i, id)
		}
		q.clean()
		if q.m.hw >= 0 {
			q.feed.committed(q.m.hw, q.newest())
		}
	})
}

func (q *Quorum) mayWrite(id SnapshotID) error {
	o := q.opt.Log.Offsets()
	switch {
	case id.EndOffset > q.m.hw:
		return fmt.Errorf("snapshot %s ends above the high watermark %d: %w", id.fileName(), q.m.hw, kerr.InvalidRequest)
	case id.EndOffset < o.LogStart || id.EndOffset <= 0:
		return fmt.Errorf("snapshot %s ends below the log's start %d: %w", id.fileName(), o.LogStart, kerr.InvalidRequest)
	case len(q.snaps) > 0 && id.EndOffset <= q.newest().EndOffset:
		return fmt.Errorf("snapshot %s is not newer than %s: %w", id.fileName(), q.newest().fileName(), kerr.InvalidRequest)
	}
	if e, end := q.epochEnd(id.Epoch, o.End); e != id.Epoch || id.EndOffset > end {
		return fmt.Errorf("snapshot %s does not fit the log, where epoch %d ends at %d: %w", id.fileName(), e, end, kerr.InvalidRequest)
	}
	if id.EndOffset == o.End {
		return nil
	}
	read, err := q.opt.Log.Read(id.EndOffset, o.End, 1, true)
	if err != nil {
		return err
	}
	read.Region.Done()
	if read.BaseOffset != id.EndOffset {
		return fmt.Errorf("snapshot %s ends inside the batch at offset %d: %w", id.fileName(), read.BaseOffset, kerr.InvalidRequest)
	}
	return nil
}

// clean drops the oldest snapshots, and the log below the next, while there is a newer one
// and metadata.max.retention.bytes or .ms ask for it.
func (q *Quorum) clean() {
	for len(q.snaps) >= 2 && q.tooMuch() {
		next := q.snaps[1]
		if err := q.opt.Log.RaiseLogStart(next.EndOffset); err != nil {
			q.opt.Logger.Error("the metadata log cannot be cleaned", "offset", next.EndOffset, "error", err)
			return
		}
		if err := q.opt.FS.Remove(path.Join(q.opt.Dir, q.snaps[0].fileName())); err != nil {
			q.opt.Logger.Error("an old snapshot cannot be deleted", "snapshot", q.snaps[0].fileName(), "error", err)
		}
		q.snaps = q.snaps[1:]
		if _, err := q.opt.Log.DeleteOld(q.opt.Now()); err != nil {
			q.opt.Logger.Error("the metadata log cannot be cleaned", "error", err)
			return
		}
	}
}

func (q *Quorum) tooMuch() bool {
	if q.opt.RetentionMs >= 0 {
		ts := snapshotTime(q.opt.FS, path.Join(q.opt.Dir, q.snaps[0].fileName()))
		if ts >= 0 && record.Millis(q.opt.Now())-ts > q.opt.RetentionMs {
			return true
		}
	}
	if q.opt.RetentionBytes < 0 {
		return false
	}
	total := q.opt.Log.Size()
	for _, s := range q.snaps {
		if info, err := q.opt.FS.Stat(path.Join(q.opt.Dir, s.fileName())); err == nil {
			total += info.Size
		}
	}
	return total > q.opt.RetentionBytes
}
