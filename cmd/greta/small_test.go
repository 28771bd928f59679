// Small things about files and texts that went wrong once.
package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTextsFromStandardInput(t *testing.T) {
	model := trained(t)
	with, without := gretaIn(t, "a\n", "tokenize", model, "-"), gretaIn(t, "a", "tokenize", model, "-")
	if with.code != 0 || with.out == without.out {
		t.Errorf("tokenize - drops the newline: %q and %q", with.out, without.out)
	}
	crlf, lf := gretaIn(t, "Prince\r\n", "run", model, "-p", "-", "-n", "3"),
		gretaIn(t, "Prince\n", "run", model, "-p", "-", "-n", "3")
	if crlf.code != 0 || crlf.out != lf.out {
		t.Errorf("a prompt that ends in CRLF gives %q, one that ends in LF %q", crlf.out, lf.out)
	}
	if r := greta(t, "run", model, "--special", "-p", "<s>Prince", "-n", "2"); r.code != 0 ||
		!strings.Contains(r.err, "twice") {
		t.Errorf("a second begin token is not told: %s", r.err)
	}
}

func TestPointerIsNamed(t *testing.T) {
	dir := family(t, "llama2_gqa_tied")
	for _, name := range []string{"model.safetensors", "tokenizer.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("version https://git-lfs.github.com/spec/v1\noid "+
			"sha256:0\nsize 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"run", dir, "--tokens", "1"}, {"tokenize", dir, "a"}} {
		if r := greta(t, args...); r.code != 2 || !strings.Contains(r.err, "LFS") {
			t.Errorf("%v: exit code %d\n%s", args, r.code, r.err)
		}
	}
}

func TestModelOfAnotherArchitecture(t *testing.T) {
	r := greta(t, "run", family(t, "qwen2"), "--model", "llama2_7b", "--tokens", "1,2", "-n", "1")
	if r.code != 2 || !strings.Contains(r.err, "architecture") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
}

// An output is never a file that is read, and what is there stays until the new one is whole.
func TestQuantizeKeepsItsInput(t *testing.T) {
	dir := family(t, "llama2_gqa_tied")
	out := filepath.Join(dir, "m.gguf")
	if r := greta(t, "quantize", dir, out, "--type", "f16"); r.code != 0 {
		t.Fatal(r.err)
	}
	before, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if r := greta(t, "quantize", out, out, "--type", "q8_0", "--force"); r.code != 2 ||
		!strings.Contains(r.err, "overwritten") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
	if after, err := os.ReadFile(out); err != nil || string(after) != string(before) {
		t.Errorf("the input was changed (%v)", err)
	}
}

func TestReportReplacesWhenWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openOutputs(&runFlags{json: path}, "m")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "old" {
		t.Errorf("the report was emptied at the start: %q, %v", data, err)
	}
	if err := f.json.(*reportFile).Discard(); err != nil {
		t.Error(err)
	}
}
