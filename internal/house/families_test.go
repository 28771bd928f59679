package house

import (
	"go/ast"
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

// TestNoFamilyInGo: what a family is, model files say. No string of the program, outside of tests, is an architecture's
// name as config.json or GGUF files write it.
func TestNoFamilyInGo(t *testing.T) {
	root := filepath.Join("..", "..")
	names := map[string]bool{}
	match := regexp.MustCompile(`(?s)\nmatch:(.*?)\n[a-z]`)
	word := regexp.MustCompile(`[\w.-]+`)
	files, err := filepath.Glob(filepath.Join(root, "models", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d model files, %v", len(files), err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range match.FindAllStringSubmatch(string(data), -1) {
			for _, name := range word.FindAllString(m[1], -1) {
				if strings.HasSuffix(name, "ForCausalLM") || strings.HasSuffix(name, "LMHeadModel") {
					names[name] = true
				}
			}
		}
	}
	if len(names) < 60 {
		t.Fatalf("only %d names of families were found in model files", len(names))
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if strings.Contains(filepath.ToSlash(path), "weights/convert/") {
				return false // the converter's table says how GGUF files write the eight families that it knows
			}
			if s, err := strconv.Unquote(lit.Value); err == nil && names[s] {
				t.Errorf("%s names the family %s: what it is belongs into a model file", path, s)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
