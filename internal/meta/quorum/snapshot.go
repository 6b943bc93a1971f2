package quorum

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/meta/metarec"
)

const (
	maxBatchBytes    = 8 << 20
	checkpointSuffix = ".checkpoint"
	partSuffix       = ".part"
	deletedSuffix    = ".deleted"
	// BootstrapFile is where releases before 4.4 put the records a new cluster starts with.
	BootstrapFile = "bootstrap.checkpoint"
)

// SnapshotID names a snapshot: the offset after its last record, and that record's epoch.
type SnapshotID struct {
	EndOffset int64
	Epoch     int32
}

var noSnapshot = SnapshotID{-1, -1}

func compareSnapshots(a, b SnapshotID) int { return cmp.Compare(a.EndOffset, b.EndOffset) }

func (s SnapshotID) fileName() string {
	return fmt.Sprintf("%020d-%010d%s", s.EndOffset, s.Epoch, checkpointSuffix)
}

func (s SnapshotID) bootstrap() bool { return s == SnapshotID{} }

func parseSnapshotName(name string) (SnapshotID, bool) {
	base, ok := strings.CutSuffix(name, checkpointSuffix)
	if !ok || len(base) != 31 || base[20] != '-' {
		return noSnapshot, false
	}
	end, err1 := strconv.ParseInt(base[:20], 10, 64)
	epoch, err2 := strconv.ParseInt(base[21:], 10, 32)
	if err1 != nil || err2 != nil || end < 0 || epoch < 0 {
		return noSnapshot, false
	}
	return SnapshotID{end, int32(epoch)}, true
}

// listSnapshots gives the snapshots other than 0-0, oldest first, and removes what an
// interrupted write, download or deletion left behind.
func listSnapshots(f vfs.FS, dir string) (snaps []SnapshotID, bootstrap bool, err error) {
	entries, err := f.ReadDir(dir)
	if err != nil {
		return nil, false, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name, checkpointSuffix+partSuffix) || strings.HasSuffix(e.Name, checkpointSuffix+deletedSuffix) {
			if err := f.Remove(path.Join(dir, e.Name)); err != nil {
				return nil, false, err
			}
			continue
		}
		id, ok := parseSnapshotName(e.Name)
		switch {
		case !ok:
		case id.bootstrap():
			bootstrap = true
		default:
			snaps = append(snaps, id)
		}
	}
	slices.SortFunc(snaps, compareSnapshots)
	return snaps, bootstrap, nil
}

// snapshotWriter writes one snapshot to a part file.
type snapshotWriter struct {
	fs    vfs.FS
	dir   string
	part  string
	file  vfs.File
	id    SnapshotID
	at    int64 // bytes written
	next  int64 // base offset of the next batch
	ts    int64
	batch *record.Builder
}

// writeSnapshot makes a snapshot file durable under its name: header, data, footer.
// nonce tells part files apart.
func writeSnapshot(f vfs.FS, dir string, id SnapshotID, ts int64, head []metarec.Control, values iter.Seq[[]byte], nonce uint64) error {
	w := &snapshotWriter{fs: f, dir: dir, id: id, ts: ts}
	w.part = path.Join(dir, fmt.Sprintf("%s-%016x%s%s", strings.TrimSuffix(id.fileName(), checkpointSuffix), nonce, checkpointSuffix, partSuffix))
	var err error
	if w.file, err = f.OpenFile(w.part, vfs.ReadWrite|vfs.Create|vfs.Trunc); err != nil {
		return err
	}
	err = w.write(head, values)
	if err == nil {
		err = w.file.Sync()
	}
	if cerr := w.file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = freeze(f, dir, w.part, id)
	}
	if err != nil {
		f.Remove(w.part)
		return fmt.Errorf("snapshot %s: %w", id.fileName(), err)
	}
	return nil
}

// freeze gives a complete and synced part file its name.
func freeze(f vfs.FS, dir, part string, id SnapshotID) error {
	if err := f.Rename(part, path.Join(dir, id.fileName())); err != nil {
		return err
	}
	return f.SyncDir(dir)
}

