package cpu

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"sync"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
)

// sums has a line for each file that the kernels are made of, its name and its SHA-256, here and in simd: a program
// says by them which code it has without carrying its text. A test holds them to the files:
// go test ./internal/house -run TestSums -rewrite.
//
//go:embed sums.txt
var sums []byte

// codeHash is of all kernels: they share packing, pool and rounding.
var codeHash = sync.OnceValue(func() string {
	h := sha256.Sum256(sums)
	return hex.EncodeToString(h[:16])
})

// CodeHash is a hash of the sources of this package and of its loops, whichever kernel is
// asked for (backends.Hashed). A new build of the same sources has the same.
func (d *Device) CodeHash(*graph.Node, string) string { return codeHash() }

var _ backends.Hashed = (*Device)(nil)
