//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/greta-project/greta/backends/vulkan/spvpack"
)

// The compiled kernels; make.sh makes them from the .comp files. Those of one source are packed and compressed
// together, a twentieth of their size, and unpacked when a pipeline of one is first made, which takes a driver tens of
// milliseconds.
//
//go:embed spirv
var spirvFiles embed.FS

// modules is the archive of all kernels.
var modules = sync.OnceValue(func() *spvpack.Archive {
	dir, err := fs.Sub(spirvFiles, "spirv")
	if err != nil { // the files are part of the program
		panic(err)
	}
	a, err := spvpack.OpenArchive(dir)
	if err != nil {
		panic(err)
	}
	return a
})

// moduleNames are the names of all modules, in order.
func moduleNames() []string { return modules().Names() }

// spirv gives the words of a module, aligned as Vulkan wants them.
func spirv(name string) ([]uint32, error) {
	of, bfloats := strings.CutPrefix(name, bfloatModule)
	words, err := modules().Words(of)
	if err != nil || !bfloats {
		return words, err
	}
	if words, err = bfloatWords(words); err != nil {
		return nil, fmt.Errorf("%s: %w", of, err)
	}
	return words, nil
}

// codeOf is a hash of all modules whose names are one of the stems, or begin with one and a "_".
func codeOf(stems ...string) string {
	h := sha256.New()
	for _, name := range moduleNames() {
		if slices.ContainsFunc(stems, func(s string) bool { return name == s || strings.HasPrefix(name, s+"_") }) {
			fmt.Fprintln(h, name, modules().Hash(name))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
