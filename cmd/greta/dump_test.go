package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/program anew")

// What a model becomes on its way to launches is kept as text, so that the
// effect of a change on lowering, fusion and memory shows as a diff:
//
//	go test ./cmd/greta -run Dumps -rewrite
func TestDumps(t *testing.T) {
	for _, model := range []string{"llama2_block", "gemma2_block", "mixtral_block"} {
		for _, c := range []struct{ stage, backend string }{
			{"spec", "ref"}, {"graph", "ref"}, {"fused", "cpu"}, {"plan", "cpu"}, {"plan", "ref"}, {"program", "ref"},
		} {
			args := []string{"dump", model, "--stage", c.stage, "--backend", c.backend, "--tokens-per-step", "3", "--context",
				"64"}
			if c.backend == "cpu" {
				args = append(args, "--threads", "1")
			}
			r := greta(t, args...)
			if r.code != 0 {
				t.Fatalf("%s %s: %s", model, c.stage, r.err)
			}
			if c.stage == "plan" && c.backend == "cpu" { // kernels have names and reasons by the machine's level
				r.out, _, _ = strings.Cut(r.out, "kernels\n")
			}
			path := testfiles.Repo(t, "testdata", "program", model+"."+c.stage+"."+c.backend+".txt")
			if *rewrite {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(r.out), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if r.out != string(want) {
				t.Errorf("%s differs; see the effect by -rewrite and git diff. First difference:\n%s", filepath.Base(path),
					firstDifference(r.out, string(want)))
			}
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got  " + g[i] + "\nwant " + w[i]
		}
	}
	return "one is longer"
}
