// Package optest runs every operator on any device and compares it with its
// float64 reference: one table of cases for all backends, which microbenchmarks
// can use too, and random small graphs.
package optest

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// Case is one execution of an operator.
type Case struct {
	Name string // "linear/q4_0/5x256x19", unique, and the seed of the data
	Eq   string // the equation: "y: rope(x, pos, layout=pair)"
	// Args are the operands, divided by semicolons: "name type[dims] flags", where
	// type "float" is the device's type of activations. Flags:
	//
	//	+n      n elements lie between rows of the first dimension
	//	=a,b,c  the values, of an i32; of a float too, dense
	//	=a..    a, a+1, a+2, …, of an i32
	//	<n      random values in [0, n), of an i32
	//	#n      random whole numbers in [0, n), of a float: many are equal
	//	*n      the values times n, of a float
	//	-n      minus the sizes of the values times n, of a float: logs of decays
	//	%n      minus infinity in the place of each n-th value, of a float: the log of a decay of 0
	//	@n,m,…  a recurrence's state, f32: slots that hold it as it is before positions n, m, …; others are empty
	Args string
	// Limits for arithmetic in f32 against float64: |got - want| / |want| in the
	// Euclidean norm over a whole result, and the largest single difference.
	Rel, Abs float64
}

// Operator is the operator's name.
func (c Case) Operator() string {
	op, _, _ := strings.Cut(c.Name, "/")
	return op
}

// Kind is the operator with the type of weights, of a case of many types.
func (c Case) Kind() string {
	if i := strings.LastIndexByte(c.Name, '/'); i > 0 {
		return c.Name[:i]
	}
	return c.Name
}

// Type is the type of weights of a case of many types.
func (c Case) Type() tensor.Type {
	_, name, _ := strings.Cut(c.Kind(), "/")
	t, _ := tensor.ParseType(name)
	return t
}

// FirstOfEach gives the first case of each kind.
func FirstOfEach(cases []Case, kind func(Case) string) (first []Case) {
	seen := map[string]bool{}
	for _, c := range cases {
		if k := kind(c); !seen[k] {
			seen[k] = true
			first = append(first, c)
		}
	}
	return first
}

// Operand is an operand's data.
type Operand struct {
	Value *graph.Value
	Gap   int    // elements between rows
	Data  []byte // dense, in the value's type
}

// Prepared is a case with its node and data, the same on every machine.
type Prepared struct {
	Node *graph.Node
	In   []Operand // as Node.In; no Data where one is left out
}

// Prepare builds the node and the data for a device whose activations are of
// type float. It fails where the device's types make no valid node.
func (c Case) Prepare(float tensor.Type) (*Prepared, error) { return c.prepare(float, true) }

// Bare builds the node alone, as Prepare does: of large operands the data are what takes time.
func (c Case) Bare(float tensor.Type) (*graph.Node, error) {
	p, err := c.prepare(float, false)
	if err != nil {
		return nil, err
	}
	return p.Node, nil
}

