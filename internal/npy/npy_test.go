package npy

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWriteAndRead(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range [][]float32{{1, 2, 3}, {-4, 5e-9, 6}} {
		if err := w.Row(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if head := b.Bytes()[:128]; head[127] != '\n' || string(head[:8]) != magic || head[8] != 118 || head[9] != 0 {
		t.Errorf("header %q", head)
	}
	if err := w.Row([]float32{1, 2, 3}); err == nil {
		t.Error("a third row was taken")
	}
	data, rows, cols, err := Read(&b)
	if err != nil || rows != 2 || cols != 3 || !slices.Equal(data, []float32{1, 2, 3, -4, 5e-9, 6}) {
		t.Errorf("%v %d %d %v", data, rows, cols, err)
	}
}

func TestFewerRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npy")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(f, 1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Row([]float32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if err := w.Row([]float32{1}); err == nil {
		t.Error("a short row was taken")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f.Seek(0, 0)
	if _, rows, cols, err := Read(f); err != nil || rows != 1 || cols != 2 {
		t.Errorf("%d %d %v", rows, cols, err)
	}
}

func TestReadRefuses(t *testing.T) {
	var b bytes.Buffer
	w, _ := NewWriter(&b, 1, 1)
	w.Row([]float32{1})
	good := b.String()
	for name, bad := range map[string]string{
		"empty":        "",
		"magic":        "X" + good[1:],
		"truncated":    good[:len(good)-1],
		"short header": good[:40],
		"type":         strings.Replace(good, "<f4", "<f8", 1),
		"overflow":     strings.Replace(good, "(1, 1), }"+strings.Repeat(" ", 18), "(9999999999999999, 9999), }", 1),
	} {
		if _, _, _, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}
