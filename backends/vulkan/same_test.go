//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/testkit"
)

// TestSameChoices: on an invariant device the same shader, with the same constants of specialization, runs a node in
// steps of all numbers of rows.
func TestSameChoices(t *testing.T) {
	var devices []testkit.NullDevice
	for _, class := range NullClasses() {
		for _, exact := range []bool{false, true} {
			if exact && class != "nvidia" {
				continue
			}
			name := class
			if exact {
				name += " exact"
			}
			devices = append(devices, testkit.NullDevice{Name: name, Open: func(captured func(*backends.Program,
				[]testkit.Part)) (backends.Device, error) {
				dev, err := NewNull(class)
				if err != nil {
					return nil, err
				}
				dev.opt.Invariant = true
				for _, p := range dev.Paths() {
					if err := dev.SetPath(p.Name, p.Auto && !exact); err != nil {
						return nil, err
					}
				}
				return capturing{dev, captured}, nil
			}})
		}
	}
	testkit.SameChoices(t, devices)
}
