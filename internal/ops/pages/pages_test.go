package pages

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the pages in docs/")

const docs = "../../../docs"

func TestPagesAreCurrent(t *testing.T) {
	for name, text := range map[string]string{"configuration.md": Configuration(), "compatibility.md": Compatibility(compared(t))} {
		path := filepath.Join(docs, name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil || string(have) != text {
			t.Errorf("docs/%s is not current: run make docs (%v)", name, err)
		}
	}
}

// compared reads which APIs and versions the recorded comparison holds.
func compared(t *testing.T) func(int16) string {
	t.Helper()
	seen := map[int16]map[int16]bool{}
	files, _ := filepath.Glob("../../../test/compare/testdata/*.json")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		collect(doc, seen)
	}
	return func(key int16) string { return ranges(seen[key]) }
}

// collect finds every {"key": K, "version": V} in a recording.
func collect(v any, seen map[int16]map[int16]bool) {
	switch x := v.(type) {
	case map[string]any:
		k, okK := number(x, "key", "Key")
		ver, okV := number(x, "version", "Version")
		if okK && okV && ver >= 0 {
			if seen[k] == nil {
				seen[k] = map[int16]bool{}
			}
			seen[k][ver] = true
		}
		for _, c := range x {
			collect(c, seen)
		}
	case []any:
		for _, c := range x {
			collect(c, seen)
		}
	}
}

func number(m map[string]any, names ...string) (int16, bool) {
	for _, n := range names {
		if f, ok := m[n].(float64); ok {
			return int16(f), true
		}
	}
	return 0, false
}

func ranges(set map[int16]bool) string {
	var list []int16
	for v := range set {
		list = append(list, v)
	}
	slices.Sort(list)
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

func TestRangesAreShort(t *testing.T) {
	if got := ranges(map[int16]bool{1: true, 2: true, 3: true, 7: true}); got != "1-3, 7" {
		t.Error(got)
	}
}