func (w *snapshotWriter) write(head []metarec.Control, values iter.Seq[[]byte]) error {
	if err := w.control(append([]metarec.Control{&metarec.SnapshotHeader{LastContainedLogTimestamp: w.ts}}, head...)...); err != nil {
		return err
	}
	for v := range values {
		if w.batch != nil && w.batch.SizeEstimate()+len(v)+32 > maxBatchBytes/8 {
			if err := w.flush(); err != nil {
				return err
			}
		}
		if w.batch == nil {
			w.batch = w.builder(0)
		}
		w.batch.Add(nil, v)
	}
	if err := w.flush(); err != nil {
		return err
	}
	return w.control(&metarec.SnapshotFooter{})
}

func (w *snapshotWriter) builder(attributes int16) *record.Builder {
	return &record.Builder{BaseOffset: w.next, LeaderEpoch: w.id.Epoch, Attributes: attributes, Timestamp: w.ts}
}

func (w *snapshotWriter) control(records ...metarec.Control) error {
	w.batch = w.builder(record.ControlBit)
	for _, c := range records {
		k, v := metarec.EncodeControl(c)
		w.batch.Add(k, v)
	}
	return w.flush()
}

func (w *snapshotWriter) flush() error {
	if w.batch == nil {
		return nil
	}
	b := w.batch.Build()
	w.batch = nil
	if _, err := w.file.WriteAt(b, w.at); err != nil {
		return err
	}
	w.at += int64(len(b))
	w.next = b.NextOffset()
	return nil
}

var errSnapshot = errors.New("not a whole snapshot")

// snapshotBatches gives the batches of a snapshot file. The last item is an error if the
// file has no header, no footer, or a bad batch.
func snapshotBatches(f vfs.FS, name string) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		file, err := f.OpenFile(name, vfs.ReadOnly)
		if err != nil {
			yield(nil, err)
			return
		}
		defer file.Close()
		err = eachBatch(file, func(b record.Batch) bool { return yield(b, nil) })
		if err != nil && err != errStopped {
			yield(nil, fmt.Errorf("%s: %w", path.Base(name), err))
		}
	}
}

var errStopped = errors.New("stopped")

func eachBatch(file vfs.File, each func(record.Batch) bool) error {
	size, err := file.Size()
	if err != nil {
		return err
	}
	footer := false
	for at := int64(0); at < size; {
		b, err := batchAt(file, at, size)
		if err != nil {
			return err
		}
		typ, err := firstControl(b)
		if err != nil {
			return err
		}
		if (at == 0) != (typ == metarec.TypeSnapshotHeader) || footer {
			return fmt.Errorf("%w: unexpected batch at byte %d", errSnapshot, at)
		}
		footer = typ == metarec.TypeSnapshotFooter
		at += int64(len(b))
		if !each(b) {
			return errStopped
		}
	}
	if !footer {
		return fmt.Errorf("%w: it ends without a footer", errSnapshot)
	}
	return nil
}

func batchAt(file vfs.File, at, size int64) (record.Batch, error) {
	if size-at < record.HeaderSize {
		return nil, fmt.Errorf("%w: %d bytes at its end", errSnapshot, size-at)
	}
	head := make([]byte, record.HeaderSize)
	if _, err := file.ReadAt(head, at); err != nil && err != io.EOF {
		return nil, err
	}
	n, err := record.HeaderBatchSize(head)
	if err != nil {
		return nil, err
	}
	if int64(n) > size-at || n < record.HeaderSize {
		return nil, fmt.Errorf("%w: batch of %d bytes at byte %d of %d", errSnapshot, n, at, size)
	}
	buf := make([]byte, n)
	if _, err := file.ReadAt(buf, at); err != nil && err != io.EOF {
		return nil, err
	}
	b, _, err := record.Next(buf)
	if err != nil {
		return nil, err
	}
	if !b.ValidCRC() {
		return nil, fmt.Errorf("%w: checksum of the batch at byte %d", errSnapshot, at)
	}
	return b, nil
}

// firstControl is the type of a control batch's first record, -1 for data.
func firstControl(b record.Batch) (int16, error) {
	if !b.IsControl() {
		return -1, nil
	}
	controls, err := controlsOf(b)
	if err != nil {
		return -1, err
	}
	if len(controls) == 0 {
		return -1, fmt.Errorf("%w: empty control batch", errSnapshot)
	}
	return controls[0].ControlType(), nil
}

