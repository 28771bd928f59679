package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/weights/open"
)

// TestKin: families that one file serves with others give the logits that transformers computed in float64. Those under
// testdata/families stand for the kinds of layers that there are; all that lie beside the project are run where
// GRETA_REQUIRE_SHARED asks for it.
func TestKin(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testfiles.Repo(t, "testdata", "families"), "*_gguf", "expected.safetensors"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d families as GGUF, %v", len(files), err)
	}
	folders := append(kin(t), files...)
	slices.SortFunc(folders, func(a, b string) int {
		return strings.Compare(filepath.Base(filepath.Dir(a)), filepath.Base(filepath.Dir(b)))
	})
	var lines []string
	for i, expected := range folders {
		dir := filepath.Dir(expected)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			path, format := dir, "safetensors"
			if file := filepath.Join(dir, "model.gguf"); exists(file) {
				path, format = file, "GGUF"
			}
			r := greta(t, "check", path, "--expected", expected, "--json")
			var g goldenReport
			if err := json.Unmarshal([]byte(r.out), &g); err != nil {
				t.Fatalf("exit code %d: %v\n%s", r.code, err, r.err)
			}
			if g.Positions != 96 || len(g.Greedy) != 32 || !g.GreedyOK || !(g.RelL2 <= 1e-4) {
				t.Errorf("%+v", g)
			}
			if (i%8 == 0 || testfiles.Exhaustive()) && throughout(expected) { // as the reference: another epsilon is seen
				r := greta(t, "check", path, "--expected", expected, "--json", "--backend", "ref")
				var g goldenReport
				if err := json.Unmarshal([]byte(r.out), &g); err != nil || g.Positions != 96 || !(g.RelL2 <= 2e-7) {
					t.Errorf("the reference: exit code %d: %v %+v\n%s", r.code, err, g, r.err)
				}
			}
			src, err := open.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			file, err := models.Match(src)
			if err != nil {
				t.Fatal(err)
			}
			arch, ok := src.Meta("architectures")
			if !ok {
				arch, _ = src.Meta("general.architecture")
			}
			lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s | %s | %.0e |", filepath.Base(dir),
				strings.Trim(fmt.Sprint(arch), "[]"), strings.TrimPrefix(file.Path(), "models/"), format, against(expected),
				g.RelL2))
			t.Logf("max abs %.2e, relative L2 %.2e", g.MaxAbs, g.RelL2)
		})
	}
	if os.Getenv("GRETA_WRITE_FAMILIES") == "" || t.Failed() {
		return
	}
	_, encoders := familiesPage(t)
	writeFamilies(t, familiesHead+strings.Join(lines, "\n")+"\n", encoders)
}

// against says what gave the expected numbers of a file: transformers, or the published equations, which it then names.
func against(expected string) string {
	if data, err := os.ReadFile(expected); err == nil && bytes.Contains(data, []byte("the published equations")) {
		return "the published equations, float64"
	}
	return "transformers, float64"
}

// throughout says whether all of a file's numbers were computed in float64, as tools/gen_family.py's are.
func throughout(expected string) bool {
	data, err := os.ReadFile(expected)
	return err == nil && bytes.Contains(data, []byte("float64 throughout"))
}

// familiesPage is docs/families.md: what TestKin writes, and what TestEncoders does.
func familiesPage(t *testing.T) (decoders, encoders string) {
	t.Helper()
	text, err := os.ReadFile(testfiles.Repo(t, "docs", "families.md"))
	if err != nil {
		t.Fatal(err)
	}
	decoders, encoders, found := strings.Cut(string(text), "\n"+encodersTitle)
	if found {
		encoders = "\n" + encodersTitle + encoders
	}
	return decoders, encoders
}

func writeFamilies(t *testing.T, decoders, encoders string) {
	t.Helper()
	if err := os.WriteFile(testfiles.Repo(t, "docs", "families.md"), []byte(decoders+encoders), 0o644); err != nil {
		t.Fatal(err)
	}
}

// kin are the expected results of folders of families that one file serves with others.
func kin(t testing.TB) []string {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(testfiles.Repo(t, "testdata", "families"), "*", "expected.safetensors"))
	if err != nil || len(folders) < 11 {
		t.Fatalf("%d families, %v", len(folders), err)
	}
	folders = slices.DeleteFunc(folders, func(f string) bool { return strings.HasSuffix(filepath.Dir(f), "_gguf") })
	if os.Getenv("GRETA_REQUIRE_SHARED") != "" {
		more, err := filepath.Glob(filepath.Join(testfiles.Shared(t, "families"), "*", "expected.safetensors"))
		if err != nil || len(more) < 38 {
			t.Fatalf("%d families, %v", len(more), err)
		}
		for _, f := range folders { // what lies there too is run once
			beside := filepath.Join(testfiles.Shared(t, "families"), filepath.Base(filepath.Dir(f)), "expected.safetensors")
			if !slices.Contains(more, beside) {
				more = append(more, f)
			}
		}
		slices.SortFunc(more, func(a, b string) int {
			return strings.Compare(filepath.Base(filepath.Dir(a)), filepath.Base(filepath.Dir(b)))
		})
		folders = more
	}
	return folders
}

// familiesHead opens docs/families.md, which this test writes where GRETA_WRITE_FAMILIES is set, and
// GRETA_REQUIRE_SHARED too.
const familiesHead = `# Families

Tiny random models, their logits by f32 on the CPU against an independent implementation: relative L2 over 96 positions.
TestKin writes this page (GRETA_WRITE_FAMILIES=1 GRETA_REQUIRE_SHARED=1 go test ./cmd/greta -run TestKin). Under
"match:" a model file says which architectures of GGUF files and config.json it is for. Where the format is GGUF,
llama.cpp's own program made the file from the folder whose logits are expected; a GGUF file of a family without
such a row has names and keys that follow llama.cpp, and no test of this tree compares it.

| family | architecture | file | format | against | error |
| --- | --- | --- | --- | --- | --- |
`