func (c Case) prepare(float tensor.Type, data bool) (*Prepared, error) {
	lhs, rhs, ok := strings.Cut(c.Eq, ":")
	if !ok {
		return nil, fmt.Errorf("%s: %q is no equation", c.Name, c.Eq)
	}
	e, err := lang.Parse(rhs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	var names []string
	for n := range strings.SplitSeq(lhs, ",") {
		names = append(names, strings.TrimSpace(n))
	}
	seed := fnv.New64a()
	seed.Write([]byte(c.Name))
	rng := rand.New(rand.NewPCG(seed.Sum64(), 1))

	g := &graph.Graph{Name: c.Name}
	b := &graph.Builder{Graph: g, Ops: ops.Table, Float: float, Block: -1}
	sc := graph.Scope{Values: map[string]*graph.Value{}, Env: func(string) (lang.Val, bool) { return nil, false }}
	operands := map[*graph.Value]Operand{}
	for text := range strings.SplitSeq(c.Args, ";") {
		o, flags, err := parseOperand(strings.TrimSpace(text), float)
		if err == nil && data {
			err = o.fill(flags, rng)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", c.Name, text, err)
		}
		sc.Values[o.Value.Name] = g.AddValue(o.Value)
		operands[o.Value] = o
	}
	if _, err := b.Equation(names, e, sc); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	if len(g.Nodes) != 1 {
		return nil, fmt.Errorf("%s: %q is %d nodes, a case is one", c.Name, c.Eq, len(g.Nodes))
	}
	p := &Prepared{Node: g.Nodes[0]}
	for _, v := range p.Node.In {
		p.In = append(p.In, operands[v])
	}
	return p, nil
}

var operandText = regexp.MustCompile(`^(\w+) (\w+)\[([\d, ]*)\]((?: \S+)*)$`)

// operandFlags are an operand's, by their first characters.
type operandFlags [128]string

func parseOperand(text string, float tensor.Type) (o Operand, flags operandFlags, err error) {
	m := operandText.FindStringSubmatch(text)
	if m == nil {
		return o, flags, fmt.Errorf("not name type[dims] flags")
	}
	v := &graph.Value{Name: m[1], Type: float, Kind: graph.Input}
	if m[2] != "float" {
		var ok bool
		if v.Type, ok = tensor.ParseType(m[2]); !ok {
			return o, flags, fmt.Errorf("unknown type %s", m[2])
		}
		switch {
		case v.Name == "cache" || v.Name == "k" || v.Name == "v" || v.Name == "state":
			v.Kind = graph.State
		case v.Type != tensor.I32:
			v.Kind = graph.Weight
		}
	}
	for d := range strings.SplitSeq(m[3], ",") {
		n, err := strconv.Atoi(strings.TrimSpace(d))
		if err != nil {
			return o, flags, err
		}
		v.Shape = append(v.Shape, n)
	}
	o.Value = v
	for f := range strings.FieldsSeq(m[4]) {
		flags[f[0]&127] = f[1:]
	}
	if flags['+'] != "" {
		o.Gap, err = strconv.Atoi(flags['+'])
	}
	return o, flags, err
}

// fill makes an operand's data as its flags say.
func (o *Operand) fill(flag operandFlags, rng *rand.Rand) (err error) {
	v := o.Value
	if v.Type == tensor.I32 {
		o.Data, err = integers(v.Shape.Elems(), flag['='], flag['<'], rng)
		return err
	}
	whole := 0
	if flag['#'] != "" {
		if whole, err = strconv.Atoi(flag['#']); err != nil {
			return err
		}
	}
	times := 1.0
	if flag['*'] != "" {
		if times, err = strconv.ParseFloat(flag['*'], 64); err != nil {
			return err
		}
	}
	if flag['='] != "" {
		o.Data, err = listed(v, flag['='])
		return err
	}
	if o.Data, err = random(v, whole, times, rng); err != nil {
		return err
	}
	if flag['-'] != "" || flag['%'] != "" {
		if err := logs(o, flag['-'], flag['%']); err != nil {
			return err
		}
	}
	if flag['@'] == "" {
		return nil
	}
	// A recurrence's state: slots are marked as those before the positions, others as empty.
	at, err := integers(strings.Count(flag['@'], ",")+1, flag['@'], "", rng)
	for i := range v.Shape[0] {
		mark := make([]float32, 1)
		if 4*i < len(at) {
			mark[0] = float32(tensor.View[int32](at)[i])
		}
		width := v.Type.RowBytes(1)
		copy(o.Data[(i+1)*v.Shape[1:].Elems()*width-width:], tensor.Bytes(mark))
	}
	return err
}

// listed gives the values that a list has.
func listed(v *graph.Value, list string) ([]byte, error) {
	texts := strings.Split(list, ",")
	vals := make([]float32, len(texts))
	for i, t := range texts {
		x, err := strconv.ParseFloat(t, 32)
		if err != nil {
			return nil, err
		}
		vals[i] = float32(x)
	}
	if len(vals) != v.Shape.Elems() {
		return nil, fmt.Errorf("%d values for %d elements", len(vals), v.Shape.Elems())
	}
	data := tensor.New(v.Type, v.Shape...).Data
	return data, quant.Encode(v.Type, data, vals, v.Shape.Last())
}

// logs makes logs of decays of an operand's values: minus their sizes times the number size, and minus infinity for
// each gone-th. An empty text leaves out its part.
func logs(o *Operand, size, gone string) error {
	if o.Value.Type == tensor.F64 {
		return logsOf(tensor.View[float64](o.Data), size, gone)
	}
	return logsOf(tensor.View[float32](o.Data), size, gone)
}

func logsOf[F float32 | float64](vals []F, size, gone string) error {
	if size != "" {
		by, err := strconv.ParseFloat(size, 64)
		if err != nil {
			return err
		}
		for i, x := range vals {
			vals[i] = -F(float32(by * math.Abs(float64(x))))
		}
	}
	if gone == "" {
		return nil
	}
	each, err := strconv.Atoi(gone)
	for i := each - 1; err == nil && i < len(vals); i += each {
		vals[i] = F(math.Inf(-1))
	}
	return err
}

func integers(n int, list, below string, rng *rand.Rand) ([]byte, error) {
	vals := make([]int32, n)
	if list == "" {
		k, err := strconv.Atoi(below)
		if err != nil {
			return nil, err
		}
		for i := range vals {
			vals[i] = int32(rng.IntN(k))
		}
		return tensor.Bytes(vals), nil
	}
	if start, ok := strings.CutSuffix(list, ".."); ok {
		k, err := strconv.Atoi(start)
		for i := range vals {
			vals[i] = int32(k + i)
		}
		return tensor.Bytes(vals), err
	}
	texts := strings.Split(list, ",")
	if len(texts) != n {
		return nil, fmt.Errorf("%d values for %d elements", len(texts), n)
	}
	for i, t := range texts {
		k, err := strconv.Atoi(t)
		if err != nil {
			return nil, err
		}
		vals[i] = int32(k)
	}
	return tensor.Bytes(vals), nil
}

// Random gives a value's elements, in its type: normal numbers; a matrix's scaled
// so that a product with it keeps its size; a norm's weight around one; the
// factors of rope between one and four.
func Random(v *graph.Value, rng *rand.Rand) ([]byte, error) { return random(v, 0, 1, rng) }

// random gives the elements times a factor; with whole above zero they are
// whole numbers in [0, whole).
func random(v *graph.Value, whole int, times float64, rng *rand.Rand) ([]byte, error) {
	n := v.Shape.Elems()
	vals := make([]float32, n)
	scale := times
	if v.Kind == graph.Weight && len(v.Shape) > 1 {
		scale /= math.Sqrt(float64(v.Shape.Last()))
	}
	for i := range vals {
		x := rng.NormFloat64()
		switch {
		case whole > 0:
			x = float64(rng.IntN(whole))
		case v.Name == "factors":
			x = 1 + float64(3*rng.Float64()) // rounded before the sum, so that no machine fuses the two
		case v.Kind == graph.Weight && len(v.Shape) == 1:
			x = 1 + x/4
		}
		vals[i] = float32(x * scale)
	}
	data := tensor.New(v.Type, v.Shape...).Data
	if v.Type == tensor.F64 { // with digits that f32 lacks
		for i, x := range vals {
			tensor.View[float64](data)[i] = float64(x) + math.Ldexp(float64(i%7), -40)
		}
		return data, nil
	}
	if !quant.Encodable(v.Type) {
		randomBlocks(v.Type, data, scale, rng)
		return data, nil
	}
	return data, quant.Encode(v.Type, data, vals, v.Shape.Last())
}

// randomBlocks fills blocks of formats that are only read: random codes, under f16 scales that make values of about the
// wanted size.
func randomBlocks(t tensor.Type, data []byte, size float64, rng *rand.Rand) {
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	_, bytes := t.Block()
	for b := data; len(b) >= bytes; b = b[bytes:] {
		d := tensor.F32ToF16(float32(size * rng.NormFloat64() / 64))
		switch t {
		case tensor.NVFP4:
			for i := range 4 {
				b[i] = tensor.F32ToF8(tensor.F8E4M3, float32(size/4))
			}
		case tensor.IQ1_M: // in the upper nibbles of four words
			for i := range 4 {
				b[49+2*i] = b[49+2*i]&15 | byte(d>>(4*i)&15)<<4
			}
		default:
			b[0], b[1] = byte(d), byte(d>>8)
		}
	}
}

// Decode gives dense data as references see it: F64, or I32.
func Decode(t tensor.Type, shape tensor.Shape, data []byte) (tensor.Tensor, error) {
	if t == tensor.I32 {
		return tensor.Tensor{Type: t, Shape: shape, Data: data}, nil
	}
	d := tensor.New(tensor.F64, shape...)
	return d, quant.DecodeF64(t, d.F64(), data)
}

// Reference computes the node's results in float64 from its data.
func (p *Prepared) Reference() ([]tensor.Tensor, error) {
	in, out := make([]tensor.Tensor, len(p.In)), make([]tensor.Tensor, len(p.Node.Out))
	for i, o := range p.In {
		if o.Data == nil {
			continue
		}
		var err error
		if in[i], err = Decode(o.Value.Type, o.Value.Shape, o.Data); err != nil {
			return nil, err
		}
	}
	for i, v := range p.Node.Out {
		t := tensor.F64
		if v.Type == tensor.I32 {
			t = tensor.I32
		}
		out[i] = tensor.New(t, v.Shape...)
	}
	if p.Node.Op.Kind == graph.Update {
		out[0] = in[0]
	}
	return out, p.Node.Reference(ops.Table, in, out)
}
