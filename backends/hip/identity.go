package hip

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

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
func (dev *Device) CodeHash(n *graph.Node, _ string) string { return sourceHash(group(n)) }

// group names the kind of kernels that a node has.
func group(n *graph.Node) string {
	switch {
	case n == nil:
		return "all"
	case strings.HasPrefix(n.Op.Name, "linear"):
		return "products"
	case n.Op.Name == "attention" || n.Op.Name == "paged_attention":
		return "attention"
	}
	return "others"
}

// attentionFiles and otherFiles are the sources of what is no product; all others are products.
var (
	attentionFiles = []string{"attention.hip", "attention_split.hip", "flash.hip", "paged.hip"}
	otherFiles     = []string{"embed.hip", "norm.hip", "point.hip", "general.hip", "spread.hip", "recurrence.hip",
		"heads.hip", "rope.hip", "moe.hip"}
)

var codeHashes sync.Map // by group

// sourceHash hashes the sources of a group with what they include.
func sourceHash(group string) string {
	if h, ok := codeHashes.Load(group); ok {
		return h.(string)
	}
	list, err := kernelFiles.ReadDir("kernels")
	if err != nil {
		return ""
	}
	sum := sha256.New()
	for _, f := range list {
		own := "products"
		switch {
		case !strings.HasSuffix(f.Name(), ".hip"):
			continue
		case slices.Contains(attentionFiles, f.Name()):
			own = "attention"
		case slices.Contains(otherFiles, f.Name()):
			own = "others"
		}
		if group != "all" && group != own {
			continue
		}
		text, err := newProgram(f.Name()).source()
		if err != nil {
			return ""
		}
		fmt.Fprintf(sum, "%s %d\n%s", f.Name(), len(text), text)
	}
	h := hex.EncodeToString(sum.Sum(nil)[:16])
	codeHashes.Store(group, h)
	return h
}
