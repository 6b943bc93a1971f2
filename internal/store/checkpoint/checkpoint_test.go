package checkpoint

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"syscall"
	"testing"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
)

func TestOffsetsRoundTripAndRefusals(t *testing.T) {
	m := vfs.NewMem()
	want := Offsets{{Topic: "a-b.c", Partition: 3}: 1 << 40, {Topic: "t"}: 0}
	if err := WriteOffsets(m, RecoveryPoint, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadOffsets(m, RecoveryPoint)
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("%v, %v", got, err)
	}
	if got, err := ReadOffsets(m, "missing"); err != nil || len(got) != 0 {
		t.Fatalf("missing file: %v, %v", got, err)
	}
	for _, bad := range []string{"1\n0\n", "0\n", "0\n2\nt 0 1\n", "0\n1\nt 0\n", "0\n1\nt x 1\n", "0\n1\nt 0 -1\n", "\x00\x00\x00"} {
		Write(m, "bad", []byte(bad), false)
		if _, err := ReadOffsets(m, "bad"); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v, want ErrFormat", bad, err)
		}
	}
}

func TestReplaceSurvivesEveryCrash(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	m := vfs.NewMem()
	if err := Replace(m, "f", []byte("old content")); err != nil {
		t.Fatal(err)
	}
	m.OnOp(func(vfs.Op) {
		for range 20 {
			b, err := vfs.ReadFile(m.Crash(rnd), "f")
			if s := string(b); err != nil || s != "old content" && s != "the new content" {
				t.Fatalf("after a crash: %q, %v", b, err)
			}
		}
	})
	if err := Replace(m, "f", []byte("the new content")); err != nil {
		t.Fatal(err)
	}
	m.OnOp(nil)
	if b, _ := vfs.ReadFile(m.Crash(nil), "f"); string(b) != "the new content" {
		t.Fatalf("after Replace returned: %q", b)
	}
}

func TestReplaceFailsWithoutHarm(t *testing.T) {
	f := vfs.NewFault(vfs.NewMem())
	Replace(f, "f", []byte("old"))
	for n := 1; n <= 4; n++ {
		f.Script(vfs.FailNth(n, syscall.ENOSPC))
		if err := Replace(f, "f", []byte("new")); !vfs.IsFull(err) {
			t.Fatalf("operation %d: %v", n, err)
		}
		f.Script()
		if b, _ := vfs.ReadFile(f, "f"); string(b) != "old" {
			t.Fatalf("operation %d: content %q", n, b)
		}
	}
}

func TestPartitionMetadata(t *testing.T) {
	m := vfs.NewMem()
	id := ids.UUID{1, 2, 3}
	if err := WritePartitionMetadata(m, "", id); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadPartitionMetadata(m, ""); err != nil || got != id {
		t.Fatalf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "version: 0\n", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n", "topic_id: x\nversion: 0", "\x00\x00"} {
		Write(m, PartitionMetadata, []byte(bad), false)
		if _, err := ReadPartitionMetadata(m, ""); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v, want ErrFormat", bad, err)
		}
	}
}

func TestMetaProperties(t *testing.T) {
	m := vfs.NewMem()
	if _, err := ReadMeta(m, ""); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	want := MetaProperties{Version: 1, ClusterID: "a:b=c", NodeID: 7, DirectoryID: ids.UUID{9}}
	if err := WriteMeta(m, "", want); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadMeta(m, ""); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	Write(m, MetaFile, []byte("version=1\nnode.id=x\ncluster.id=c\n"), false)
	if _, err := ReadMeta(m, ""); !errors.Is(err, ErrFormat) {
		t.Fatal(err)
	}
}

func TestCleanShutdownMarker(t *testing.T) {
	m := vfs.NewMem()
	check := func(wantClean bool, wantEpoch int64) {
		t.Helper()
		if clean, epoch, err := ReadClean(m, ""); clean != wantClean || epoch != wantEpoch || err != nil {
			t.Fatalf("clean %t, epoch %d, %v; want %t, %d", clean, epoch, err, wantClean, wantEpoch)
		}
	}
	check(false, -1)
	WriteClean(m, "", 42)
	check(true, 42)
	Write(m, CleanShutdown, nil, false)
	check(true, -1)
	if err := RemoveClean(m, ""); err != nil {
		t.Fatal(err)
	}
	check(false, -1)
	m = m.Crash(nil)
	check(false, -1)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("0\n1\nt 0 5\n"))
	f.Add([]byte("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"))
	f.Add([]byte("version=1\nnode.id=3\ncluster.id=x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if lines, err := ParseLines(data); err == nil {
			if o, err := parseOffsets(lines); err == nil && len(o) > len(lines) {
				t.Fatal("more offsets than lines")
			}
		}
		if id, err := parsePartitionMetadata(string(data)); err == nil && id.IsZero() {
			t.Fatal("the zero topic id was accepted")
		}
		parseMeta(data)
	})
}
