package backends

import (
	"fmt"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/tensor"
)

// CustomKernels is a device that runs kernels that users wrote (graph/custom).
type CustomKernels interface {
	// CustomEndings are those of the sources that it takes: ".comp", ".spv".
	CustomEndings() []string
	// CustomKernel compiles or loads a kernel for a node that the kernel takes. An exposed one can reach memory beyond
	// its operands: for the check that finds what it writes there. The error is the compiler's, or says what about
	// the kernel the device cannot have.
	CustomKernel(n *graph.Node, k *custom.Instance, exposed bool) (Kernel, error)
}

// noCustom is a device that runs its own kernels alone.
type noCustom struct{ Device }

func (noCustom) CustomEndings() []string { return nil }

func (d noCustom) CustomKernel(*graph.Node, *custom.Instance, bool) (Kernel, error) {
	return nil, fmt.Errorf("the %s backend takes no kernels of one's own", d.Info().Backend)
}

// CustomKernelsOf is how a device runs kernels that users wrote: where it runs none, there are no endings.
func CustomKernelsOf(dev Device) CustomKernels {
	if c, ok := dev.(CustomKernels); ok {
		return c
	}
	return noCustom{dev}
}

// Custom is a Kernel that a user may have written.
type Custom interface {
	Kernel
	// Instance is what it was made of; nil: it is the device's own.
	Instance() *custom.Instance
}

// CustomOf is what a kernel was made of that a user wrote, nil for others.
func CustomOf(k Kernel) *custom.Instance {
	if c, ok := k.(Custom); ok {
		return c.Instance()
	}
	return nil
}

// CustomBase has what the kernels that users wrote have in common; a device's own begins with it.
type CustomBase struct {
	Of     *custom.Instance
	Launch *custom.Launch
	Sig    graph.Sig
}

// NewCustomBase computes a kernel's start for a node.
func NewCustomBase(n *graph.Node, k *custom.Instance) (CustomBase, error) {
	l, err := k.Launch(n)
	return CustomBase{k, l, n.Op.Sig}, err
}

// Name says whose kernel it is: "custom:rms BLOCK=64".
func (c *CustomBase) Name() string {
	name := "custom:" + c.Of.Name
	if text := c.Of.ConstantsText(); text != "" {
		name += " " + text
	}
	return name
}

// Why says where the kernel comes from and what was measured.
func (c *CustomBase) Why() string {
	text := fmt.Sprintf("kernel of one's own, %s", c.Of.Path)
	if c.Of.Note != "" {
		text += ": " + c.Of.Note
	}
	return text
}

// Operand gives what an argument that is no number points to, and whether the kernel writes it.
func (c *CustomBase) Operand(l *Launch, b custom.Bound) (o *Operand, writes bool, err error) {
	switch {
	case b.Out >= 0 && b.Out < len(l.Out):
		o, writes = &l.Out[b.Out], true
	case b.In >= 0 && b.In < len(l.In):
		o = &l.In[b.In]
	}
	switch {
	case o == nil || o.Buffer == nil:
		return nil, false, fmt.Errorf("%v: an operand is left out", c.Of.Kernel)
	case o.Packing == "" && !o.Dense():
		return nil, false, fmt.Errorf("%v: rows of an operand %s%v have gaps, which no argument tells", c.Of.Kernel, o.Type,
			o.Shape)
	}
	return o, writes, nil
}

// Packing is the layout in tiles that the description asks for.
func (c *CustomBase) Packing(arg int) *Packing {
	if arg >= len(c.Sig.In) {
		return nil
	}
	t, ok := c.Of.Tiles[c.Sig.In[arg].Name]
	if !ok {
		return nil
	}
	return &Packing{ID: custom.TilesID(t), Unit: t[0],
		Size: func(typ tensor.Type, shape tensor.Shape) int { return custom.TilesSize(t, typ, shape) },
		Pack: func(dst, src []byte, typ tensor.Type, shape tensor.Shape, from, to int) error {
			return custom.Tile(t, dst, src, typ, shape, from, to)
		}}
}

// CustomNode is a node as a launch of a user's kernel has it: of an operator of its own, so that no device folds or
// joins it with others, which it would do by kernels of its own.
func CustomNode(n *graph.Node) *graph.Node {
	op, own := *n.Op, *n
	op.Name = "custom." + n.Op.Name
	own.Op = &op
	return &own
}
