package hip

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/greta-project/greta/internal/unpack"
)

// packed has the files of the folder kernels, a third of their size: of each a line with its name and length, then its
// text. A test holds it to them: go test ./internal/house -run TestHIPKernels -rewrite.
//
//go:embed kernels.gz
var packed string

// kernelFiles are the texts of the kernels and of what they include, by name.
var kernelFiles = sync.OnceValue(func() map[string]string {
	files := map[string]string{}
	for rest := unpack.Text("kernels.gz", packed); rest != ""; {
		name, size := "", 0
		if _, err := fmt.Sscanf(rest, "%s %d\n", &name, &size); err != nil {
			panic("kernels.gz: " + err.Error())
		}
		_, rest, _ = strings.Cut(rest, "\n")
		files[name], rest = rest[:size], rest[size:]
	}
	return files
})

// kernelNames are those of kernelFiles, in order.
func kernelNames() []string { return slices.Sorted(maps.Keys(kernelFiles())) }

// program names a compilation: a file of kernels and the macros that are set
// for it, in a fixed order, separated by spaces: "matvec.hip W_TYPE=W_Q4_0 NR=2".
type program string

func newProgram(file string, defines ...string) program {
	return program(strings.Join(append([]string{file}, defines...), " "))
}

func define(name string, v any) string { return fmt.Sprintf("%s=%v", name, v) }

func onOff(name string, v bool) string {
	if v {
		return name + "=1"
	}
	return name + "=0"
}

// Source is the text that is compiled: macros, then the file with the
// project's headers put in, so that the compiler needs no files.
func (p program) source() (string, error) {
	parts := strings.Fields(string(p))
	var b strings.Builder
	for _, d := range parts[1:] {
		b.WriteString("#define " + strings.Replace(d, "=", " ", 1) + "\n")
	}
	seen := map[string]bool{}
	if err := include(&b, parts[0], seen); err != nil {
		return "", err
	}
	return b.String(), nil
}

func include(b *strings.Builder, file string, seen map[string]bool) error {
	if seen[file] {
		return nil
	}
	seen[file] = true
	text, ok := kernelFiles()[file]
	if !ok {
		return fmt.Errorf("there is no file %s among the kernels", file)
	}
	for line := range strings.Lines(text) {
		switch name, ok := strings.CutPrefix(line, "#include \""); {
		case ok:
			if err := include(b, strings.TrimRight(name, "\"\n"), seen); err != nil {
				return err
			}
		case strings.HasPrefix(line, "#pragma once"):
		default:
			b.WriteString(line)
		}
	}
	return nil
}

// target is what code is made for, and by which compiler.
type target struct {
	vendor  vendor
	arch    string // "gfx942", "sm_90"
	version string // of the compiler
}

// cudaArch is what NVIDIA's compilers call an architecture: Hopper's with what
// later ones lack, wgmma.
func cudaArch(arch string) string {
	if arch == "sm_90" {
		return "sm_90a"
	}
	return arch
}

// options are the compiler's.
func (t target) options() []string {
	if t.vendor == amd {
		return []string{"--offload-arch=" + t.arch, "-std=c++17", "-O3", "-mcumode", "-ffp-contract=fast"}
	}
	return []string{"--gpu-architecture=" + cudaArch(t.arch), "--std=c++17", "--fmad=true", "--extra-device-vectorization"}
}

// key is the cache's key of a program's code: a hash of all that decides on it.
func (t target) key(source string) string {
	h := sha256.New()
	for _, s := range append([]string{"greta kernel 1", t.vendor.String(), t.arch, t.version, source}, t.options()...) {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
