package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/golden"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/weights/lora"
)

// TestPipes: a pipe in the place of a file that greta reads by itself is not waited for.
func TestPipes(t *testing.T) {
	home, cache, work := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("XDG_CACHE_HOME", cache)
	folder := filepath.Join(work, "folder")
	if err := errors.Join(os.Mkdir(filepath.Join(home, "greta"), 0o755), os.Mkdir(folder, 0o755),
		os.CopyFS(folder, os.DirFS(family(t, "llama2_gqa_tied"))),
		os.Remove(filepath.Join(folder, "config.json"))); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(work, "model.gguf")
	for _, c := range []struct{ pipe, args string }{
		{filepath.Join(home, "greta", "config.yaml"), "version"},
		{filepath.Join(home, "greta", "tuned.yaml"), "run llama2_block --prefill 1 --gen 0 --repeat 1 --set D=64 --set " +
			"F=96 --set H=4"},
		{filepath.Join(work, "mine.yaml"), "dump llama2_block --tuned " + filepath.Join(work, "mine.yaml")},
		{model, "run " + model},
		{filepath.Join(work, "model.yaml"), "dump " + filepath.Join(work, "model.yaml")},
		{filepath.Join(folder, "config.json"), "show " + folder},
		{filepath.Join(folder, "tokenizer.json"), "tokenize " + filepath.Join(folder, "tokenizer.json") + " text"},
	} {
		os.Remove(c.pipe)
		if err := syscall.Mkfifo(c.pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := greta(t, strings.Fields(c.args)...); r.code != exitUsage || !strings.Contains(r.err, c.pipe) {
			t.Errorf("greta %s with a pipe at %s: exit code %d, %s", c.args, c.pipe, r.code, r.err)
		}
		if err := os.Remove(c.pipe); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPipesWritten: nor is one that is to be written and that no program reads.
func TestPipesWritten(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	model := family(t, "llama2_gqa_tied")
	for _, args := range [][]string{{"run", model, "--tokens", "1", "-n", "1", "--json", pipe},
		{"run", model, "--tokens", "1", "-n", "1", "--logits", pipe},
		{"quantize", model, pipe, "--type", "q8_0", "--force"}} {
		if r := greta(t, args...); r.code == 0 || !strings.Contains(r.err, "a pipe that no program reads") {
			t.Errorf("greta %s: exit code %d, %s", args, r.code, r.err)
		}
	}
}

// TestIrregularFiles: a pipe, a folder or a device given as a file is named at once, not waited for.
func TestIrregularFiles(t *testing.T) {
	dir, adapter := t.TempDir(), t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	config := filepath.Join(adapter, "adapter_config.json")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), syscall.Mkfifo(config, 0o600)); err != nil {
		t.Fatal(err)
	}
	a := &app{in: strings.NewReader("")}
	readers := map[string]func(string) error{
		"--prompts":             func(path string) error { _, err := a.readPrompts(path); return err },
		"--messages":            func(path string) error { _, err := a.readValue("--messages", path); return err },
		"--expected":            func(path string) error { _, err := readTexts(path); return err },
		"--expected of tensors": func(path string) error { _, err := golden.Open(path); return err },
	}
	for name, read := range readers {
		for _, path := range []string{pipe, dir, "/dev/null"} {
			wantIrregular(t, name, path, func() error { return read(path) })
		}
	}
	wantIrregular(t, "lora", config, func() error { _, err := lora.Open(adapter); return err })
}

func wantIrregular(t *testing.T, name, path string, read func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- read() }()
	select {
	case err := <-done:
		var no *plainfile.Irregular
		if !errors.As(err, &no) || no.Path != path {
			t.Errorf("%s %s: %v; expected an error that says what the file is", name, path, err)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("%s %s: still waits", name, path)
	}
}
