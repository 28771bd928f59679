// Package custom describes kernels that users bring along: source or binary of their own for an operator or an
// equation of a model file, with arguments, grid, block and shared memory as expressions of the operator's sizes.
// Package models reads descriptions, backends.CustomKernels runs them, bench/trial decides which are used.
package custom

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/tensor"
)

// Kernel describes a kernel as the file has it.
type Kernel struct {
	Name     string // its key below kernels:
	File     string // the file that describes it
	Op       string // the operator that it computes, "" where Equation says all
	Equation string // the equation whose result it computes, as dump names it: "y", "y.mul"; "": any
	Source   string // relative to File; $NAME is the value of a constant
	Entry    string // the function
	Arch     string // the device's architecture that a binary is for, "sm_90"; "": any
	When     lang.Expr
	Types    map[string][]tensor.Type // of operands by name; f32 where none are given
	Args     []Arg
	Grid     []lang.Expr // one to three
	Block    []lang.Expr // nil: the source says it
	Shared   lang.Expr   // bytes of dynamic shared memory; nil: none
	// Constants are whole numbers that the kernel is compiled with, each with the values that are tried, in the
	// file's order.
	Constants []Constant
	Tiles     map[string][2]int // operands that lie in tiles of so many rows and columns
	Tolerance float64           // relative L2 that results may be off; 0: as exact as f32
	Always    bool              // use it where it is slower, and refuse to run without it
}

// Constant is a number that code is compiled with.
type Constant struct {
	Name   string
	Values []int
}

// Arg is an argument: an operand's address, or a number of some width.
type Arg struct {
	Operand string // its name, "" for a number
	Kind    Kind
	Value   lang.Expr // of a number
	Text    string
}

// Kind is the type of a number that is an argument.
type Kind string

// The kinds of numbers; Null is a pointer to nothing.
const (
	I32  Kind = "i32"
	U32  Kind = "u32"
	I64  Kind = "i64"
	U64  Kind = "u64"
	F32  Kind = "f32"
	Null Kind = "null"
)

// Kinds lists those that a file may write.
var Kinds = []string{string(I32), string(U32), string(I64), string(U64), string(F32), string(Null)}

// Most is how many values all constants together may have: each combination is compiled, checked and timed.
const Most = 64

// Ending is the ending of the source's name, which says what it is: ".hip", ".comp".
func (k *Kernel) Ending() string { return strings.ToLower(filepath.Ext(k.Source)) }

// Endings are those of the sources that some backend takes.
var Endings = []string{".hip", ".cubin", ".hsaco", ".comp", ".spv"}

func (k *Kernel) String() string { return fmt.Sprintf("kernel %s of %s", k.Name, k.File) }

// Matches says whether a node is one that the description is of, whatever its shapes and types.
func (k *Kernel) Matches(n *graph.Node) bool {
	if k.Op != "" && n.Op.Name != k.Op || n.Op.Kind != graph.Compute || len(n.Out) == 0 {
		return false
	}
	return k.Equation == "" || k.Equation == local(n)
}

// local is the name of a node's result without that of its block.
func local(n *graph.Node) string {
	name := n.Out[0].Name
	if n.Block >= 0 {
		if rest, ok := strings.CutPrefix(name, "blk."+strconv.Itoa(n.Block)+"."); ok {
			return rest
		}
	}
	return name
}

// Variants are all combinations of the constants' values, the first values first.
func (k *Kernel) Variants() []map[string]int {
	all := []map[string]int{{}}
	for _, c := range k.Constants {
		var next []map[string]int
		for _, m := range all {
			for _, v := range c.Values {
				with := maps.Clone(m)
				with[c.Name] = v
				next = append(next, with)
			}
		}
		all = next
	}
	return all
}

// Instance is a kernel with its constants chosen and its source read.
type Instance struct {
	*Kernel
	Constants map[string]int
	Path      string // of the source
	Code      []byte
	Hash      string // of description, constants and source
	Note      string // what was measured, for Traits.Why
}

// ConstantsText prints the constants in the order of the file: "BLOCK=64 ROWS=2".
func (i *Instance) ConstantsText() string { return i.text(i.Constants) }

func (k *Kernel) text(values map[string]int) string {
	var parts []string
	for _, c := range k.Constants {
		parts = append(parts, fmt.Sprintf("%s=%d", c.Name, values[c.Name]))
	}
	return strings.Join(parts, " ")
}

// CompileError is what a compiler says of a source.
type CompileError struct {
	Kernel        *Kernel
	Command, Said string // Said without what changes with the constants
}

func (e *CompileError) Error() string { return fmt.Sprintf("%v: %s:\n%s", e.Kernel, e.Command, e.Said) }

// maxCode bounds a source, bytes.
const maxCode = 64 << 20

