package models

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/internal/testfiles"
)

// TestDocs reads the examples of docs/language.md: whole files are built, the
// rest is YAML whose keys the reader knows, and the expressions in it parse.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(testfiles.Repo(t, "docs", "language.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir, whole := t.TempDir(), 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		example := m[1]
		var v map[string]any
		if err := yaml.Unmarshal([]byte(example), &v); err != nil {
			t.Errorf("%v in\n%s", err, example)
			continue
		}
		name := ""
		for key, ending := range map[string]string{"block": "_block.yaml", "model": ".yaml"} {
			if s, ok := v[key].(string); ok {
				name = s + ending
			}
		}
		if name == "" {
			fragment(t, example)
			continue
		}
		whole++
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(example), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []int{1, 5} {
			if _, err := f.Build(Options{S: s, C: 16}); err != nil {
				t.Error(err)
			}
		}
	}
	if whole != 2 {
		t.Errorf("%d whole files, want a block and a model", whole)
	}
}

// fragment reads a part of a file: what it refers to and lacks is no mistake here.
func fragment(t *testing.T, example string) {
	t.Helper()
	if strings.HasPrefix(example, " ") {
		example = "weights:\n" + strings.Replace(example, "  part:", "params:\n  part:", 1)
	}
	head := "model: m\n"
	if strings.Contains(example, "state:") {
		head = "block: m\n"
	}
	for _, key := range []string{"body: {y: silu(x)}\n", "out: y\n"} {
		if !strings.Contains("\n"+example, "\n"+key[:4]) {
			head += key
		}
	}
	_, err := parse("m.yaml", []byte(head+example), readBuiltin)
	if err == nil {
		return
	}
	for _, e := range err.(Errors) {
		if !slices.ContainsFunc([]string{"unknown name", "unknown weight", "unknown result", "never used",
			"hands on nothing"}, func(s string) bool {
			return strings.Contains(e.Msg, s)
		}) {
			t.Errorf("%v", e)
		}
	}
}
