package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSignatures(t *testing.T) {
	for _, c := range []struct{ field, want string }{
		{"F func(x unsafe.Pointer, n int, a float32, b float32) `c:\"f\"`", ""},
		{"F func(x unsafe.Pointer, n int) float32 `c:\"f\"`", ""},
		{"F func(x []float32) `c:\"f\"`", "type []float32"},
		{"F func(g int) `c:\"f\"`", "register"},
		{"F int `c:\"f\"`", "want one function"},
	} {
		path := filepath.Join(t.TempDir(), "kernels.go")
		src := "package simd\nimport \"unsafe\"\ntype kernels struct {\n" + c.field + "\n}\n"
		if err := os.WriteFile(path, []byte(src), 0o644); err != nil {
			t.Fatal(err)
		}
		sigs, err := readSignatures(path, "kernels")
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want %q", c.field, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.field, err)
			continue
		}
		if s := sigs[0]; s.result == "" && s.argSize != 24 || s.result != "" && (s.resOff != 16 || s.argSize != 20) {
			t.Errorf("%s: laid out in %d bytes, result at %d", c.field, s.argSize, s.resOff)
		}
	}
}

func TestReadInstructions(t *testing.T) {
	b := &block{codeEnd: 8}
	if err := b.readInstructions(
		"\n   10000:      \tvmovups\tzmm0, zmmword ptr [rdi]\n   10006: \tret\n   10008: \tnop\n"); err != nil {
		t.Fatal(err)
	}
	if len(b.ins) != 2 || b.ins[1].offset != 6 || b.ins[0].text != "vmovups zmm0, zmmword ptr [rdi]" {
		t.Errorf("instructions: %+v", b.ins)
	}
	b = &block{codeEnd: 8}
	if err := b.readInstructions("   10000: \tcall\t0x10 <memcpy>\n"); err == nil ||
		!strings.Contains(err.Error(), "may not call") {
		t.Errorf("a call: error %v", err)
	}
}

func TestDirectives(t *testing.T) {
	d := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	if got, want := directives(d, "amd64"),
		"QUAD $0x0807060504030201; LONG $0x0c0b0a09; WORD $0x0e0d; BYTE $0x0f"; got != want {
		t.Errorf("amd64: %s, want %s", got, want)
	}
	if got, want := directives(d[:8], "arm64"), "WORD $0x04030201; WORD $0x08070605"; got != want {
		t.Errorf("arm64: %s, want %s", got, want)
	}
}