// recordsOf gives a batch's records.
func recordsOf(b record.Batch) ([]record.Record, error) {
	p := b.Payload()
	if c := b.Codec(); c != record.None {
		var err error
		if p, err = record.Decompress(nil, c, p, 4*maxBatchBytes); err != nil {
			return nil, err
		}
	}
	if int(b.Count()) < 0 || int(b.Count()) > len(p) {
		return nil, fmt.Errorf("%w: %d records in %d bytes", record.ErrMalformed, b.Count(), len(p))
	}
	out := make([]record.Record, 0, b.Count())
	for range b.Count() {
		r, err := record.ReadRecord(p, false)
		if err != nil {
			return nil, err
		}
		out, p = append(out, r), p[r.Size:]
	}
	return out, nil
}

func controlsOf(b record.Batch) ([]metarec.Control, error) {
	records, err := recordsOf(b)
	if err != nil {
		return nil, err
	}
	out := make([]metarec.Control, 0, len(records))
	for _, r := range records {
		c, err := metarec.DecodeControl(r.Key, r.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func valuesOf(b record.Batch) ([][]byte, error) {
	records, err := recordsOf(b)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(records))
	for i, r := range records {
		out[i] = r.Value
	}
	return out, nil
}

// ReadSnapshot gives the data records of a snapshot file.
func ReadSnapshot(f vfs.FS, name string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for b, err := range snapshotBatches(f, name) {
			if err != nil {
				yield(nil, err)
				return
			}
			if b.IsControl() {
				continue
			}
			values, err := valuesOf(b)
			if err != nil {
				yield(nil, fmt.Errorf("%s: %w", path.Base(name), err))
				return
			}
			for _, v := range values {
				if !yield(v, nil) {
					return
				}
			}
		}
	}
}

// snapshotHead gives the control records of a snapshot's header batch.
func snapshotHead(f vfs.FS, name string) ([]metarec.Control, error) {
	for b, err := range snapshotBatches(f, name) {
		if err != nil {
			return nil, err
		}
		return controlsOf(b)
	}
	return nil, fmt.Errorf("%s: %w: it is empty", path.Base(name), errSnapshot)
}

// snapshotTime is the last contained timestamp of a snapshot.
func snapshotTime(f vfs.FS, name string) int64 {
	head, err := snapshotHead(f, name)
	if err != nil || len(head) == 0 {
		return -1
	}
	if h, ok := head[0].(*metarec.SnapshotHeader); ok {
		return h.LastContainedLogTimestamp
	}
	return -1
}

// ReadBootstrap gives what a new cluster starts with: the records of checkpoint 0-0, or of
// bootstrap.checkpoint in the metadata directory; none if neither file is there.
func ReadBootstrap(f vfs.FS, metadataDir, logDir string) ([][]byte, error) {
	for _, name := range []string{path.Join(metadataDir, BootstrapFile), path.Join(logDir, SnapshotID{}.fileName())} {
		if _, err := f.Stat(name); err != nil {
			continue
		}
		var out [][]byte
		for v, err := range ReadSnapshot(f, name) {
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		if len(out) > 0 {
			return out, nil
		}
	}
	return nil, nil
}

// Format writes checkpoint 0-0, as formatting a directory does: the voters if kraft.version
// is 1, and the records that a new cluster starts with.
func Format(f vfs.FS, logDir string, kraftVersion int16, voters VoterSet, values iter.Seq[[]byte], now int64, nonce uint64) error {
	if err := f.MkdirAll(logDir); err != nil {
		return err
	}
	return writeSnapshot(f, logDir, SnapshotID{}, now, headOf(kraftVersion, voters), values, nonce)
}

func headOf(kraftVersion int16, voters VoterSet) []metarec.Control {
	if kraftVersion < 1 {
		return nil
	}
	head := []metarec.Control{&metarec.KRaftVersion{KRaftVersion: kraftVersion}}
	if len(voters) > 0 {
		head = append(head, &metarec.KRaftVoters{Voters: voters})
	}
	return head
}
