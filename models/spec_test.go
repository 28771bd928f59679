package models

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
)

// stub is a source without data.
type stub struct {
	path, dialect string
	meta          map[string]any
	names         []string
	types         map[string]tensor.Type
	shapes        map[string]tensor.Shape
}

func newStub(dialect string) *stub {
	path := map[string]string{"gguf": "m.gguf", "hf": "folder"}[dialect]
	return &stub{path, dialect, map[string]any{}, nil, map[string]tensor.Type{}, map[string]tensor.Shape{}}
}

func (s *stub) add(name string, t tensor.Type, shape ...int) {
	s.names = append(s.names, name)
	s.types[name], s.shapes[name] = t, shape
}

func (s *stub) Path() string                { return s.path }
func (s *stub) Dialect() string             { return s.dialect }
func (s *stub) Meta(key string) (any, bool) { v, ok := s.meta[key]; return v, ok }
func (s *stub) Keys() []string              { return slices.Sorted(maps.Keys(s.meta)) }
func (s *stub) Names() []string             { return s.names }
func (s *stub) Lookup(name string) (tensor.Type, tensor.Shape, bool) {
	shape, ok := s.shapes[name]
	return s.types[name], shape, ok
}

// parseStub reads lines "key = value" and "name f16[2, 3]".
func parseStub(t *testing.T, dialect, text string) *stub {
	s := newStub(dialect)
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line == "" {
			continue
		}
		if key, value, ok := strings.Cut(line, " = "); ok {
			s.meta[key] = metaOf(value)
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		typ, dims, _ := strings.Cut(strings.TrimSuffix(rest, "]"), "[")
		ty, ok := tensor.ParseType(typ)
		if !ok {
			t.Fatalf("%s: unknown type", line)
		}
		var shape tensor.Shape
		for d := range strings.SplitSeq(dims, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(d))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			shape = append(shape, n)
		}
		s.add(name, ty, shape...)
	}
	return s
}

func metaOf(value string) any {
	if strings.HasPrefix(value, "[") {
		return strings.Split(strings.Trim(value, "[]"), ", ")
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return n
	}
	if x, err := strconv.ParseFloat(value, 64); err == nil {
		return x
	}
	if b, err := strconv.ParseBool(value); err == nil {
		return b
	}
	return value
}

// TestSpec runs testdata/spec: model files in, graphs or exact errors out.
//
//	block NAME            a block file, for the models behind it
//	weights gguf|hf|none  metadata and tensors, for the builds behind it
//	build [S=n] [C=n] [R=n] [dtype=t] [kv=t] [set=(A=1,B=2)]
//	params, match         the parameters with their origins; the file for the weights
func TestSpec(t *testing.T) {
	datadriven.Walk(t, testfiles.Repo(t, "testdata", "spec"), func(t *testing.T, path string) {
		blocks := map[string]string{}
		var w Weights
		read := func(stem string) (string, []byte, error) {
			if text, ok := blocks[stem]; ok {
				return stem + ".yaml", []byte(text), nil
			}
			return "", nil, fmt.Errorf("no such file: %w", fs.ErrNotExist)
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "block":
				name := d.CmdArgs[0].Key
				blocks[name] = d.Input
				if _, err := parse(name+".yaml", []byte(d.Input), read); err != nil {
					return err.Error()
				}
				return ""
			case "weights":
				if w = nil; d.CmdArgs[0].Key != "none" {
					w = parseStub(t, d.CmdArgs[0].Key, d.Input)
				}
				return ""
			case "match":
				f, err := Match(w)
				if err != nil {
					return err.Error()
				}
				return f.Path()
			}
			f, err := resolve("m.yaml", []byte(d.Input), read)
			if err != nil {
				return err.Error()
			}
			o := specOptions(t, d, w)
			switch d.Cmd {
			case "params":
				ps, err := f.Params(o)
				if err != nil {
					return err.Error()
				}
				var b strings.Builder
				for _, p := range ps {
					b.WriteString(p.String() + "\n")
				}
				return b.String()
			case "build":
				g, err := f.Build(o)
				if err != nil {
					return err.Error()
				}
				out := g.Text()
				if w != nil && d.HasArg("unused") {
					out += fmt.Sprintf("unused %v\n", Unused(g, w))
				}
				return out
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

func specOptions(t *testing.T, d *datadriven.TestData, w Weights) Options {
	o := Options{Weights: w, S: 3, C: 16, Set: map[string]string{}}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "S", "C", "R":
			n, err := strconv.Atoi(a.Vals[0])
			if err != nil {
				t.Fatal(err)
			}
			*map[string]*int{"S": &o.S, "C": &o.C, "R": &o.R}[a.Key] = n
		case "dtype", "kv", "float":
			ty, ok := tensor.ParseType(a.Vals[0])
			if !ok {
				t.Fatalf("unknown type %s", a.Vals[0])
			}
			*map[string]*tensor.Type{"dtype": &o.DType, "kv": &o.KV, "float": &o.Float}[a.Key] = ty
		case "set":
			for _, v := range a.Vals {
				name, value, _ := strings.Cut(v, "=")
				o.Set[name] = value
			}
		case "unused":
		default:
			t.Fatalf("unknown argument %s", a.Key)
		}
	}
	return o
}
