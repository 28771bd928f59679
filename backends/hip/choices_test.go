package hip

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

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
		c.captured(p, x.(*executable).parts())
	}
	return x, err
}

// parts says what runs as one.
func (e *executable) parts() (all []testkit.Part) {
	for _, b := range slices.Concat(e.levels...) {
		part := testkit.Part{Launches: append([]int{b.number}, b.joined...)}
		for _, d := range b.parts {
			words := strings.Fields(string(d.code.program))
			if os.Getenv("GRETA_CHOICES_DETAIL") != "" {
				words = append(words, fmt.Sprint(d.code.name, d.grid, d.block, d.shared, d.cluster, d.area, d.soon, d.late,
					len(d.args.values)))
			} else { // what is off is left out
				words = slices.DeleteFunc(words, func(w string) bool {
					return strings.HasSuffix(w, "=0") || w == "PAIRED_OF=of_swiglu"
				})
			}
			code := strings.Join(words, " ")
			part.Code = append(part.Code, code)
		}
		all = append(all, part)
	}
	return all
}

// TestChoicesText holds what runs the built-in models on four architectures, with the paths that a
// run takes where their checks pass.
//
//	go test ./backends/hip -run ChoicesText -rewrite
func TestChoicesText(t *testing.T) {
	var devices []testkit.NullDevice
	for _, arch := range []string{"gfx942", "gfx1103", "gfx1201", "sm_90"} {
		devices = append(devices, testkit.NullDevice{Name: arch, Open: func(captured func(*backends.Program,
			[]testkit.Part)) (backends.Device, error) {
			dev, err := openNull(arch, 0, func(program) {})
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
		dir = filepath.Join(d, "hip")
	}
	testkit.Choices(t, dir, *rewrite, devices)
}

// TestFewTiles: products of few rows with block formats go past the rows where they stand alone and have few tiles, and
// to tiles elsewhere.
func TestFewTiles(t *testing.T) {
	dev, err := openNull("sm_90", 132, func(program) {})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := dev.SetPath(pathHalf, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op      *graph.Op
		weights tensor.Type
		rows, n int
		want    string
	}{
		{ops.LinearResidual, tensor.Q4_0, 8, 4096, "matvec"}, {ops.LinearResidual, tensor.Q4_K, 5, 5632, "matvec"},
		{ops.LinearResidual, tensor.Q4_0, 8, 5633, "gemm"}, {ops.LinearResidual, tensor.Q4_0, 9, 4096, "gemm"},
		{ops.LinearResidual, tensor.F16, 8, 4096, "gemm"}, {ops.Linear, tensor.Q4_0, 8, 4096, "gemm"},
		{ops.LinearResidual, tensor.Q4_0, 4, 11008, "matvec"}, {ops.LinearResidual, tensor.Q4_0, 1, 4096, "vec"},
	} {
		value := func(typ tensor.Type, shape ...int) *graph.Value { return &graph.Value{Type: typ, Shape: shape} }
		n := &graph.Node{Op: c.op, In: []*graph.Value{value(tensor.F32, c.rows, 4096), value(c.weights, c.n, 4096),
			value(tensor.F32, c.rows, c.n)}}
		if got := dev.choice(n); got == nil || got.name != c.want {
			t.Errorf("%s, %v, %d rows, %d columns: %v, %s is wanted", c.op.Name, c.weights, c.rows, c.n, got, c.want)
		}
	}
}
