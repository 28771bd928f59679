package trial

import (
	"slices"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Shapes at which a kernel is checked, made from a node of a model: its own with few rows, odd ones, and ones that
// tiles fill. What the operator or the kernel does not take is left out by the caller.

// most is the largest size of a dimension at which a kernel is checked for all numbers of rows.
const most = 1 << 14

// rowCounts are the numbers of rows that are tried at the model's own sizes.
var rowCounts = []int{1, 2, 3, 7, 33}

// variations are nodes like n of other sizes.
func variations(n *graph.Node) (all []*graph.Node) {
	add := func(rows int, size func(i, have int) int) {
		if v := resized(n, rows, size); v != nil {
			all = append(all, v)
		}
	}
	for _, rows := range rowCounts {
		add(rows, func(_, have int) int { return min(have, most) })
	}
	odd := []int{67, 131, 37, 101, 53}
	add(5, func(i, _ int) int { return odd[i%len(odd)] })
	add(1, func(i, _ int) int { return odd[(i+1)%len(odd)] })
	add(3, func(i, _ int) int { return []int{96, 160, 32}[i%3] })
	add(9, func(i, _ int) int { return []int{256, 512, 128}[i%3] })
	add(2, func(i, have int) int { return min(have, most) + 1 })
	add(65, func(i, _ int) int { return []int{64, 192, 128}[i%3] })
	return all
}

// resized is a node like n with so many rows and other sizes; nil where the operator does not take them.
func resized(n *graph.Node, rows int, size func(i, have int) int) *graph.Node {
	sizes := map[string]int{}
	v := &graph.Node{Op: n.Op, Float: n.Float, Attr: n.Attr, Name: n.Op.Name, Block: -1}
	of := func(name string, have int) int {
		if slices.Contains(varying, name) && name != "C" {
			return rows
		}
		if _, ok := sizes[name]; !ok {
			sizes[name] = size(len(sizes), have)
		}
		return sizes[name]
	}
	for i, in := range n.In {
		if in == nil {
			v.In = append(v.In, nil)
			continue
		}
		v.In = append(v.In, &graph.Value{Name: in.Name, Kind: in.Kind, Type: in.Type,
			Shape: resizedShape(n.Op.Sig.In[i].Dims, in.Shape, rows, of)})
	}
	if infer(v) != nil {
		return nil
	}
	for _, x := range v.In {
		if x == nil {
			continue
		}
		if block, _ := x.Type.Block(); x.Shape.Last()%block != 0 {
			return nil
		}
	}
	return v
}

func resizedShape(dims []string, have tensor.Shape, rows int, of func(string, int) int) tensor.Shape {
	star := slices.IndexFunc(dims, func(d string) bool { return d[0] == '*' })
	lead := len(have) - len(dims) + 1
	var shape tensor.Shape
	for i, d := range dims {
		at := i
		if star >= 0 && i > star {
			at += lead - 1
		}
		switch {
		case i == star:
			for j := range lead {
				switch {
				case j == 0 && (lead > 1 || len(dims) > 1):
					shape = append(shape, rows)
				case len(dims) == 1 && j == lead-1: // of a signature of stars alone: the last size
					shape = append(shape, of("last", have[i+j]))
				default:
					shape = append(shape, have[i+j])
				}
			}
		case d[0] == '@' || d[0] >= '0' && d[0] <= '9':
			shape = append(shape, have[at])
		case strings.HasSuffix(d, "?") && have[at] == 1:
			shape = append(shape, 1)
		default:
			shape = append(shape, of(strings.TrimSuffix(d, "?"), have[at]))
		}
	}
	return shape
}
