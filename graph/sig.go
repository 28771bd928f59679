package graph

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/greta-project/greta/tensor"
)

// Sig is an operator's signature, written as
//
//	(x: T[*, K], w: W[N, K], b?: V[N]) -> (y: T[*, N])
//
// A name with "?" is optional. A type is a type's name, "float" (the graph's
// element type of activations), or a capital letter: operands with the same
// letter have the same type; T is a plain float type, other letters are any float
// or block format. A dimension is a number, a name that is the same wherever it
// stands, a name with "?" that may be 1 too, @name for an integer attribute, or * for any number of leading
// dimensions (*A and *B where two differ).
type Sig struct {
	In, Out []Operand
	text    string
}

// Operand is an operand or result of a signature.
type Operand struct {
	Name     string
	Optional bool
	Type     string
	Dims     []string
}

// String gives the signature as it was written.
func (s Sig) String() string { return s.text }

// Required is the number of operands that cannot be left out.
func (s Sig) Required() int {
	n := 0
	for _, o := range s.In {
		if !o.Optional {
			n++
		}
	}
	return n
}

// MustSig parses a signature written in the source; it panics on a mistake.
func MustSig(text string) Sig {
	in, out, ok := strings.Cut(text, "->")
	s := Sig{text: text}
	if !ok {
		panic("signature without ->: " + text)
	}
	s.In, s.Out = sigOperands(in, text), sigOperands(out, text)
	return s
}

func sigOperands(list, text string) []Operand {
	list = strings.TrimSpace(list)
	if len(list) < 2 || list[0] != '(' || list[len(list)-1] != ')' {
		panic("signature without parentheses: " + text)
	}
	var all []Operand
	rest := strings.TrimSpace(list[1 : len(list)-1])
	for rest != "" {
		name, tail, ok := strings.Cut(rest, ":")
		typ, tail, ok2 := strings.Cut(tail, "[")
		dims, tail, ok3 := strings.Cut(tail, "]")
		if !ok || !ok2 || !ok3 {
			panic("signature operand is not name: T[dims]: " + text)
		}
		o := Operand{Name: strings.TrimSpace(name), Type: strings.TrimSpace(typ)}
		o.Name, o.Optional = strings.CutSuffix(o.Name, "?")
		for d := range strings.SplitSeq(dims, ",") {
			if d = strings.TrimSpace(d); d != "" {
				o.Dims = append(o.Dims, d)
			}
		}
		all = append(all, o)
		rest = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(tail), ","))
	}
	return all
}

// bound is what a name of the signature stands for, and the operand that said so.
type bound[V any] struct {
	val V
	by  *Value
}

func (s Sig) infer(n *Node) ([]Result, error) {
	if len(n.In) < s.Required() || len(n.In) > len(s.In) {
		want := strconv.Itoa(s.Required())
		if s.Required() != len(s.In) {
			want += " to " + strconv.Itoa(len(s.In))
		}
		return nil, fmt.Errorf("%d operands given, %s wanted: %s", len(n.In), want, s.text)
	}
	dims := map[string]bound[int]{}
	stars := map[string]bound[tensor.Shape]{}
	types := map[string]bound[tensor.Type]{}
	for i, v := range n.In {
		o := s.In[i]
		if v == nil {
			if !o.Optional {
				return nil, fmt.Errorf("operand %s is missing: %s", o.Name, s.text)
			}
			continue
		}
		if err := o.matchType(v, types); err != nil {
			return nil, err
		}
		if err := o.matchShape(n, v, dims, stars); err != nil {
			return nil, err
		}
	}
	results := make([]Result, len(s.Out))
	for i, o := range s.Out {
		r := Result{Type: types[o.Type].val}
		if r.Type == tensor.Invalid {
			r.Type, _ = tensor.ParseType(o.Type)
		}
		if o.Type == "float" {
			r.Type = n.float()
		}
		for _, d := range o.Dims {
			if d[0] == '*' {
				r.Shape = append(r.Shape, stars[d].val...)
			} else {
				k, err := n.dim(d, dims)
				if err != nil {
					return nil, err
				}
				r.Shape = append(r.Shape, k)
			}
		}
		if r.Shape == nil {
			r.Shape = tensor.Shape{}
		}
		results[i] = r
	}
	return results, nil
}

