package pages

import (
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
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

// compared reads which APIs and versions the recording of Apache Kafka's answers holds:
// those of steps that were answered.
func compared(t *testing.T) func(int16) string {
	t.Helper()
	f, err := os.Open("../../../test/compare/testdata/kafka.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]map[int16]bool{}
	for d := json.NewDecoder(z); d.More(); {
		var scene struct {
			Steps []struct {
				Request string `json:"request"`
				How     string `json:"how"`
			} `json:"steps"`
		}
		if err := d.Decode(&scene); err != nil {
			t.Fatal(err)
		}
		for _, s := range scene.Steps {
			var name string
			var version int16
			if n, _ := fmt.Sscanf(s.Request, "%s v%d", &name, &version); n != 2 || s.How != "answered" {
				continue
			}
			if seen[name] == nil {
				seen[name] = map[int16]bool{}
			}
			seen[name][version] = true
		}
	}
	return func(key int16) string { return ranges(seen[kmsg.NameForKey(key)]) }
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
