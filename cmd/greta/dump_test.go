package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
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

// TestDTypeConverts: --dtype converts every weight that a product or an embedding reads, of whatever was stored, tied
// and stacked ones too, and nothing else; what has no blocks of the type is named.
func TestDTypeConverts(t *testing.T) {
	packed := filepath.Join(t.TempDir(), "packed.gguf")
	must := func(code int, args ...string) result {
		t.Helper()
		r := greta(t, args...)
		if r.code != code {
			t.Fatalf("greta %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
		}
		return r
	}
	must(0, "quantize", family(t, "llama2_gqa_tied"), packed, "--type", "q4_0")
	weight := regexp.MustCompile(`(?m)^weight (\S+) (\w+)\[\d+, `)
	read := regexp.MustCompile(`(?m)= (?:linear\w*|embed)\((.*?)(?:;|\)$)`)
	narrow := testfiles.Repo(t, "testdata", "families", "mamba")
	for _, c := range []struct{ model, dtype string }{
		{family(t, "llama2_gqa_tied"), "q8_0"}, {family(t, "llama2_mha"), "bf16"}, {family(t, "mixtral"), "q8_0"},
		{packed, "q8_0"}, {packed, "f16"}, {narrow, "f16"},
	} {
		r := must(0, "dump", c.model, "--stage", "graph", "--dtype", c.dtype)
		types := map[string]string{}
		for _, m := range weight.FindAllStringSubmatch(r.out, -1) {
			types[m[1]] = m[2]
		}
		products := map[string]bool{}
		for _, m := range read.FindAllStringSubmatch(r.out, -1) {
			for _, name := range strings.Split(m[1], ", ") {
				products[name] = true
			}
		}
		converted := 0
		for name, got := range types {
			switch {
			case products[name] && got == c.dtype:
				converted++
			case products[name], got != "f32":
				t.Errorf("%s --dtype %s: %s is %s", filepath.Base(c.model), c.dtype, name, got)
			}
		}
		if converted < 8 {
			t.Errorf("%s --dtype %s: only %d weights were converted", filepath.Base(c.model), c.dtype, converted)
		}
	}
	has(t, must(0, "run", narrow, "--tokens", "1", "--gen", "1", "--dtype", "q8_0").err, "blk.1.w_dt", "as bf16",
		"rows are no blocks of 32, as q8_0 wants them")
}
