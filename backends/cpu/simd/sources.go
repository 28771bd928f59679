package simd

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

//go:embed *.go
var goSources embed.FS

// HashSources adds to a hash what the loops are made of: the package's code in Go, its tests
// left out, and the sums of the generated assembler.
func HashSources(h hash.Hash) {
	HashFiles(h, goSources)
	for _, name := range slices.Sorted(maps.Keys(assembler)) {
		fmt.Fprintf(h, "%s %s\n", name, assembler[name])
	}
}

// HashFiles adds the files of a folder to a hash, in the order of their names. Tests, and what
// only measures (probe.go, limits.go), are no part of a kernel.
func HashFiles(h hash.Hash, dir fs.ReadDirFS) {
	list, err := dir.ReadDir(".")
	if err != nil {
		return // an embedded folder can be read
	}
	for _, f := range list {
		name := f.Name()
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "probe") || name == "limits.go" {
			continue
		}
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			continue
		}
		fmt.Fprintf(h, "%s %x\n", name, sha256.Sum256(data))
	}
}
