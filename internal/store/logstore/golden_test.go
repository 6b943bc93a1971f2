package logstore

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/commitlog"
)

// unpack puts a data directory that Apache Kafka wrote on a file system.
func unpack(t *testing.T, fs vfs.FS, archive, dir string) {
	t.Helper()
	f, err := os.Open("testdata/" + archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := path.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			fs.MkdirAll(name)
			continue
		}
		fs.MkdirAll(path.Dir(name))
		w, err := fs.OpenFile(name, vfs.ReadWrite|vfs.Create)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		w.WriteAt(data, 0)
		w.Close()
		fs.SetModTime(name, h.ModTime)
	}
}

func goldenOptions(fs vfs.FS) Options {
	cfg := config.DefaultLog()
	cfg.RetentionMs = -1
	compacted := *cfg
	compacted.Compact, compacted.Delete = true, false
	return Options{FS: fs, Dirs: []string{"data"}, NodeID: 1,
		Config: func(topic string) *config.Log {
			if strings.HasPrefix(topic, "__") || topic == "compacted" {
				return &compacted
			}
			return cfg
		},
		Now: time.Now, Random: func() uint64 { return 7 }, ProducerExpiryMs: 86400000, FileDeleteDelay: time.Minute}
}

// digest is what the golden files say of a partition.
type digest struct {
	records, first, last int64
	sum                  hash.Hash
}

func read(t *testing.T, l *commitlog.Log, committed bool) digest {
	t.Helper()
	o := l.Offsets()
	d := digest{first: -1, last: -1, sum: sha256.New()}
	upper := o.HighWatermark
	if committed {
		upper = o.LastStable
	}
	for from := o.LogStart; from < upper; {
		r, err := l.Read(from, upper, 10_000, true)
		if err != nil {
			t.Fatalf("%s at %d: %v", l.TP(), from, err)
		}
		raw, err := r.Region.ReadAll()
		r.Region.Done()
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 {
			break
		}
		// As a consumer does it: transactions of this fetch only.
		var aborted []commitlog.AbortedTxn
		if committed {
			if aborted, err = l.AbortedTxns(from, r.Upper()); err != nil {
				t.Fatal(err)
			}
		}
		for len(raw) > 0 {
			b, rest, err := record.Next(raw)
			if err != nil {
				break
			}
			raw = rest
			if b.IsControl() || committed && dropped(aborted, b) {
				from = b.NextOffset()
				continue
			}
			d.add(t, b, from)
			from = b.NextOffset()
		}
	}
	return d
}

func dropped(aborted []commitlog.AbortedTxn, b record.Batch) bool {
	for _, a := range aborted {
		if b.IsTransactional() && a.ProducerID == b.ProducerID() && b.BaseOffset() >= a.First && b.LastOffset() < a.Last {
			return true
		}
	}
	return false
}

func text(b []byte) string {
	if b == nil {
		return "-"
	}
	return hex.EncodeToString(b)
}

func (d *digest) add(t *testing.T, b record.Batch, from int64) {
	t.Helper()
	payload := b.Payload()
	if b.Codec() != record.None {
		var err error
		if payload, err = record.Decompress(nil, b.Codec(), payload, 64<<20); err != nil {
			t.Fatal(err)
		}
	}
	for range b.Count() {
		r, err := record.ReadRecord(payload, true)
		if err != nil {
			t.Fatal(err)
		}
		payload = payload[r.Size:]
		off, ts := b.BaseOffset()+int64(r.OffsetDelta), b.BaseTimestamp()+r.TimestampDelta
		if b.IsLogAppendTime() {
			ts = b.MaxTimestamp()
		}
		if off < from {
			continue
		}
		var headers []string
		for _, h := range r.Headers {
			headers = append(headers, string(h.Key)+"="+text(h.Value))
		}
		fmt.Fprintf(d.sum, "%d\t%d\t%s\t%s\t%s\n", off, ts, text(r.Key), text(r.Value), strings.Join(headers, ","))
		if d.first < 0 {
			d.first = off
		}
		d.last = off
		d.records++
	}
}

func lines(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// Directories that Apache Kafka 4.4 wrote, stopped and killed, give what Apache Kafka
// itself reads from them; so they do once we stopped and reopened them, and once we were
// killed.
func TestGoldenDirectories(t *testing.T) {
	for _, archive := range []string{"kafka-4.4.0-clean.tar.gz", "kafka-4.4.0-killed.tar.gz"} {
		t.Run(archive, func(t *testing.T) {
			m := vfs.NewMem()
			unpack(t, m, archive, "data")
			o := goldenOptions(m)
			s, report, err := Open(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			wasClean := strings.Contains(archive, "clean")
			if wasClean != (report.SegmentsScanned == 0) || wasClean != (len(report.Unclean) == 0) {
				t.Errorf("%+v", report)
			}
			if wasClean && s.PreviousBrokerEpoch() != 236 || !wasClean && s.PreviousBrokerEpoch() != -1 {
				t.Errorf("previous broker epoch %d", s.PreviousBrokerEpoch())
			}
			checkGolden(t, s)
			s.Abandon() // killed
			if s, report, err = Open(context.Background(), o); err != nil || report.TruncatedBytes != 0 {
				t.Fatalf("%+v, %v", report, err)
			}
			checkGolden(t, s)
			if err := s.Close(9); err != nil {
				t.Fatal(err)
			}
			if s, report, err = Open(context.Background(), o); err != nil || report.SegmentsScanned != 0 || s.PreviousBrokerEpoch() != 9 {
				t.Fatalf("after our clean stop: %+v, %v, epoch %d", report, err, s.PreviousBrokerEpoch())
			}
			checkGolden(t, s)
		})
	}
}

func checkGolden(t *testing.T, s *Store) {
	t.Helper()
	for _, line := range lines(t, "offsets.txt") {
		spec, which, _ := strings.Cut(line, " ")
		f := strings.Split(spec, ":")
		tp := ids.TopicPartition{Topic: f[0]}
		p, _ := strconv.Atoi(f[1])
		tp.Partition = int32(p)
		want, _ := strconv.ParseInt(f[2], 10, 64)
		l := s.Log(tp)
		if l == nil {
			t.Errorf("%s is missing", tp)
			continue
		}
		l.AdvanceHighWatermark(l.Offsets().End)
		o := l.Offsets()
		got := o.LogStart
		if which == "latest" {
			got = o.End
		}
		if got != want {
			t.Errorf("%s %s: %d, want %d", tp, which, got, want)
		}
	}
	for _, line := range lines(t, "records.tsv")[1:] {
		f := strings.Split(line, "\t")
		p, _ := strconv.Atoi(f[1])
		tp := ids.TopicPartition{Topic: f[0], Partition: int32(p)}
		l := s.Log(tp)
		if l == nil {
			continue
		}
		d := read(t, l, f[2] == "read_committed")
		got := fmt.Sprintf("%d\t%d\t%d\t%x", d.records, d.first, d.last, d.sum.Sum(nil))
		want := strings.Join(f[3:], "\t")
		if got != want {
			t.Errorf("%s %s:\n%s\nwant\n%s", tp, f[2], got, want)
		}
	}
}