// float is the element type of activations: that of the graph's "float".
func (n *Node) float() tensor.Type {
	if n.Float == tensor.Invalid {
		return tensor.F32
	}
	return n.Float
}

func (o Operand) matchType(v *Value, types map[string]bound[tensor.Type]) error {
	if o.Type == "any" { // numbers or integers, which are only seen or copied
		if !v.Type.IsInt() && !v.Type.IsFloat() {
			return fmt.Errorf("%s must hold integers or numbers of a float type, but it is %s", o.Name, v)
		}
		return nil
	}
	if len(o.Type) != 1 {
		if want, ok := tensor.ParseType(o.Type); ok && want != v.Type {
			return fmt.Errorf("%s must be %s, but it is %s", o.Name, o.Type, v)
		}
		return nil
	}
	if v.Type.IsInt() || v.Type == tensor.Bool || o.Type == "T" && !v.Type.IsFloat() {
		return fmt.Errorf("%s must hold numbers of a float type, but it is %s", o.Name, v)
	}
	if b, ok := types[o.Type]; ok && b.val != v.Type {
		return fmt.Errorf("%s and %s must have the same type", b.by, v)
	}
	types[o.Type] = bound[tensor.Type]{v.Type, v}
	return nil
}

func (o Operand) matchShape(n *Node, v *Value, dims map[string]bound[int], stars map[string]bound[tensor.Shape]) error {
	star := -1
	for i, d := range o.Dims {
		if d[0] == '*' {
			star = i
		}
	}
	lead := len(v.Shape) - len(o.Dims)
	if star >= 0 {
		lead++
	}
	if lead < 0 || star < 0 && lead > 0 {
		return fmt.Errorf("%s has %d dimensions where %s[%s] is wanted", v, len(v.Shape), o.Name, strings.Join(o.Dims, ", "))
	}
	at := 0
	for _, d := range o.Dims {
		if d[0] == '*' {
			have := v.Shape[at : at+lead]
			at += lead
			if b, ok := stars[d]; ok && !b.val.Equal(have) {
				return fmt.Errorf("leading sizes are %v in %s but %v in %s", b.val, b.by, have, v)
			}
			stars[d] = bound[tensor.Shape]{have, v}
			continue
		}
		have := v.Shape[at]
		at++
		if name, ok := strings.CutSuffix(d, "?"); ok {
			if d = name; have == 1 {
				continue
			}
		}
		if d[0] == '@' || d[0] >= '0' && d[0] <= '9' {
			want, err := n.dim(d, dims)
			if err != nil {
				return err
			}
			if want != have {
				return fmt.Errorf("%s is %d in %s, %d is wanted", strings.TrimPrefix(d, "@"), have, v, want)
			}
			continue
		}
		if b, ok := dims[d]; ok && b.val != have {
			return fmt.Errorf("%s is %d in %s but %d in %s", d, b.val, b.by, have, v)
		}
		dims[d] = bound[int]{have, v}
	}
	return nil
}

// dim gives the size that a dimension's name, number or attribute stands for.
func (n *Node) dim(d string, dims map[string]bound[int]) (int, error) {
	if d[0] == '@' {
		f, ok := attrField(reflect.ValueOf(n.Attr), d[1:])
		if !ok || f.Kind() != reflect.Int {
			return 0, fmt.Errorf("the signature names an integer attribute %s that the operator lacks", d[1:])
		}
		if f.Int() <= 0 {
			return 0, fmt.Errorf("%s=%d must be positive", d[1:], f.Int())
		}
		return int(f.Int()), nil
	}
	if k, err := strconv.Atoi(d); err == nil {
		return k, nil
	}
	return dims[d].val, nil
}
