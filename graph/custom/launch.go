package custom

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
)

// Launch is a kernel's start for one node: every expression computed.
type Launch struct {
	Args   []Bound
	Grid   [3]int
	Block  [3]int // zeros where the source says it
	Shared int
}

// Bound is an argument: operand In or result Out of the node, or a number's bits.
type Bound struct {
	In, Out int // -1: it is none
	Kind    Kind
	Bits    uint64
}

// Number says whether an argument is a number, and no operand.
func (b Bound) Number() bool { return b.In < 0 && b.Out < 0 }

// limits of what is started: what every device has.
const (
	mostGrid   = math.MaxInt32
	mostGridYZ = 65535
	mostBlock  = 1024
	mostShared = 256 << 10
)

// Launch computes a start for a node. Its error names the expression.
func (i *Instance) Launch(n *graph.Node) (*Launch, error) {
	l := &Launch{Grid: [3]int{1, 1, 1}}
	env := i.env(n, i.Constants)
	fail := func(what string, err error) error { return fmt.Errorf("%v: %s: %w", i.Kernel, what, err) }
	for _, a := range i.Args {
		b, err := a.bind(n, env)
		if err != nil {
			return nil, fail("args: "+a.Text, err)
		}
		l.Args = append(l.Args, b)
	}
	for d, e := range i.Grid {
		most := mostGridYZ
		if d == 0 {
			most = mostGrid
		}
		v, err := whole(e, env, 0, most)
		if err != nil {
			return nil, fail("grid", err)
		}
		l.Grid[d] = v
	}
	if i.Block != nil {
		l.Block = [3]int{1, 1, 1}
		for d, e := range i.Block {
			v, err := whole(e, env, 1, mostBlock)
			if err != nil {
				return nil, fail("block", err)
			}
			l.Block[d] = v
		}
		if t := l.Block[0] * l.Block[1] * l.Block[2]; t > mostBlock {
			return nil, fail("block", fmt.Errorf("%v are %d threads, devices have at most %d", l.Block, t, mostBlock))
		}
	}
	if i.Shared != nil {
		var err error
		if l.Shared, err = whole(i.Shared, env, 0, mostShared); err != nil {
			return nil, fail("shared", err)
		}
	}
	return l, nil
}

func whole(e lang.Expr, env lang.Env, least, most int) (int, error) {
	v, err := lang.Eval(e, env)
	if err != nil {
		return 0, err
	}
	n, ok := lang.Int(v)
	if !ok {
		return 0, fmt.Errorf("a whole number is wanted, not %s (// rounds down, ceil() up)", lang.Format(v))
	}
	if n < least || n > most {
		return 0, fmt.Errorf("%d: it must lie in [%d, %d]", n, least, most)
	}
	return n, nil
}

func (a Arg) bind(n *graph.Node, env lang.Env) (Bound, error) {
	b := Bound{In: -1, Out: -1, Kind: a.Kind}
	if a.Operand != "" {
		for i, o := range n.Op.Sig.In {
			if o.Name == a.Operand && i < len(n.In) {
				b.In = i
				return b, nil
			}
		}
		for i, o := range n.Op.Sig.Out {
			if o.Name == a.Operand {
				b.Out = i
				return b, nil
			}
		}
		return b, fmt.Errorf("%s has no operand %s here", n.Op.Name, a.Operand)
	}
	if a.Kind == Null {
		return b, nil
	}
	v, err := lang.Eval(a.Value, env)
	if err != nil {
		return b, err
	}
	if yes, is := v.(bool); is {
		v = 0.0
		if yes {
			v = 1.0
		}
	}
	if a.Kind == F32 {
		x, ok := v.(float64)
		if !ok {
			return b, fmt.Errorf("a number is wanted, not %s", lang.Format(v))
		}
		b.Bits = uint64(math.Float32bits(float32(x)))
		return b, nil
	}
	x, ok := lang.Int(v)
	if !ok {
		return b, fmt.Errorf("a whole number is wanted, not %s: write f32(…) for others", lang.Format(v))
	}
	lo, hi := map[Kind]int{I32: math.MinInt32, I64: math.MinInt64}[a.Kind], math.MaxInt32
	switch a.Kind {
	case U32:
		hi = math.MaxUint32
	case I64, U64:
		hi = math.MaxInt64
	}
	if x < lo || x > hi {
		return b, fmt.Errorf("%d does not fit %s", x, a.Kind)
	}
	if b.Bits = uint64(x); a.Kind == I32 || a.Kind == U32 {
		b.Bits = uint64(uint32(x))
	}
	return b, nil
}
