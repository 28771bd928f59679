//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	goflag "flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/testkit"
)

var rewrite = goflag.Bool("rewrite", false, "write testdata/choices anew")

// capturing tells what is captured.
type capturing struct {
	*Device
	captured func(*backends.Program, []testkit.Part)
}

// Info says that the device chooses no tokens: captured programs are steps that give logits.
func (c capturing) Info() backends.Info {
	i := c.Device.Info()
	i.Picks = 0
	return i
}

func (c capturing) Capture(p *backends.Program) (backends.Executable, error) {
	x, err := c.Device.Capture(p)
	if err == nil {
		c.captured(p, x.(*executable).partsText())
	}
	return x, err
}

// partsText says what runs as one.
func (e *executable) partsText() (all []testkit.Part) {
	at := map[int]int{} // of a launch that does work, in all
	for i, owner := range e.owners {
		if owner == i {
			at[i] = len(all)
			part := testkit.Part{Launches: []int{i}}
			for j := e.first[i]; j < e.first[i+1]; j++ {
				x := &e.dispatches[j]
				code := x.shader
				if os.Getenv("GRETA_CHOICES_DETAIL") != "" {
					code += fmt.Sprint(x.groups, x.spec, x.subgroup, x.push, x.waits, x.says, x.handed)
				} else if x.handed {
					code += " handed"
				}
				if e.d.opt.Invariant { // where variants must be the same
					code += fmt.Sprint(" ", x.spec, x.subgroup)
				}
				part.Code = append(part.Code, code)
			}
			all = append(all, part)
		}
	}
	for i, owner := range e.owners {
		if owner != i {
			all[at[owner]].Launches = append(all[at[owner]].Launches, i)
		}
	}
	return all
}

// TestChoicesText holds what runs the built-in models on each class of devices, with the paths that a run takes where
// their checks pass.
//
//	go test ./backends/vulkan -run ChoicesText -rewrite
func TestChoicesText(t *testing.T) {
	var devices []testkit.NullDevice
	for _, class := range NullClasses() {
		devices = append(devices, testkit.NullDevice{Name: class, Open: func(captured func(*backends.Program,
			[]testkit.Part)) (backends.Device, error) {
			dev, err := NewNull(class)
			if err != nil {
				return nil, err
			}
			for _, p := range dev.Paths() {
				if err := dev.SetPath(p.Name, p.Auto); err != nil {
					return nil, err
				}
			}
			return capturing{dev, captured}, nil
		}})
	}
	dir := filepath.Join("testdata", "choices")
	if d := os.Getenv("GRETA_CHOICES_DETAIL"); d != "" {
		dir = filepath.Join(d, "vulkan")
	}
	testkit.Choices(t, dir, *rewrite, devices)
}
