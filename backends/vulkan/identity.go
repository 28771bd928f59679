//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"strings"
	"sync"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
)

// CodeHash is a hash of the modules that may run a node, in whichever variant
// (backends.Hashed).
func (d *Device) CodeHash(n *graph.Node, _ string) string { return sourceHash(backends.CodeGroup(n)) }

var codeHashes sync.Map // by group: 2 ms are too long for every question

// sourceHash hashes the modules of a group.
func sourceHash(group string) string {
	if h, ok := codeHashes.Load(group); ok {
		return h.(string)
	}
	var stems []string
	for _, name := range moduleNames() {
		stem, _, _ := strings.Cut(name, "_")
		own := "others"
		switch stem {
		case "matmul", "matrix", "regdecode", "matvec", "gate", "handvec", "handgate", "matvecq", "chainq", "gateq", "handq",
			"form", "join", "mix":
			own = "products"
		case "attention", "paged":
			own = "attention"
		}
		if group == "all" || group == own {
			stems = append(stems, name)
		}
	}
	h := codeOf(stems...)
	codeHashes.Store(group, h)
	return h
}
