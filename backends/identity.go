package backends

import (
	"strings"

	"github.com/greta-project/greta/graph"
)

// Located is a device that knows which piece of hardware it is.
type Located interface {
	// Location names the hardware in the same way for every backend and process: its
	// PCI address ("0000:c1:00.0") where it has one, else a UUID; "" where the
	// driver does not say.
	Location() string
}

// Hashed is a device that can tell whether its code is that of an earlier
// measurement.
type Hashed interface {
	// CodeHash is a hash of the sources that n's kernel is made of in a variant ("": the
	// default), or a wider one of all that it may be made of; of all kernels where n
	// is nil. Equal hashes mean equal code.
	CodeHash(n *graph.Node, variant string) string
}

// CodeHash is what a device says of its code (Hashed), "" where it cannot tell.
func CodeHash(dev Device, n *graph.Node, variant string) string {
	if h, ok := dev.(Hashed); ok {
		return h.CodeHash(n, variant)
	}
	return ""
}

// CodeGroup names the kind of kernels that a node has, whose sources a device hashes together: "products",
// "attention", "others"; "all" where n is nil.
func CodeGroup(n *graph.Node) string {
	switch {
	case n == nil:
		return "all"
	case strings.HasPrefix(n.Op.Name, "linear"):
		return "products"
	case strings.Contains(n.Op.Name, "attention"), n.Op.Name == "paged_push":
		return "attention"
	}
	return "others"
}
