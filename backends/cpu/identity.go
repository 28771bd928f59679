package cpu

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"sync"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
)

//go:embed *.go *.s
var sources embed.FS

// codeHash is of all kernels: they share packing, pool and rounding.
var codeHash = sync.OnceValue(func() string {
	h := sha256.New()
	simd.HashFiles(h, sources)
	simd.HashSources(h)
	return hex.EncodeToString(h.Sum(nil)[:16])
})

// CodeHash is a hash of the sources of this package and of its loops, whichever kernel is
// asked for (backends.Hashed). A new build of the same sources has the same.
func (d *Device) CodeHash(*graph.Node, string) string { return codeHash() }

var _ backends.Hashed = (*Device)(nil)