// Instance reads the source for some values of the constants.
func (k *Kernel) Instance(constants map[string]int) (*Instance, error) {
	name := k.Source
	longest := slices.Clone(k.Constants)
	sorting.Sort(longest, func(a, b Constant) int { return len(b.Name) - len(a.Name) })
	for _, c := range longest {
		name = strings.ReplaceAll(name, "$"+c.Name, strconv.Itoa(constants[c.Name]))
	}
	i := &Instance{Kernel: k, Constants: constants, Path: name}
	if !filepath.IsAbs(name) {
		i.Path = filepath.Join(filepath.Dir(k.File), name)
	}
	info, err := os.Stat(i.Path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%v: source: %w", k, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%v: source: %s is no regular file", k, i.Path)
	case info.Size() == 0 || info.Size() > maxCode:
		return nil, fmt.Errorf("%v: source: %s has %d bytes; 1 to %d are expected", k, i.Path, info.Size(), maxCode)
	}
	if i.Code, err = plainfile.Read(i.Path); err != nil {
		return nil, fmt.Errorf("%v: source: %w", k, err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %s %v %d:", k.Name, k.Entry, i.ConstantsText(), k.Tiles, len(i.Code))
	h.Write(i.Code)
	i.Hash = hex.EncodeToString(h.Sum(nil)[:12])
	return i, nil
}

// Takes says why a kernel does not run a node that it matches: its types, its condition; "" where it does.
func (k *Kernel) Takes(n *graph.Node) string {
	for i, v := range n.In {
		name := n.Op.Sig.In[i].Name
		if v == nil {
			if k.reads(name) {
				return fmt.Sprintf("operand %s is left out here", name)
			}
			continue
		}
		if !k.reads(name) {
			return fmt.Sprintf("it does not read operand %s, which is given here", name)
		}
		if why := k.takesType(name, v.Type); why != "" {
			return why
		}
	}
	for i, v := range n.Out {
		if why := k.takesType(n.Op.Sig.Out[i].Name, v.Type); why != "" {
			return why
		}
	}
	if k.When == nil {
		return ""
	}
	v, err := lang.Eval(k.When, k.env(n, nil))
	if err != nil {
		return fmt.Sprintf("when: %v", err)
	}
	if yes, is := v.(bool); !is || !yes {
		return "when: does not hold for its sizes"
	}
	return ""
}

func (k *Kernel) reads(operand string) bool {
	return slices.ContainsFunc(k.Args, func(a Arg) bool { return a.Operand == operand })
}

func (k *Kernel) takesType(name string, t tensor.Type) string {
	want := k.Types[name]
	if want == nil && (t == tensor.F32 || t == tensor.I32) || slices.Contains(want, t) {
		return ""
	}
	if want == nil {
		want = []tensor.Type{tensor.F32}
	}
	return fmt.Sprintf("%s is %v here, it takes %v (types: says which)", name, t, want)
}

// Sizes are what the names of a node's signature stand for: dimensions by their letters, rows for what a star stands
// for in the first operand that has one, each operand and result as the list of its sizes.
func Sizes(n *graph.Node) map[string]lang.Val {
	m := map[string]lang.Val{}
	rows := 1
	starred := false
	add := func(o graph.Operand, shape tensor.Shape) {
		list := make([]lang.Val, len(shape))
		for i, d := range shape {
			list[i] = float64(d)
		}
		m[o.Name] = list
		star := slices.IndexFunc(o.Dims, func(d string) bool { return d[0] == '*' })
		for i, d := range o.Dims {
			at := i
			if star >= 0 && i > star {
				at = len(shape) - len(o.Dims) + i
			}
			if i == star {
				if lead := len(shape) - len(o.Dims) + 1; !starred && lead >= 0 {
					starred = true
					lead := shape[i : i+lead]
					if len(o.Dims) == 1 && len(lead) > 0 { // all is a star: the last size is no row
						lead = lead[:len(lead)-1]
					}
					rows = tensor.Shape(lead).Elems()
				}
				continue
			}
			name := strings.TrimSuffix(d, "?")
			if name[0] == '@' || name[0] >= '0' && name[0] <= '9' || at < 0 || at >= len(shape) {
				continue
			}
			if _, ok := m[name]; !ok || name != d && shape[at] != 1 {
				m[name] = float64(shape[at])
			}
		}
	}
	for i, v := range n.In {
		if v != nil {
			add(n.Op.Sig.In[i], v.Shape)
		}
	}
	for i, v := range n.Out {
		add(n.Op.Sig.Out[i], v.Shape)
	}
	if _, ok := m["rows"]; !ok {
		m["rows"] = float64(rows)
	}
	return m
}

// Names are those that expressions of a kernel for an operator may use, without its constants.
func Names(op *graph.Op) []string {
	names := []string{"rows"}
	add := func(s string) {
		if !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	for _, o := range slices.Concat(op.Sig.In, op.Sig.Out) {
		add(o.Name)
		for _, d := range o.Dims {
			if d = strings.TrimSuffix(d, "?"); lang.IsName(d) {
				add(d)
			}
		}
	}
	for _, a := range op.Attrs() {
		add(a.Name)
	}
	return names
}

// env gives the values of names: constants, sizes, attributes.
func (k *Kernel) env(n *graph.Node, constants map[string]int) lang.Env {
	sizes := Sizes(n)
	return func(name string) (lang.Val, bool) {
		if v, ok := constants[name]; ok {
			return float64(v), true
		}
		if v, ok := sizes[name]; ok {
			return v, true
		}
		return graph.AttrVal(n.Attr, name)
	}
}
