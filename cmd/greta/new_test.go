package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// TestNew: the first model file for a folder gives the logits that transformers computed, and says what it guessed.
func TestNew(t *testing.T) {
	dir, out := testfiles.Repo(t, "testdata", "families", "apertus"), t.TempDir()
	r := greta(t, "new", "mine", "--from", filepath.Join(dir, "config.json"), "--out", out)
	model := filepath.Join(out, "mine.yaml")
	if r.code != 0 || !strings.Contains(r.out, model+"\n") || !strings.Contains(r.out, "guesses, to look up") ||
		!strings.Contains(r.out, "tensors that nothing reads: 0") ||
		!strings.Contains(r.out, "rope layout=: which elements") || strings.Contains(r.out, "must be mended") {
		t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	text, err := os.ReadFile(model)
	if err != nil || !strings.Contains(string(text), "mine_attention_block, mine_mlp_block") ||
		!strings.Contains(string(text), "# guess: config.json does not say") {
		t.Errorf("%v\n%s", err, text)
	}
	block, err := os.ReadFile(filepath.Join(out, "mine_attention_block.yaml"))
	if err != nil || !strings.Contains(string(block), "layout=half") {
		t.Errorf("%v\n%s", err, block)
	}
	r = greta(t, "check", dir, "--model", model, "--expected", dir, "--json")
	var g goldenReport
	if err := json.Unmarshal([]byte(r.out), &g); err != nil || g.Positions != 96 || !(g.RelL2 <= 1e-4) {
		t.Errorf("exit code %d: %v %+v\n%s", r.code, err, g, r.err)
	}
	if r := greta(t, "new", "mine", "--from", dir, "--out", out); r.code != exitUsage ||
		!strings.Contains(r.err, "is there already: --force writes over it") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
	r = greta(t, "new", "mine", "--from", dir, "--out", out, "--force", "--json")
	var n newReport
	if err := json.Unmarshal([]byte(r.out), &n); err != nil || len(n.Files) != 3 || n.Wrong != "" || len(n.Guesses) == 0 {
		t.Errorf("exit code %d: %v %+v\n%s", r.code, err, n, r.err)
	}
	for want, args := range map[string][]string{
		"--from is missing":   {"mine"},
		"cannot be a model's": {"my-model", "--from", dir},
		"no such file":        {"mine", "--from", filepath.Join(dir, "gone")},
		"takes a name":        {"--from", dir},
	} {
		if r := greta(t, append([]string{"new"}, args...)...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %q is wanted:\n%s", args, r.code, want, r.err)
		}
	}
}
