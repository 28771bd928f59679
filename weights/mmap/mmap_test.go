package mmap

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 70001} {
		path := filepath.Join(t.TempDir(), "f")
		want := bytes.Repeat([]byte{1, 2, 3}, size)[:size]
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil { // an open file may be replaced
			t.Fatal(err)
		}
		if !bytes.Equal(f.Data, want) {
			t.Errorf("%d bytes differ", size)
		}
		for range 2 {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "found a folder") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "absent")); !os.IsNotExist(err) {
		t.Errorf("an absent file: %v", err)
	}
	if _, err := os.Stat(os.DevNull); err == nil {
		if _, err := Open(os.DevNull); err == nil || !strings.Contains(err.Error(), "found a device") {
			t.Errorf("a device: %v", err)
		}
	}
}
