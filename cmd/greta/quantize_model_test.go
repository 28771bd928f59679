package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// outside copies a built-in model file to a folder of its own, where no family is known.
func outside(t *testing.T, stem, arch string) string {
	t.Helper()
	b, err := os.ReadFile(testfiles.Repo(t, "models", stem+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "\nmodel: "+stem, "\nmodel: mine", 1)
	i, j := strings.Index(text, "\nmatch:"), strings.Index(text, "\nin:")
	text = text[:i] + "\nmatch: {hf: " + arch + "}" + text[j:]
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Any family that a model file describes becomes a GGUF file that greta reads back: the same logits without --type, and
// q8_0 for the matrices that products read.
func TestQuantizeAnyFamily(t *testing.T) {
	for i, expected := range kin(t) {
		if i%6 != 0 && !testfiles.Exhaustive() {
			continue
		}
		dir := filepath.Dir(expected)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "m.gguf")
			if r := greta(t, "quantize", dir, out); r.code != 0 || !strings.Contains(r.out, "keeps Hugging Face's names") {
				t.Fatalf("exit code %d: %s%s", r.code, r.out, r.err)
			}
			r := greta(t, "check", out, "--expected", expected, "--json")
			var g goldenReport
			if err := json.Unmarshal([]byte(r.out), &g); err != nil || !g.GreedyOK || !(g.RelL2 <= 1e-4) {
				t.Errorf("exit code %d: %+v (%v) %s", r.code, g, err, r.err)
			}
			r = greta(t, "quantize", dir, out, "--type", "q8_0", "--force", "--json")
			var q quantizeReport
			if err := json.Unmarshal([]byte(r.out), &q); err != nil {
				t.Fatalf("exit code %d: %v %s", r.code, err, r.err)
			}
			b, err := os.ReadFile(filepath.Join(dir, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			type widths struct {
				Hidden int `json:"hidden_size"`
			}
			var cfg struct {
				widths
				Text widths `json:"text_config"`
			}
			if err := json.Unmarshal(b, &cfg); err != nil {
				t.Fatal(err)
			}
			narrow := cmp.Or(cfg.Text.Hidden, cfg.Hidden)%32 != 0 // no row is of blocks of 32: each is named
			if narrow && len(q.Fallbacks) < 3 || !narrow && q.Types["q8_0"] < 3 {
				t.Errorf("exit code %d: %+v %s", r.code, q, r.err)
			}
		})
	}
}

// A file outside the tree serves as well, by --model or as greta.yaml beside the weights, for export too.
func TestQuantizeByModelFile(t *testing.T) {
	dir := filepath.Dir(kin(t)[0])
	for _, d := range kin(t) {
		if strings.Contains(d, "qwen2_moe") || strings.Contains(d, "glm") {
			dir = filepath.Dir(d)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cfg struct{ Architectures []string }
	if err := json.Unmarshal(b, &cfg); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	own := strings.ReplaceAll(string(b), cfg.Architectures[0], "MineForCausalLM")
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "model.safetensors"), filepath.Join(folder, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	model, out := outside(t, "decoder", "MineForCausalLM"), filepath.Join(t.TempDir(), "m.gguf")
	if r := greta(t, "quantize", folder, out); r.code != exitUsage ||
		!strings.Contains(r.err, "no model file is for Mine") {
		t.Errorf("without a file: exit code %d, %s", r.code, r.err)
	}
	if r := greta(t, "quantize", folder, out, "--model", model); r.code != 0 {
		t.Fatal(r.err)
	}
	r := greta(t, "check", out, "--model", model, "--expected", filepath.Join(dir, "expected.safetensors"), "--json")
	var g goldenReport
	if err := json.Unmarshal([]byte(r.out), &g); err != nil || !(g.RelL2 <= 1e-4) {
		t.Errorf("exit code %d: %+v (%v) %s", r.code, g, err, r.err)
	}
	text, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "greta.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := greta(t, "quantize", folder, out, "--type", "q8_0", "--force"); r.code != 0 {
		t.Error(r.err)
	}
	if r := greta(t, "quantize", out, out+"2", "--model", model); r.code != 0 {
		t.Errorf("once more: %s", r.err)
	}
	if r := greta(t, "export", "gguf", folder, "--lora", folder, "--model", "nothing.yaml", "--out", out+"3"); r.code !=
		exitUsage || !strings.Contains(r.err, "nothing.yaml") {
		t.Errorf("export: exit code %d, %s", r.code, r.err)
	}
}
