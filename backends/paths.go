package backends

import (
	"fmt"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Choice is a setting that may be left to the program.
type Choice uint8

// The choices.
const (
	Auto Choice = iota
	On
	Off
)

func (c Choice) String() string { return [...]string{"auto", "on", "off"}[c] }

// ParseChoice reads "auto", "on" or "off"; empty is auto.
func ParseChoice(s string) (Choice, error) {
	switch strings.ToLower(s) {
	case "", "auto":
		return Auto, nil
	case "on":
		return On, nil
	case "off":
		return Off, nil
	}
	return Auto, fmt.Errorf("%q: auto, on or off is expected", s)
}

// Path is a fast way to compute which a device has beside its plain kernels:
// matrix cores, arithmetic in half precision. Drivers and compilers get these
// wrong more often than plain arithmetic, so a path is tried on this device and
// driver before it is used (docs/health.md).
type Path struct {
	Name  string // "matrix", "fp16": part of the record's key, so it is stable
	About string // for people: "products on matrix cores (mma.sync)"
	// Half says that results are of half precision's accuracy, so that the user's
	// choice of it (--fp16) decides; all other paths are as exact as plain kernels.
	Half bool
	// OptIn says that the path is used only where the user opts into it by its name (--fp8): results are of less
	// than half precision's accuracy.
	OptIn bool
	// Auto says that the path is used where the user leaves the choice open.
	Auto bool
	// Rel is the largest relative L2 error of a result against float64 that is
	// let through; 0: the limits of plain kernels.
	Rel float64
	// Code is a hash of what decides on the path's code: sources, options. A
	// record is void when it changes.
	Code string
	// Takes says whether the path computes a node when it is on; nil: all.
	Takes func(n *graph.Node) bool
	// Types are the types of weights that the path takes, nil where nobody need know.
	Types []tensor.Type
	// On says whether the path is used by kernels that are chosen now.
	On bool
	// Try, where it is set, tries the path in place of the trial of nodes: it is a way to run
	// programs. The path is on meanwhile, and all others are off.
	Try func() error
}

// Exact says that results are as exact as those of plain kernels, so that nobody need choose the path.
func (p Path) Exact() bool { return !p.Half && !p.OptIn }

// Pathed is a device that has fast paths.
type Pathed interface {
	// Paths lists the paths that this device can take, on or off.
	Paths() []Path
	// SetPath turns a path on or off. It holds for kernels that Kernel chooses
	// from then on; those chosen before are no longer valid for nodes that the path
	// takes. A name that Paths does not list is an error.
	SetPath(name string, on bool) error
}

// plain is a device that has no fast paths.
type plain struct{ Device }

func (plain) Paths() []Path { return nil }

func (p plain) SetPath(name string, _ bool) error {
	return fmt.Errorf("the %s backend has no path %q", p.Info().Backend, name)
}

// PathsOf gives the paths of a device: none where it has none.
func PathsOf(dev Device) Pathed {
	if p, ok := dev.(Pathed); ok {
		return p
	}
	return plain{dev}
}

// OptedIn is the path that is on because the user opted into it; false: there is none.
func OptedIn(dev Device) (Path, bool) {
	for _, path := range PathsOf(dev).Paths() {
		if path.OptIn && path.On {
			return path, true
		}
	}
	return Path{}, false
}

// TakesOptedIn says whether such a path takes a node.
func TakesOptedIn(dev Device, n *graph.Node) bool {
	p, ok := OptedIn(dev)
	return ok && p.Takes(n)
}
