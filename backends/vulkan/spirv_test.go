//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends/vulkan/spvpack"
)

// TestModules unpacks every kernel: SPIR-V begins with its magic number, and its header says version 1.5 or 1.6.
func TestModules(t *testing.T) {
	names := moduleNames()
	if len(names) < 200 {
		t.Fatalf("%d modules are here", len(names))
	}
	for _, name := range names {
		code, err := spirv(name)
		if err != nil {
			t.Fatal(err)
		}
		if code[0] != 0x07230203 || code[1]>>8 != 0x105 && code[1]>>8 != 0x106 {
			t.Errorf("%s begins with %#x", name, code[:2])
		}
	}
	files, err := spirvFiles.ReadDir("spirv")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		group, ok := strings.CutSuffix(f.Name(), ".zst")
		if ok && !slices.ContainsFunc(names, func(name string) bool { return modules().Group(name) == group }) {
			t.Errorf("spirv/%s has no kernel that spirv/modules names", f.Name())
		}
	}
	if _, err := spirv("nothing"); err == nil {
		t.Error("a module that is not there has no error")
	}
	if a, b := codeOf("matrix"), codeOf("matrix", "form"); a == b || a == codeOf("regdecode") || a != codeOf("matrix") {
		t.Errorf("hashes of code: %s, %s", a, b)
	}
}

// BenchmarkModule unpacks the largest but for form, whose group is there already.
func BenchmarkModule(b *testing.B) {
	for b.Loop() {
		if _, err := spirv("matmul_f64_128"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGroup unpacks the largest group for one of its modules.
func BenchmarkGroup(b *testing.B) {
	dir, err := fs.Sub(spirvFiles, "spirv")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		a, err := spvpack.OpenArchive(dir)
		if err == nil {
			_, err = a.Words("matmul_f64_128")
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
