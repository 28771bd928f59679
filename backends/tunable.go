package backends

import "github.com/greta-project/greta/graph"

// Tunable is a device some of whose kernels have more than one configuration.
type Tunable interface {
	// Variants names the configurations of n's kernel, the default first; nil
	// where there is only one. A name is stable and readable: "tile=128x64,stages=3".
	Variants(n *graph.Node) []string
	// Choose sets what is asked for a node's variant whenever Kernel is called:
	// "" is the default. A name that Variants does not list is an error of Kernel.
	Choose(func(n *graph.Node) string)
}

// single is a device whose kernels have one configuration each.
type single struct{}

func (single) Variants(*graph.Node) []string   { return nil }
func (single) Choose(func(*graph.Node) string) {}

// Tuned is what can be tuned of a device, and false where its kernels have one configuration each.
func Tuned(dev Device) (Tunable, bool) {
	if t, ok := dev.(Tunable); ok {
		return t, true
	}
	return single{}, false
}
