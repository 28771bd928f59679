// Package house holds the rules of the project's structure as tests.
package house

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/greta-project/greta/internal/testfiles"
)

// mayImport says which rooms a room's packages may use beside themselves,
// where the longest matching prefix counts. Tests may import anything.
var mayImport = map[string][]string{
	"tensor":          {},
	"graph":           {"tensor"},
	"ops":             {"graph", "tensor"},
	"ops/optest":      {"ops", "graph", "tensor", "backends", "weights/quant"},
	"models":          {"ops", "graph", "tensor", "internal/hfclass"},
	"weights":         {"tensor", "tokenizer", "internal/hfclass"},
	"tokenizer":       {},
	"grammar":         {"engine", "tokenizer"},
	"backends":        {"graph", "tensor"},
	"backends/ref":    {"backends", "ops", "graph", "tensor", "weights/quant"},
	"backends/fusion": {"backends", "ops", "graph", "tensor"},
	"backends/cpu":    {"backends", "ops", "graph", "tensor", "weights/quant"},
	"backends/vulkan": {"backends", "backends/fusion", "ops", "graph", "tensor", "weights/quant"},
	"backends/hip":    {"backends", "backends/fusion", "ops", "graph", "tensor", "weights/quant"},
	"engine": {"backends", "ops", "graph", "models", "tensor", "weights", "engine/schedule", "engine/draft",
		"engine/prefixcache"},
	"engine/schedule": {},
	"engine/draft":    {},
	"engine/report":   {"engine", "backends", "graph", "ops", "tensor"},
	"engine/health":   {"backends", "ops", "ops/optest", "graph", "tensor"},
	"bench/record":    {},
	"bench/stats":     {},
	"bench/guard":     {"bench/record", "bench/stats"},
	"bench/store":     {"bench/record", "bench/stats", "bench/guard"},
	"bench/environ":   {"bench/record", "backends"},
	"bench/compare":   {"bench/record", "bench/stats", "bench/store"},
	"bench/pictures":  {"bench", "bench/record", "bench/stats", "bench/store", "bench/compare"},
	"bench/gap":       {"bench", "bench/record", "bench/stats", "bench/store"},
	"bench/exp":       {"bench/guard"},
	"bench/serve":     {},
	"bench/tune": {"bench/record", "bench/stats", "bench/guard", "bench/environ", "bench/op", "bench", "backends",
		"graph", "ops", "tensor", "internal/child"},
	"bench": {"bench/record", "bench/stats", "bench/guard", "bench/store", "bench/environ", "bench/compare",
		"engine", "engine/report", "backends", "models", "ops", "ops/optest", "graph", "tensor", "weights", "weights/quant"},
	"bench/platform": {"bench", "bench/record", "bench/stats", "bench/guard", "backends", "backends/cpu",
		"backends/vulkan", "backends/hip", "tensor"},
	"bridge":    {"backends", "engine", "serve", "tensor", "tokenizer"},
	"embedding": {"engine", "models", "tensor", "tokenizer", "weights"},
	"serve": {"embedding", "models", "chat/jinja", "chat/parse", "chat/template", "engine", "grammar",
		"tokenizer"},
	"internal":        {},
	"internal/golden": {"tensor", "weights"},
	"internal/testkit": {"engine", "backends", "models", "ops", "ops/optest", "tensor", "weights", "weights/quant",
		"weights/lora", "weights/open", "internal/testfiles"},
	"internal/fakedev": {"backends", "backends/cpu", "graph"},
	"internal/npy":     {"tensor"},
	"chat":             {"chat/jinja", "chat/parse", "chat/template", "engine", "grammar", "tokenizer"},
	"chat/jinja":       {},
	"chat/parse":       {},
	"chat/template":    {"chat/jinja", "weights"},
	"hub":              {},
	"cmd": {"embedding", "chat", "grammar", "chat/jinja", "chat/parse", "chat/template", "hub", "engine", "engine/report",
		"engine/health", "backends", "backends/ref", "backends/cpu", "backends/vulkan", "backends/hip", "serve", "models",
		"ops", "graph", "tensor", "weights", "tokenizer", "internal", "bench", "bench/record", "bench/stats", "bench/guard",
		"bench/store", "bench/environ", "bench/compare", "bench/exp", "bench/tune", "bench/platform", "bench/pictures",
		"bench/serve", "bench/gap", "bridge"},
	"tools":          {},
	"tools/versions": {"internal"},
	"tools/spvpack":  {"backends/vulkan"},

	"engine/prefixcache": {},
}

