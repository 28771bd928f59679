//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// TestBFloatModules: modules of f16 whose numbers become bf16 say so of their one type of 16 bits, once, and ask for
// what that needs; those that compute with f16 are refused. With GRETA_BFLOAT_MODULES they are written to that folder,
// where spirv-val from 2025.3 on can look at them.
func TestBFloatModules(t *testing.T) {
	for _, name := range moduleNames() {
		if !strings.HasPrefix(name, "matrix_f16_") {
			continue
		}
		words, err := spirv(bfloatModule + name)
		if err != nil {
			t.Fatal(err)
		}
		var needs []uint32
		floats := 0
		for i := spirvHeader; i < len(words); {
			n := int(words[i] >> 16)
			switch op := words[i] & 0xffff; {
			case op == opCapability:
				needs = append(needs, words[i+1])
			case op == opTypeFloat && words[i+2] == 16:
				if floats++; n != 4 || words[i+3] != bfloatEncoding {
					t.Errorf("%s: its type of 16 bits is %v", name, words[i:i+n])
				}
			}
			i += n
		}
		if floats != 1 || !slices.Contains(needs, bfloatType) || !slices.Contains(needs, bfloatMatrix) {
			t.Errorf("%s: %d types of 16 bits, capabilities %v", name, floats, needs)
		}
		if dir := os.Getenv("GRETA_BFLOAT_MODULES"); dir != "" {
			data := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 4*len(words))
			if err := os.WriteFile(filepath.Join(dir, name+".spv"), data, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	for name, part := range map[string]string{"matrix_q8_0_128": "vectors of f16", "copy": "",
		"softmax": "nothing of f16"} {
		if _, err := spirv(bfloatModule + name); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
