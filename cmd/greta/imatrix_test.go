package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An importance matrix is made from a text and used; what is no matrix, or one of another model, is refused.
func TestImatrix(t *testing.T) {
	dir := trained(t)
	text, out := filepath.Join(t.TempDir(), "t.txt"), filepath.Join(t.TempDir(), "i.gguf")
	if err := os.WriteFile(text, []byte(strings.Repeat("The officer ran up to him. ", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"imatrix", dir, "--text", text, "--length", "64", "--chunks", "2", "--out", out}
	if r := greta(t, args...); r.code != 0 || !strings.Contains(r.out, "matrices of 2 chunks of 64 tokens") {
		t.Fatalf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	if r := greta(t, args...); r.code != exitUsage || !strings.Contains(r.err, "--force") {
		t.Errorf("again: exit code %d, %s", r.code, r.err)
	}
	if r := greta(t, append(args, "--force")...); r.code != 0 {
		t.Error(r.err)
	}
	to := filepath.Join(t.TempDir(), "m.gguf")
	if r := greta(t, "quantize", dir, to, "--type", "q4_0", "--imatrix", out); r.code != 0 {
		t.Error(r.err)
	}
	if r := greta(t, "quantize", dir, to, "--force", "--type", "q4_0", "--imatrix", text); r.code != exitUsage ||
		!strings.Contains(r.err, "no importance matrix") {
		t.Errorf("a text: exit code %d, %s", r.code, r.err)
	}
	if r := greta(t, "imatrix", dir, "--text", text, "--length", "100000", "--out", out, "--force"); r.code != exitUsage ||
		!strings.Contains(r.err, "--length") {
		t.Errorf("a short text: exit code %d, %s", r.code, r.err)
	}
}
