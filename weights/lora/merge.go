package lora

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/gguf"
	"github.com/greta-project/greta/weights/quant"
)

// Merged is a source whose matrices have adapters added: W + scale·B·A, rounded to W's type.
type Merged struct {
	weights.Source
	adapters []*Adapter

	mu   sync.Mutex
	data map[string][]byte
}

// Merge adds adapters, which must fit, to a base. Closing the result closes the base.
func Merge(base weights.Source, adapters ...*Adapter) (weights.Source, error) {
	for _, a := range adapters {
		if err := a.Fits(base); err != nil {
			return nil, err
		}
		for i := range a.Pairs {
			if typ, _, _ := base.Lookup(a.Pairs[i].Name); !quant.Supported(typ) {
				return nil, fmt.Errorf("tensor %q of %s is of type %s, to which nothing can be added",
					a.Pairs[i].Name, base.Path(), typ)
			}
		}
	}
	m := &Merged{Source: base, adapters: adapters, data: map[string][]byte{}}
	if _, ok := base.(interface{ KV() []gguf.KV }); ok {
		return mergedGGUF{m}, nil
	}
	return m, nil
}

// Path names the base and the adapters. It is no path of a file: what is kept of a base's files is not for this source.
func (m *Merged) Path() string {
	path := m.Source.Path()
	for _, a := range m.adapters {
		path += " with " + a.Path
	}
	return path
}

// mergedGGUF has what a GGUF file has beside: its metadata with their types.
type mergedGGUF struct{ *Merged }

func (m mergedGGUF) KV() []gguf.KV { return m.Source.(interface{ KV() []gguf.KV }).KV() }

// Data gives a tensor's bytes, computed at first use where an adapter changes it.
func (m *Merged) Data(name string) ([]byte, error) {
	var pairs []*Pair
	for _, a := range m.adapters {
		if p := a.Find(name); p != nil {
			pairs = append(pairs, p)
		}
	}
	if len(pairs) == 0 {
		return m.Source.Data(name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.data[name]; ok {
		return b, nil
	}
	typ, shape, _ := m.Lookup(name)
	src, err := m.Source.Data(name)
	if err != nil {
		return nil, err
	}
	w := make([]float32, shape.Elems())
	if err := quant.Decode(typ, w, src); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	for _, p := range pairs {
		p.addTo(w)
	}
	out := make([]byte, len(src))
	if err := quant.EncodeParallel(typ, out, w, shape[len(shape)-1], 0); err != nil {
		return nil, fmt.Errorf("tensor %q with its adapter in %s: %w", name, typ, err)
	}
	m.data[name] = out
	return out, nil
}

// addTo adds scale·B·A to w [Out, In], in float64, the rows divided among goroutines.
func (p *Pair) addTo(w []float32) {
	var wait sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), p.Out)
	for k := range workers {
		wait.Go(func() {
			row := make([]float64, p.In)
			for o := k; o < p.Out; o += workers {
				clear(row)
				for r, b := range p.B[o*p.Rank : (o+1)*p.Rank] {
					for i, a := range p.A[r*p.In : (r+1)*p.In] {
						row[i] += float64(b) * float64(a)
					}
				}
				to := w[o*p.In : (o+1)*p.In]
				for i, v := range row {
					to[i] = float32(float64(to[i]) + float64(p.Scale)*v)
				}
			}
		})
	}
	wait.Wait()
}

var _ weights.Source = (*Merged)(nil)

// Shape is that of the matrix that the pair changes.
func (p *Pair) Shape() tensor.Shape { return tensor.Shape{p.Out, p.In} }
