package hip

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
)

// Location is the device's PCI address, "" where the driver does not say (backends.Located).
func (dev *Device) Location() string {
	defer dev.enter()()
	var at [3]int
	for i, a := range []attribute{attrPCIDomain, attrPCIBus, attrPCIDevice} {
		var err error
		if at[i], err = dev.d.attribute(a, dev.handle); err != nil {
			return ""
		}
	}
	return fmt.Sprintf("%04x:%02x:%02x.0", at[0], at[1], at[2])
}

// CodeHash is a hash of the sources that may run a node, in whichever variant
// (backends.Hashed).
func (dev *Device) CodeHash(n *graph.Node, _ string) string { return sourceHash(backends.CodeGroup(n)) }

// codeGroups says which nodes the kernels of a file run (backends.CodeGroup); stepcopy.hip runs none.
var codeGroups = map[string]string{
	"f8": "products", "gemm": "products", "halves": "products", "matrix": "products", "matvec": "products",
	"pipeline": "products", "tile": "products", "tile128": "products", "tilecopy": "products", "vec": "products",
	"attention": "attention", "attention_decode": "attention", "attention_split": "attention", "flash": "attention",
	"paged": "attention",
	"draw":  "others", "embed": "others", "filter": "others", "general": "others", "heads": "others",
	"experts": "products, others",
	"moe":     "products, others",
	"norm":    "others", "pick": "others", "point": "products, others", "recurrence": "others",
	"rope": "others", "rows": "others", "spread": "others", "stepcopy": "others",
}

var codeHashes sync.Map // by group

// sourceHash hashes the sources of a group with what they include.
func sourceHash(group string) string {
	if h, ok := codeHashes.Load(group); ok {
		return h.(string)
	}
	sum := sha256.New()
	for _, name := range kernelNames() {
		stem, ok := strings.CutSuffix(name, ".hip")
		if !ok || group != "all" && !strings.Contains(codeGroups[stem], group) {
			continue
		}
		text, err := newProgram(name).source()
		if err != nil {
			return ""
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
	}
	h := hex.EncodeToString(sum.Sum(nil)[:16])
	codeHashes.Store(group, h)
	return h
}
