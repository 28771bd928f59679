// Package packed reads checkpoints from Hugging Face whose matrices are stored in few bits: GPTQ, AWQ,
// bitsandbytes, compressed-tensors, mxfp4, nvfp4 and fp8 with block scales. A matrix of theirs lies in several
// tensors (codes, scales, zero points); Wrap presents it as one, under the name that the model's files know, in a type
// that holds the very same numbers:
//
//	stored                                      presented
//	mxfp4 blocks and scales                     mxfp4
//	nvfp4 codes, scales, one factor             nvfp4, with the factor beside it; f16 in a stack of experts
//	e4m3 with scales of blocks                  f8e4m3_b32
//	int4, symmetric, groups of 32·n             q4_0
//	int2 to int8 of other kinds, such groups    q8_0
//	int8 with a factor a row                    q8_0, with the factors beside it
//	nf4                                         nf4
//	what none of these can hold                 f16 or f32
//
// Unknown kinds are refused by name.
package packed

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/greta-project/greta/internal/hfclass"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/safetensors"
)

// matrix is a tensor that is made of several.
type matrix struct {
	shape tensor.Shape
	kind  string      // what it is stored as: "gptq int4"
	typ   tensor.Type // Invalid until chosen
	// choose says which type holds the numbers; once.
	choose func() (tensor.Type, error)
	// fill writes rows [from, to) as the type; rows of all matrices of a stack are counted on.
	fill func(t tensor.Type, dst []byte, from, to int) error
	once sync.Once
	err  error
}

func (m *matrix) is() (tensor.Type, error) {
	m.once.Do(func() {
		if m.choose != nil {
			m.typ, m.err = m.choose()
		}
	})
	return m.typ, m.err
}

// Source is a folder as Wrap presents it.
type Source struct {
	*safetensors.Source
	made   map[string]*matrix
	hidden map[string]bool
	floats map[string][]float32 // factors that are computed
	order  []string             // of made
	method string
}

// Wrap finds the matrices that are stored in parts. A checkpoint without any is handed back as a Source that changes
// nothing.
func Wrap(src *safetensors.Source) (*Source, error) {
	s := &Source{Source: src, made: map[string]*matrix{}, hidden: map[string]bool{}, floats: map[string][]float32{}}
	if err := s.find(); err != nil {
		return nil, fmt.Errorf("%s: %w", src.Path(), err)
	}
	return s, nil
}

// known are the methods that config.json may name, with what reads their tensors.
var known = map[string]func(s *Source, name string) error{
	"gptq": gptq, "gptqmodel": gptq, "awq": awq, "bitsandbytes": nil, "compressed-tensors": nil, "mxfp4": nil,
	"fp8": nil, "fbgemm_fp8": nil, "modelopt": nil, "auto-round": nil,
}

func (s *Source) word(key string) string {
	v, _ := s.Meta(key)
	w, _ := v.(string)
	return strings.ToLower(w)
}

func (s *Source) number(key string) (int, bool) {
	v, _ := s.Meta(key)
	n, ok := v.(int64)
	return int(n), ok
}

func (s *Source) flag(key string) bool {
	v, _ := s.Meta(key)
	b, _ := v.(bool)
	return b
}

// config is where config.json describes the quantisation.
func (s *Source) config() string {
	for _, at := range []string{"quantization_config", "compression_config"} {
		for _, k := range s.Keys() {
			if strings.HasPrefix(strings.TrimPrefix(k, hfclass.Inside), at+".") {
				return at + "."
			}
		}
	}
	return ""
}

// find looks at every tensor.
func (s *Source) find() error {
	at := s.config()
	s.method = s.word(at + "quant_method")
	if at == "" {
		s.method = ""
	}
	method := s.method
	if method == "auto-round" {
		if p := s.word(at + "packing_format"); strings.Contains(p, "awq") {
			method = "awq"
		} else {
			method = "gptq"
		}
	}
	if _, ok := known[method]; method != "" && !ok {
		var names []string
		for n := range known {
			names = append(names, n)
		}
		slices.Sort(names)
		return fmt.Errorf("config.json says quant_method %q, which is not read (%s are): take the model in bf16 or f16, or "+
			"in one of these", s.method, strings.Join(names, ", "))
	}
	names := s.Source.Names()
	for _, name := range names {
		if err := s.look(at, method, name); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
	}
	for _, name := range names { // packed codes that nothing took
		if s.hidden[name] || s.made[name] != nil {
			continue
		}
		for _, suffix := range []string{".qweight", ".weight_packed", "_blocks", ".weight_compressed"} {
			if strings.HasSuffix(name, suffix) {
				return fmt.Errorf("tensor %q holds packed codes, but config.json names no quant_method that says how (it "+
					"says %q): take the model in bf16 or f16", name, s.method)
			}
		}
	}
	return nil
}

