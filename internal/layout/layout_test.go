package layout

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// floors give each package's height; imports go down, or sideways only along edges.
var floors = []struct {
	prefix string
	floor  int
}{
	{"internal/kit", 0},
	{"internal/store", 1}, {"internal/wire", 1}, {"internal/peer", 1}, {"internal/simnet", 1},
	{"internal/meta", 2},
	{"internal/sec", 3},
	{"internal/repl", 4},
	{"internal/coord", 5},
	{"internal/serve", 6},
	{"internal/node", 7},
	{"internal/ops", 8}, {"internal/sim", 8}, {"runnel", 8},
	{"cmd", 9}, {"test", 9}, {"bench", 9}, {"internal/layout", 9},
}

// edges are the imports allowed inside a floor, by package below internal.
var edges = map[string][]string{
	"kit/config":      {"kit/ids", "kit/record"},
	"kit/record":      {},
	"kit/ids":         {},
	"kit/vfs":         {},
	"peer":            {"wire"},
	"wire":            {},
	"store/segment":   {},
	"store/epoch":     {"store/checkpoint"},
	"store/producer":  {"store/checkpoint"},
	"store/commitlog": {"store/checkpoint", "store/epoch", "store/producer", "store/segment"},
	"store/compact":   {"store/checkpoint", "store/commitlog", "store/producer", "store/segment"},
	"store/logstore":  {"store/checkpoint", "store/commitlog", "store/compact", "store/epoch", "store/producer", "store/segment"},
	"meta/image":      {"meta/feature", "meta/metarec"},
	"meta/quorum":     {"meta/metarec", "meta/feature"},
	"meta/controller": {"meta/feature", "meta/image", "meta/metarec"},
	"meta/lifecycle":  {"meta/feature", "meta/metarec"},
	"meta/metafeed":   {"meta/image", "meta/metarec", "meta/quorum"},
	"meta/format":     {"meta/feature", "meta/metarec", "meta/quorum"},
	"meta/metarec":    {}, "meta/feature": {},
	"repl/replica":  {"repl/partition"},
	"coord/group":   {"coord/runtime"},
	"coord/runtime": {}, "coord/producerid": {},
	"serve/api":     {},
	"serve/server":  {"serve/api"},
	"serve/forward": {"serve/api"},
	"serve/handle":  {"serve/api", "serve/forward", "serve/handle"},
	"ops/cli":       {"ops/web", "ops/dump"},
}

func floorOf(pkg string) int {
	for _, f := range floors {
		if pkg == f.prefix || strings.HasPrefix(pkg, f.prefix+"/") {
			return f.floor
		}
	}
	return -1
}

// edgesOf finds the table entry of a package or of the folder it stands in.
func edgesOf(pkg string) []string {
	for p := strings.TrimPrefix(pkg, "internal/"); p != "." && p != "/"; p = filepath.Dir(p) {
		if e, ok := edges[p]; ok {
			return e
		}
	}
	return nil
}

type file struct {
	pkg, path string
	imports   []string
	test      bool
}

func goFiles(t *testing.T) []file {
	t.Helper()
	var out []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		f := file{pkg: filepath.ToSlash(filepath.Dir(rel)), path: filepath.ToSlash(rel), test: strings.HasSuffix(p, "_test.go")}
		for _, i := range parsed.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			f.imports = append(f.imports, path)
		}
		out = append(out, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestImportsPointDown(t *testing.T) {
	for _, f := range goFiles(t) {
		from := floorOf(f.pkg)
		if from < 0 {
			t.Errorf("%s: package %s stands on no floor; add it to the table", f.path, f.pkg)
			continue
		}
		if f.test {
			continue // tests may stand on anything below the node
		}
		for _, imp := range f.imports {
			dep, ok := strings.CutPrefix(imp, "runnel/")
			if !ok || dep == f.pkg {
				continue
			}
			to := floorOf(dep)
			switch {
			case to > from:
				t.Errorf("%s imports %s, which stands above it", f.path, dep)
			case to == from && from < 9 && !allowed(f.pkg, dep):
				t.Errorf("%s imports %s: not an edge of floor %d", f.path, dep, from)
			}
		}
	}
}

func allowed(pkg, dep string) bool {
	dep = strings.TrimPrefix(dep, "internal/")
	for _, e := range edgesOf(pkg) {
		if dep == e || strings.HasPrefix(dep, e+"/") {
			return true
		}
	}
	return false
}

// The wire library stays where the protocol is spoken, the operating system behind its seams.
func TestSeamsAreNotBypassed(t *testing.T) {
	kmsgIn := regexp.MustCompile(`^(internal/(serve|coord|wire|peer|node|ops|meta/(controller|quorum|lifecycle)|repl/fetcher)|runnel|cmd|test|bench)(/|$)`)
	osIn := regexp.MustCompile(`^(internal/(kit/vfs|node|ops|serve/server|layout)|runnel|cmd|test|bench)(/|$)`)
	for _, f := range goFiles(t) {
		if f.test {
			continue
		}
		for _, imp := range f.imports {
			if imp == "github.com/twmb/franz-go/pkg/kmsg" && !kmsgIn.MatchString(f.pkg) {
				t.Errorf("%s imports kmsg; wire messages stay in the protocol's packages", f.path)
			}
			if imp == "os" && !osIn.MatchString(f.pkg) {
				t.Errorf("%s imports os; files are reached through kit/vfs", f.path)
			}
		}
	}
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test || seen[f.pkg] || strings.HasPrefix(f.pkg, "cmd/") {
			continue
		}
		seen[f.pkg] = true
		if _, err := os.Stat(filepath.Join(root, f.pkg, "doc.go")); err != nil {
			t.Errorf("package %s has no doc.go", f.pkg)
		}
	}
}

var codeSpan = regexp.MustCompile("`((?:internal|cmd|runnel|test|bench|docs)/[A-Za-z0-9_./-]*[A-Za-z0-9_])`")

// A page that names a path which is gone misleads more than no page.
func TestPathsInDocumentsExist(t *testing.T) {
	pages, _ := filepath.Glob(filepath.Join(root, "*.md"))
	more, _ := filepath.Glob(filepath.Join(root, "docs/*.md"))
	adrs, _ := filepath.Glob(filepath.Join(root, "docs/adr/*.md"))
	pages = append(append(pages, more...), adrs...)
	if len(pages) < 3 {
		t.Fatalf("only %d pages found", len(pages))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range codeSpan.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", filepath.Base(page), m[1])
			}
		}
	}
}
