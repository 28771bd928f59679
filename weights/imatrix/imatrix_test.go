package imatrix

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// entry is one of llama.cpp's binary form.
func entry(b []byte, name string, calls int, vals ...float32) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(len(name)))
	b = append(b, name...)
	b = le.AppendUint32(b, uint32(calls))
	b = le.AppendUint32(b, uint32(len(vals)))
	for _, v := range vals {
		b = le.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func TestBothForms(t *testing.T) {
	dir := t.TempDir()
	dat := entry(entry([]byte{2, 0, 0, 0}, "blk.0.attn_q.weight", 4, 8, 2, 0), "output.weight", 2, 1, 3)
	path := filepath.Join(dir, "a.dat")
	if err := os.WriteFile(path, append(dat, 0, 0, 0, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Read(path)
	if err != nil || !reflect.DeepEqual(m["blk.0.attn_q.weight"].Means(), []float32{2, .5, 0}) ||
		!reflect.DeepEqual(m["output.weight"].Means(), []float32{.5, 1.5}) {
		t.Fatalf("%v: %v", err, m)
	}
	m["stack"] = &Matrix{Cols: 2, Sums: []float32{4, 6, 0, 0}, Counts: []float32{2, 0}}
	out := filepath.Join(dir, "b.gguf")
	if err := m.Write(out, "text", 256, 3); err != nil {
		t.Fatal(err)
	}
	back, err := Read(out)
	if err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("%v: %v, expected %v", err, back, m)
	}
	if got := back["stack"].Means(); !reflect.DeepEqual(got, []float32{2, 3, 1, 1}) {
		t.Errorf("a matrix that met nothing: %v", got)
	}
	for n := range dat { // cut anywhere, a file is refused
		if _, err := parse(dat[:n]); err == nil {
			t.Fatalf("%d of %d bytes are read", n, len(dat))
		}
	}
	bad := entry([]byte{1, 0, 0, 0}, "w", 1, -1)
	if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), "mean square") {
		t.Errorf("a negative square: %v", err)
	}
}
