package convert_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/golden"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/convert"
	"github.com/greta-project/greta/weights/gguf"
	"github.com/greta-project/greta/weights/open"
)

// noted are the golden models that llama.cpp's keys have no words for, and what
// is said of greta's own.
var noted = map[string]string{
	"qwen2_win":     "qwen2.attention.sliding_window_start",
	"llama_yarn3":   "llama.rope.scaling.yarn_truncate",
	"llama_dynamic": "dynamic is left out",
}

// TestLogits converts every golden model and runs the result: names,
// permutations, merged experts, Gemma's norms, windows and scaling are right
// when the logits are those of the folder that the file was made from.
func TestLogits(t *testing.T) {
	dirs, err := os.ReadDir(testfiles.Repo(t, "testdata", "golden"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, d := range dirs {
		name := d.Name()
		note, odd := noted[name]
		if odd {
			seen++
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := golden.Unpack(testfiles.Repo(t, "testdata", "golden", name), dir); err != nil {
				t.Fatal(err)
			}
			want, err := golden.Open(filepath.Join(dir, "expected.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			loss := 0.05 // of random weights in 8 bits; measured are 0.04
			if strings.HasPrefix(name, "mixtral") {
				loss = 0.15 // where two experts are nearly as good, a token may change between them
			}
			for _, typ := range []string{"f32", "q8_0"} {
				file, rep, err := converted(t, dir, typ)
				if err != nil {
					t.Fatal(err)
				}
				if notes := strings.Join(rep.Notes, "\n"); !strings.Contains(notes, note) {
					t.Errorf("%s: notes %q, expected one with %q", typ, notes, note)
				}
				for _, backend := range []string{"ref", "cpu"} {
					relL2, maxAbs := run(t, file, backend, want)
					t.Logf("%s on %s: relative L2 %.1e, max abs %.1e", typ, backend, relL2, maxAbs)
					switch {
					case typ == "f32" && !(maxAbs <= 1e-4):
						t.Errorf("%s on %s: max abs %.1e, expected at most 1e-4", typ, backend, maxAbs)
					case typ == "q8_0" && !(relL2 <= loss):
						t.Errorf("%s on %s: relative L2 %.1e, expected at most %g", typ, backend, relL2, loss)
					}
				}
			}
		})
	}
	if seen != len(noted) {
		t.Errorf("%d of the %d odd models are there", seen, len(noted))
	}
}

// converted writes a folder's weights as GGUF.
func converted(t *testing.T, dir, typ string) (string, convert.Report, error) {
	t.Helper()
	src, err := open.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	file := filepath.Join(t.TempDir(), typ+".gguf")
	rep, err := convert.ToGGUF(src, file, convert.Options{Type: typ})
	return file, rep, err
}

// run compares the logits of a GGUF file with expected ones.
func run(t *testing.T, file, backend string, want *golden.File) (relL2, maxAbs float64) {
	t.Helper()
	src, err := gguf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	model, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	var dev backends.Device = ref.New()
	if backend == "cpu" {
		if dev, err = cpu.New(2); err != nil {
			t.Fatal(err)
		}
	}
	defer dev.Close()
	ctx := context.Background()
	e, err := engine.New(ctx, engine.Options{Model: model, Source: src, Device: dev, Context: 2 * want.Seq, KV: tensor.F32,
		Cache: packcache.Config{Off: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got []float32
	for _, ids := range want.Input {
		s.Reset()
		if err := s.PrefillAll(ctx, ids, func(_ int, logits []float32) error {
			got = append(got, logits...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != len(want.Logits) {
		t.Fatalf("%d logits, expected %d", len(got), len(want.Logits))
	}
	relL2, maxAbs = report.Compare(got, want.Logits)
	if math.IsNaN(relL2) || math.IsNaN(maxAbs) {
		t.Fatalf("relative L2 %g, max abs %g", relL2, maxAbs)
	}
	return relL2, maxAbs
}
