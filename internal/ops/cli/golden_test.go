package cli

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"

	"runnel/internal/kit/vfs"
)

const goldenDir = "../../store/logstore/testdata/"

// dump reads every file that Apache Kafka wrote, stopped or killed, without finding damage,
// and finds the records that Kafka's consumer read.
func TestDumpReadsWhatKafkaWrote(t *testing.T) {
	want := goldenCounts(t)
	for _, archive := range []string{"kafka-4.4.0-clean.tar.gz", "kafka-4.4.0-killed.tar.gz"} {
		fs := vfs.NewMem()
		dirs := unpack(t, fs, goldenDir+archive)
		types := map[string]bool{}
		for _, dir := range dirs {
			r := runOn(t, fs, "", "dump", dir, "--deep", "-o", "json")
			if r.code == exitNotFound {
				continue // a directory of directories
			}
			if r.code != exitOK {
				t.Errorf("%s: %s exit %d %s", archive, dir, r.code, r.stderr)
				continue
			}
			n := countRecords(t, r.stdout, types)
			if w, ok := want[path.Base(dir)]; ok && n != w {
				t.Errorf("%s: %s has %d records, Kafka read %d", archive, dir, n, w)
			}
		}
		for _, typ := range []string{"FeatureLevelRecord", "TopicRecord", "PartitionRecord", "OffsetCommit", "GroupMetadata", "TransactionLog", "ConsumerGroupMetadata", "COMMIT", "ABORT", "LeaderChange", "SnapshotFooter"} {
			if !types[typ] {
				t.Errorf("%s: no %s was found", archive, typ)
			}
		}
	}
}

// goldenCounts gives the records of each partition, without those Kafka's transactions
// decide about.
func goldenCounts(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(goldenDir + "records.tsv")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, "\t")
		// A trimmed or compacted log may hold more on disk than a consumer sees.
		if len(f) < 4 || f[2] != "read_uncommitted" || f[0] == "trimmed" || f[0] == "compacted" {
			continue
		}
		n, err := strconv.Atoi(f[3])
		if err != nil {
			t.Fatal(err)
		}
		out[f[0]+"-"+f[1]] = n
	}
	if len(out) < 10 {
		t.Fatalf("only %d partitions to compare", len(out))
	}
	return out
}

func countRecords(t *testing.T, lines string, types map[string]bool) (n int) {
	t.Helper()
	sc := bufio.NewScanner(strings.NewReader(lines))
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e struct {
			Kind string `json:"kind"`
			Type string `json:"type"`
		}
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			t.Fatalf("%v: %.200s", err, sc.Text())
		}
		if e.Kind == "record" {
			n++
		}
		types[e.Type] = true
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

func unpack(t *testing.T, fs vfs.FS, archive string) (dirs []string) {
	t.Helper()
	f, err := os.Open(archive)
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
			return dirs
		}
		if err != nil {
			t.Fatal(err)
		}
		name := path.Join("/golden", h.Name)
		if h.Typeflag == tar.TypeDir {
			fs.MkdirAll(name)
			dirs = append(dirs, name)
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		fs.MkdirAll(path.Dir(name))
		put(t, fs, name, data)
	}
}