// anyone may import these.
var open = []string{"internal/pool", "internal/npy", "internal/testfiles", "internal/golden", "internal/progress",
	"internal/child", "internal/plainfile", "internal/atomicfile", "internal/pyjson", "internal/mapped",
	"internal/memlimit", "internal/sorting", "internal/errlist", "internal/unpack"}

// room gives the key of m that is the longest prefix of a package's path.
func room(path string, m map[string][]string) (string, bool) {
	for p := path; p != "."; p = filepath.Dir(p) {
		if _, ok := m[p]; ok {
			return p, true
		}
	}
	return "", false
}

func within(path, room string) bool { return path == room || strings.HasPrefix(path, room+"/") }

// modulePath is how packages of this module begin, without the last slash.
func modulePath(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testfiles.Repo(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(first, "module ")
}

func TestImportsRunOneWay(t *testing.T) {
	module := modulePath(t)
	walk(t, func(path, rel string) {
		if strings.HasSuffix(rel, "_test.go") {
			return
		}
		pkg := filepath.Dir(rel)
		own, ok := room(pkg, mayImport)
		if !ok {
			t.Errorf("%s: the folder %s is no room of the house; give it a row in mayImport", rel, pkg)
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		for _, spec := range file.Imports {
			if spec.Name != nil && spec.Name.Name == "_" && !strings.Contains(spec.Path.Value, "embed") {
				t.Errorf("%s: blank import of %s: nothing registers itself at a distance", rel, spec.Path.Value)
			}
			full, _ := strconv.Unquote(spec.Path.Value)
			dep, ours := strings.CutPrefix(full, module+"/")
			if !ours || within(dep, own) && !strings.Contains(own, "/") && noRoomBetween(dep, own) {
				continue
			}
			if !allowed(own, pkg, dep) {
				t.Errorf("%s: %s must not import %s; the row of %q in mayImport says what the folder %s may, unless it has one of "+
					"its own", rel, own, dep, own, pkg)
			}
		}
	})
}

// noRoomBetween says that dep belongs to the room own, not to one inside it.
func noRoomBetween(dep, own string) bool {
	r, _ := room(dep, mayImport)
	return r == own
}

func allowed(own, pkg, dep string) bool {
	r, _ := room(dep, mayImport)
	if r == own {
		return true
	}
	for _, o := range open {
		if within(dep, o) {
			return true
		}
	}
	for _, a := range mayImport[own] {
		if r == a || within(dep, a) && a == "weights" || dep == a {
			return true
		}
	}
	return false
}

// plainReads are the folders and files that open what no user names: the system's own files, and what they wrote.
var plainReads = []string{"tools", "bench/environ", "bench/platform", "internal/atomicfile", "internal/memlimit",
	"internal/testkit", "engine/packcache", "engine/report",
	"backends", "cmd/greta/versions.go", "cmd/greta/bench_session.go", "cmd/greta/doctor.go"}

// TestFilesAreOpenedPlainly: what a user names is opened by internal/plainfile, which a pipe or a device does not
// hold up.
func TestFilesAreOpenedPlainly(t *testing.T) {
	walk(t, func(path, rel string) {
		if strings.HasSuffix(rel, "_test.go") ||
			slices.ContainsFunc(plainReads, func(p string) bool { return within(rel, p) }) {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		for _, call := range []string{"os.Open(", "os.ReadFile("} {
			if strings.Contains(string(text), call) {
				t.Errorf("%s: %s…) waits for a pipe; internal/plainfile does not", rel, call)
			}
		}
	})
}

func TestFilesStayShort(t *testing.T) {
	const most, columns = 800, 120
	walk(t, func(path, rel string) {
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		s := bufio.NewScanner(f)
		s.Buffer(nil, 1<<20)
		lines := 0
		for s.Scan() {
			if lines++; lines == 1 && strings.HasPrefix(s.Text(), "// Code generated") {
				return
			}
			if n := utf8.RuneCountInString(s.Text()); n > columns {
				t.Errorf("%s:%d has %d columns, %d are the most", rel, lines, n, columns)
			}
		}
		if lines > most {
			t.Errorf("%s has %d lines, %d are the most: divide it", rel, lines, most)
		}
	})
}

// TestFunctionsStayShort: a function of more lines says before its body, in its comment, why
// it is one piece.
func TestFunctionsStayShort(t *testing.T) {
	const most = 80
	walk(t, func(path, rel string) {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		if ast.IsGenerated(file) {
			return
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
			if lines > most && !strings.Contains(strings.ToLower(strings.Join(strings.Fields(f.Doc.Text()), " ")),
				"in one piece") {
				t.Errorf("%s: %s has %d lines, %d are the most: divide it, or say in its comment why it is \"in one piece\"",
					rel, f.Name.Name, lines, most)
			}
		}
	})
}

func walk(t *testing.T, each func(path, rel string)) {
	t.Helper()
	root := testfiles.Repo(t)
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(path, ".go") {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			files++
			each(path, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("only %d Go files found below %s", files, root)
	}
}

// TestContract: what a device must have does not grow: at most 20 methods, and 12 fields that describe it.
func TestContract(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), testfiles.Repo(t, "backends", "backends.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	methods, fields := 0, 0
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		switch x := spec.Type.(type) {
		case *ast.InterfaceType:
			if slices.Contains([]string{"Device", "Kernel", "Stream", "Buffer", "Executable"}, spec.Name.Name) {
				methods += len(x.Methods.List)
			}
		case *ast.StructType:
			if spec.Name.Name == "Info" {
				for _, field := range x.Fields.List {
					fields += max(1, len(field.Names))
				}
			}
		}
		return true
	})
	if methods < 10 || methods > 20 || fields < 5 || fields > 12 {
		t.Errorf("the contract of a device has %d methods, at most 20 are wanted, and Info %d fields, at most 12", methods,
			fields)
	}
}

// TestOptionalInterfaces: what only some devices can is asked for in one place, which says what holds for the others.
func TestOptionalInterfaces(t *testing.T) {
	asked := map[string][]string{}
	walk(t, func(path, rel string) {
		if strings.HasSuffix(rel, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			x, ok := n.(*ast.TypeAssertExpr)
			if !ok {
				return true
			}
			name, of := "", f.Name.Name
			switch typ := x.Type.(type) {
			case *ast.Ident:
				name = typ.Name
			case *ast.SelectorExpr:
				if pkg, ok := typ.X.(*ast.Ident); ok {
					name, of = typ.Sel.Name, pkg.Name
				}
			}
			if of == "backends" && ast.IsExported(name) {
				asked[name] = append(asked[name], rel)
			}
			return true
		})
	})
	if len(asked) < 10 {
		t.Errorf("only %d optional interfaces of devices were found: %v", len(asked), asked)
	}
	for name, places := range asked {
		if len(places) > 1 {
			t.Errorf("backends.%s is asked for in %v: let a function beside it say what holds for devices without", name, places)
		}
	}
}

// templates are what calls methods by names that are known only at run time, and cobra's ways to it.
var templates = regexp.MustCompile(`"(html|text)/template"|\.Set(Version|Usage|Help)Template\(`)

// TestNoTemplates: with a template anywhere in the program the linker keeps every exported method
// of every type: six megabytes. tools are programs of their own.
func TestNoTemplates(t *testing.T) {
	walk(t, func(path, rel string) {
		if strings.HasSuffix(rel, "_test.go") || within(rel, "tools") {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if found := templates.Find(text); found != nil {
			t.Errorf("%s: %s: write the text by fmt and html.EscapeString", rel, found)
		}
	})
}
