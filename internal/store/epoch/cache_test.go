package epoch

import (
	"errors"
	"fmt"
	"testing"

	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
)

func of(pairs ...int64) *Cache {
	c := &Cache{}
	for i := 0; i < len(pairs); i += 2 {
		c.Assign(int32(pairs[i]), pairs[i+1])
	}
	return c
}

func TestAssign(t *testing.T) {
	for _, x := range []struct {
		have    *Cache
		epoch   int32
		start   int64
		want    string
		changed bool
	}{
		{of(), 0, 0, "[{0 0}]", true}, // epoch 0 counts
		{of(0, 0), 0, 5, "[{0 0}]", false},
		{of(0, 0), 1, 10, "[{0 0} {1 10}]", true},
		{of(0, 0, 1, 10), 2, 10, "[{0 0} {2 10}]", true}, // an epoch without records
		{of(0, 0, 1, 10, 2, 20), 3, 15, "[{0 0} {1 10} {3 15}]", true},
		{of(0, 0, 1, 10, 4, 20), 2, 30, "[{0 0} {1 10} {2 30}]", true},
		{of(0, 5), 0, 3, "[{0 3}]", true},
		{of(0, 5), -1, 3, "[{0 5}]", false},
	} {
		before := fmt.Sprint(x.have.Entries())
		if got := x.have.Assign(x.epoch, x.start); got != x.changed || fmt.Sprint(x.have.Entries()) != x.want {
			t.Errorf("%s assign (%d, %d): %v changed %t, want %s %t", before, x.epoch, x.start, x.have.Entries(), got, x.want, x.changed)
		}
	}
}

func TestEndOffset(t *testing.T) {
	c := of(2, 10, 4, 20, 7, 30)
	for _, x := range []struct {
		ask, epoch int32
		end        int64
	}{{-1, -1, -1}, {7, 7, 99}, {8, -1, -1}, {1, 1, 10}, {2, 2, 20}, {3, 2, 20}, {4, 4, 30}, {6, 4, 30}} {
		if e, o := c.EndOffset(x.ask, 99); e != x.epoch || o != x.end {
			t.Errorf("end of %d: (%d, %d), want (%d, %d)", x.ask, e, o, x.epoch, x.end)
		}
	}
	if e, o := of().EndOffset(3, 99); e != -1 || o != -1 {
		t.Errorf("empty cache: (%d, %d)", e, o)
	}
}

func TestTruncate(t *testing.T) {
	c := of(2, 10, 4, 20, 7, 30)
	c.TruncateFromEnd(30)
	if got := fmt.Sprint(c.Entries()); got != "[{2 10} {4 20}]" {
		t.Errorf("from the end: %s", got)
	}
	c.TruncateFromStart(15)
	if got := fmt.Sprint(c.Entries()); got != "[{2 15} {4 20}]" {
		t.Errorf("inside the first epoch: %s", got)
	}
	c.TruncateFromStart(20)
	if got := fmt.Sprint(c.Entries()); got != "[{4 20}]" {
		t.Errorf("at an epoch's start: %s", got)
	}
	c.TruncateFromStart(90)
	if got := fmt.Sprint(c.Entries()); got != "[{4 90}]" {
		t.Errorf("beyond all: %s", got)
	}
	c.TruncateFromStart(5)
	if got := fmt.Sprint(c.Entries()); got != "[{4 90}]" {
		t.Errorf("before all: %s", got)
	}
	if c.For(89) != Undefined || c.For(90) != 4 || c.Latest() != 4 {
		t.Error("lookup after truncation")
	}
}

func TestSaveLoad(t *testing.T) {
	m := vfs.NewMem()
	c := of(0, 0, 3, 7)
	if err := c.Save(m, ""); err != nil {
		t.Fatal(err)
	}
	var back Cache
	if err := back.Load(m.Crash(nil), ""); err != nil || fmt.Sprint(back.Entries()) != "[{0 0} {3 7}]" || back.Dirty() {
		t.Fatalf("%v, %v", back.Entries(), err)
	}
	checkpoint.Write(m, File, []byte("0\n1\nx y\n"), false)
	if err := back.Load(m, ""); !errors.Is(err, checkpoint.ErrFormat) || len(back.Entries()) != 0 {
		t.Fatalf("broken file: %v, %v", back.Entries(), err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("0\n2\n0 0\n1 5\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := vfs.NewMem()
		checkpoint.Write(m, File, data, false)
		var c Cache
		c.Load(m, "")
		e := c.Entries()
		for i := 1; i < len(e); i++ {
			if e[i].Epoch <= e[i-1].Epoch || e[i].Start <= e[i-1].Start {
				t.Fatalf("entries do not rise: %v", e)
			}
		}
	})
}