// look finds out whether a tensor is the codes of a matrix.
func (s *Source) look(at, method, name string) error {
	typ, _, _ := s.Source.Lookup(name)
	stem, weight := strings.CutSuffix(name, ".weight")
	switch {
	case strings.HasSuffix(name, ".qweight") && known[method] != nil:
		return known[method](s, strings.TrimSuffix(name, ".qweight"))
	case strings.HasSuffix(name, ".weight_packed"):
		return compressed(s, at, strings.TrimSuffix(name, ".weight_packed"))
	case strings.HasSuffix(name, "_blocks") && s.has(strings.TrimSuffix(name, "_blocks")+"_scales"):
		return mxfp4Stack(s, strings.TrimSuffix(name, "_blocks"))
	case method == "bitsandbytes" && weight && typ == tensor.U8:
		return bnb4(s, stem)
	case method == "bitsandbytes" && weight && typ == tensor.I8:
		return bnb8(s, stem)
	case weight && typ == tensor.U8 && s.has(stem+".weight_scale_2"):
		return nvfp4(s, stem, name, stem+".weight_scale_2", false)
	case weight && typ == tensor.I8 && s.has(stem+".weight_scale"):
		return int8Rows(s, stem)
	case typ >= tensor.F8E4M3 && typ <= tensor.F8E5M2FNUZ:
		return fp8(s, name, typ)
	}
	return nil
}

func (s *Source) has(name string) bool {
	_, _, ok := s.Source.Lookup(name)
	return ok
}

// need gives a tensor that must be there, with its type and shape checked.
func (s *Source) need(name string, dims int, types ...tensor.Type) (tensor.Type, tensor.Shape, error) {
	t, shape, ok := s.Source.Lookup(name)
	switch {
	case !ok:
		return t, nil, fmt.Errorf("%s is missing beside it: fetch the checkpoint again", name)
	case !slices.Contains(types, t):
		return t, nil, fmt.Errorf("%s holds %s, expected %v", name, s.Dtype(name), types)
	case dims > 0 && len(shape) != dims:
		return t, nil, fmt.Errorf("%s has shape %v, expected %d dimensions", name, shape, dims)
	}
	return t, shape, nil
}

// add presents a matrix and hides what it is made of.
func (s *Source) add(name string, m *matrix, parts ...string) {
	s.made[name] = m
	s.order = append(s.order, name)
	for _, p := range parts {
		if p != name {
			s.hidden[p] = true
		}
	}
}

// addFactor presents factors of a matrix's rows, or of all of it.
func (s *Source) addFactor(name string, f []float32) {
	s.floats[name] = f
	s.hidden[name] = true
}

// stacked says whether a matrix is one of many experts', where no factor can stand beside it.
func stacked(name string) bool { return strings.Contains(name, "experts.") }

// Names lists the tensors as they are presented.
func (s *Source) Names() []string {
	var names []string
	for _, n := range s.Source.Names() {
		if !s.hidden[n] && s.made[n] == nil {
			names = append(names, n)
		}
	}
	return append(names, s.order...)
}

// Lookup gives a tensor's type and shape as it is presented.
func (s *Source) Lookup(name string) (tensor.Type, tensor.Shape, bool) {
	if m := s.made[name]; m != nil {
		t, err := m.is()
		if err != nil {
			t = tensor.Invalid // Data says why
		}
		return t, append(tensor.Shape(nil), m.shape...), true
	}
	if f, ok := s.floats[name]; ok {
		return tensor.F32, tensor.Shape{len(f)}, true
	}
	if s.hidden[name] {
		return tensor.Invalid, nil, false
	}
	return s.Source.Lookup(name)
}

// Data makes a matrix, anew at each call, or gives what lies in the file.
func (s *Source) Data(name string) ([]byte, error) {
	if f, ok := s.floats[name]; ok {
		return tensor.Bytes(f), nil
	}
	m := s.made[name]
	if m == nil {
		return s.Source.Data(name)
	}
	t, err := m.is()
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", s.Path(), name, err)
	}
	size, err := m.shape.Bytes(t)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", s.Path(), name, err)
	}
	b := tensor.New(tensor.U8, size).Data
	rows, row := m.shape.Rows(), t.RowBytes(m.shape.Last())
	if err := inParallel(rows, func(from, to int) error { return m.fill(t, b[from*row:to*row], from, to) }); err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", s.Path(), name, err)
	}
	return b, nil
}

// Stored says what the matrices are stored as and which types present them: "gptq int4 as q4_0 (21)". It is empty where
// all tensors are as they are in the files.
func (s *Source) Stored() string {
	count := map[string]int{}
	var order []string
	for _, name := range s.order {
		m := s.made[name]
		t, err := m.is()
		if err != nil {
			continue
		}
		k := m.kind + " as " + t.String()
		if count[k]++; count[k] == 1 {
			order = append(order, k)
		}
	}
	for i, k := range order {
		order[i] = fmt.Sprintf("%s (%d)", k, count[k])
	}
	return strings.Join(order, ", ")
}
