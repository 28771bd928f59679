package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// opLine is a row of the table of operators.
type opLine struct {
	Name      string              `json:"name"`
	Signature string              `json:"signature"`
	Doc       string              `json:"doc"`
	Kind      string              `json:"kind"` // basic | view | update | fused
	Attrs     []string            `json:"attributes"`
	Body      string              `json:"body,omitempty"` // of a fused operator
	Backends  map[string]string   `json:"backends"`       // the kernel, or why there is none
	Types     map[string][]string `json:"weight_types,omitempty"`
}

func (a *app) opsCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "ops",
		Short: "List the operators, and which backend has which",
		Args:  exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			lines, err := opTable()
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, lines)
			}
			_, err = io.WriteString(a.out, opText(lines))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// opTable asks every device for a kernel of every operator.
func opTable() ([]opLine, error) {
	var devices []backends.Device
	for _, b := range backendTable {
		d, err := b.open(deviceFlags{threads: 1})
		if none := (*backends.NoDevice)(nil); errors.As(err, &none) {
			continue // the table says so
		}
		if err != nil {
			return nil, &exitError{code: exitNoDevice, err: err}
		}
		defer d.Close()
		devices = append(devices, d)
	}
	var lines []opLine
	for _, op := range ops.All() {
		l := opLine{Name: op.Name, Signature: op.Sig.String(), Doc: op.Doc, Kind: opKind(op), Body: op.Body,
			Backends: map[string]string{}}
		for _, s := range op.Attrs() {
			l.Attrs = append(l.Attrs, attrText(s))
		}
		for _, d := range devices {
			info := d.Info()
			n, err := sampleNode(op, info.Float, info.Float)
			if err != nil {
				return nil, err
			}
			k, err := d.Kernel(n)
			if err != nil {
				l.Backends[info.Backend] = err.Error()
				continue
			}
			l.Backends[info.Backend] = k.Name()
			if weight := weightOperand(op); weight >= 0 {
				if l.Types == nil {
					l.Types = map[string][]string{}
				}
				l.Types[info.Backend] = weightTypes(d, op)
			}
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func opKind(op *graph.Op) string {
	switch {
	case op.Body != "":
		return "fused"
	case op.Kind == graph.View:
		return "view"
	case op.Kind == graph.Update:
		return "update"
	}
	return "basic"
}

func attrText(s graph.AttrSpec) string {
	text := s.Name + ": " + s.Kind
	if len(s.Words) > 0 {
		text = s.Name + ": " + strings.Join(s.Words, "|")
	}
	switch {
	case s.Required:
		text += ", required"
	case !reflect.ValueOf(s.Default).IsZero():
		text += fmt.Sprintf(" = %v", s.Default)
	}
	return text
}

// weightOperand is the index of the operand that is a weight matrix, or -1.
func weightOperand(op *graph.Op) int {
	for i, o := range op.Sig.In {
		if o.Name == "w" && o.Type == "W" && len(o.Dims) > 1 {
			return i
		}
	}
	return -1
}

// weightTypes lists the types of weight matrices that a device has a kernel for.
func weightTypes(d backends.Device, op *graph.Op) []string {
	var names []string
	for _, t := range tensor.Types() {
		if !t.IsFloat() && !t.IsBlock() {
			continue
		}
		n, err := sampleNode(op, d.Info().Float, t)
		if err != nil {
			continue
		}
		if _, err := d.Kernel(n); err == nil {
			names = append(names, t.String())
		}
	}
	return names
}

// sampleNode applies an operator to operands that its signature allows: every
// named size is 256, which all block formats and both layouts of RoPE fit.
// weight is the type of a weight matrix.
func sampleNode(op *graph.Op, float, weight tensor.Type) (*graph.Node, error) {
	const size = 256
	n := &graph.Node{Op: op, Float: float, Name: op.Name, Block: -1}
	if op.Attr != nil {
		n.Attr = op.Attr()
		fillAttrs(reflect.ValueOf(n.Attr).Elem(), op, size)
	}
	for i, o := range op.Sig.In {
		v := &graph.Value{ID: i, Name: o.Name, Kind: graph.Input, Type: float}
		for _, d := range o.Dims {
			n, err := strconv.Atoi(d)
			if err != nil {
				n = size
			}
			v.Shape = append(v.Shape, n)
		}
		switch {
		case o.Optional && o.Type == "i32": // rows of several texts or sequences
			n.In = append(n.In, nil)
			continue
		case o.Name == "factors":
			v.Shape = tensor.Shape{size / 2}
		case op == ops.Pool && o.Name == "at": // the first row and that behind the last
			v.Shape = tensor.Shape{size, 2}
		}
		switch {
		case o.Type == "i32":
			v.Type = tensor.I32
		case o.Name == "w":
			v.Kind = graph.Weight
			if i == weightOperand(op) {
				v.Type = weight
			}
		case o.Name == "cache" || o.Name == "state" || op == ops.Attention && (o.Name == "k" || o.Name == "v"):
			v.Kind = graph.State
		}
		n.In = append(n.In, v)
	}
	for n.In[len(n.In)-1] == nil {
		n.In = n.In[:len(n.In)-1]
	}
	if elems := ops.SlotElems(n); elems > 0 {
		n.In[0].Shape = tensor.Shape{2, elems + 1}
	}
	results, err := op.Infer(n)
	if err != nil {
		return nil, fmt.Errorf("a sample of %s: %w", op.Name, err)
	}
	for i, r := range results {
		n.Out = append(n.Out, &graph.Value{ID: len(n.In) + i, Name: op.Name, Type: r.Type, Shape: r.Shape, Def: n, Index: i})
	}
	return n, nil
}

// fillAttrs sets the attributes that have no default.
func fillAttrs(s reflect.Value, op *graph.Op, size int) {
	for i := range s.NumField() {
		name, opts, _ := strings.Cut(s.Type().Field(i).Tag.Get("attr"), ",")
		if opts != "required" {
			continue
		}
		switch f := s.Field(i); f.Kind() {
		case reflect.Float64:
			f.SetFloat(1)
		case reflect.Int:
			if f.SetInt(2); name == "to" { // heads, or a range's end
				f.SetInt(int64(size))
			}
		case reflect.Slice:
			sizes := []int{size} // view: the operand has one dimension
			if name == "sizes" {
				sizes = []int{size / 2, size / 2}
			}
			f.Set(reflect.ValueOf(sizes))
		}
	}
}

// opText prints the table.
func opText(lines []opLine) string {
	head := []string{"<operator", "<kind"}
	for _, b := range backendTable {
		head = append(head, "<"+b.name)
	}
	t := report.NewTable(append(head, "<signature")...)
	for _, l := range lines {
		row := []string{l.Name, l.Kind}
		for _, b := range backendTable {
			mark := "yes"
			why, asked := l.Backends[b.name]
			if !asked {
				mark = "no device"
			} else if strings.Contains(why, "has no kernel") {
				mark = "no"
				if l.Kind == "fused" {
					mark = "as its body"
				}
			}
			row = append(row, mark)
		}
		t.Row(append(row, l.Signature)...)
	}
	text := t.String()
	attrs := report.NewTable("<attributes of", "<")
	for _, l := range lines {
		if len(l.Attrs) > 0 {
			attrs.Row(l.Name, strings.Join(l.Attrs, "; "))
		}
	}
	text += "\n" + attrs.String()
	for _, l := range lines {
		if l.Name != "linear" {
			continue
		}
		text += "\nweight types of linear\n"
		for _, b := range backendTable {
			if types := l.Types[b.name]; types != nil {
				text += fmt.Sprintf("  %-6s %s\n", b.name, strings.Join(types, " "))
			}
		}
	}
	return text
}
