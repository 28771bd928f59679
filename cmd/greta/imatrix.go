package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tokenizer"
	"github.com/greta-project/greta/weights/imatrix"
)

// imatrixFlags are those of imatrix beside the model's.
type imatrixFlags struct {
	modelFlags
	text, out      string
	length, chunks int
	force          bool
}

func (a *app) imatrixCmd() *cobra.Command {
	f := &imatrixFlags{}
	c := &cobra.Command{
		Use:   "imatrix MODEL",
		Short: "Make an importance matrix, by which greta quantize weighs errors",
		Long: `imatrix runs a text through a model, in chunks that know nothing of each other, and
writes the mean squares of what each matrix is multiplied with, column by column:
a GGUF file for greta quantize --imatrix, in llama.cpp's form. The text should be of
the kind that the model is for; some hundred thousand tokens are plenty.`,
		Example: "  greta imatrix FOLDER --text calibration.txt --out imatrix.gguf",
		Args:    exactly(1, "one model"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case f.text == "" || f.out == "":
				return usagef("imatrix needs a text and a file to write: --text FILE --out FILE.gguf")
			case f.length < 2 || f.chunks < 0:
				return usagef("--length %d --chunks %d: a chunk has two tokens at least", f.length, f.chunks)
			}
			if _, err := os.Stat(f.out); err == nil && !f.force {
				return usagef("%s exists; --force overwrites it", f.out)
			}
			b, err := f.open(c.Context(), a.err, args[0])
			if err != nil {
				return err
			}
			return errlist.Join(a.makeImatrix(c.Context(), f, b), b.close())
		},
	}
	s := c.Flags()
	s.SortFlags = false
	f.register(s)
	s.StringVar(&f.text, "text", "", "file of text")
	s.StringVar(&f.out, "out", "", "file to write")
	s.IntVar(&f.length, "length", 512, "tokens of a chunk")
	s.IntVar(&f.chunks, "chunks", 0, "most chunks (default: all)")
	s.BoolVar(&f.force, "force", false, "overwrite the file")
	return c
}

// makeImatrix collects the squares and writes them.
func (a *app) makeImatrix(ctx context.Context, f *imatrixFlags, b *bundle) error {
	if b.source == nil {
		return usagef("imatrix needs weights")
	}
	tok, err := tokenizerOf(b.source)
	if f.tokenizer != "" {
		tok, err = openTokenizer(f.tokenizer)
	}
	if err == nil && tok == nil {
		err = errors.New("no tokenizer lies with these weights: --tokenizer names one")
	}
	if err != nil {
		return usage(err)
	}
	text, err := plainfile.Read(f.text)
	if err != nil {
		return usage(err)
	}
	tokens, err := tok.Encode(string(text), tokenizer.Options{})
	if err != nil {
		return usage(err)
	}
	if len(tokens) < f.length {
		return usagef("%s has %d tokens, a chunk has %d: take a longer text or --length", f.text, len(tokens), f.length)
	}
	names := map[string]string{}
	if _, err := b.file.Build(models.Options{Weights: b.source, C: 16, Seen: func(l *graph.Load, gguf string) {
		if len(l.Tensors) > 0 && gguf != "" {
			names[l.Tensors[0]] = gguf
		}
	}}); err != nil {
		return usage(err)
	}
	b.opt.Context, b.opt.Chunk, b.opt.NoFuse = f.length, f.length, true
	e, err := engine.New(ctx, b.opt)
	if err != nil {
		return err
	}
	defer e.Close()
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	all := squares{}
	n := len(tokens) / f.length
	if f.chunks > 0 {
		n = min(n, f.chunks)
	}
	bar := newBar(a.err, "running")
	for i := range n {
		s.Reset()
		if err := s.Observe(ctx, tokens[i*f.length:(i+1)*f.length], all.add); err != nil {
			return err
		}
		bar.setCount(int64(i+1), int64(n))
	}
	bar.clear()
	out := all.matrices(names)
	if err := out.Write(f.out, f.text, f.length, n); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%d matrices of %d chunks of %d tokens -> %s\n", len(out), n, f.length, f.out)
	return err
}

// squares are the sums by the first tensor of each matrix, in float64.
type squares map[string]*sums

type sums struct {
	cols, stack int
	sum         []float64
	count       []float64
}

// add takes what a product reads.
func (all squares) add(l *backends.Launch, read func(o *backends.Operand) ([]float64, error)) error {
	if !ops.IsProduct(l.Node.Op) || l.Node.In[1].Kind != graph.Weight || l.Node.In[1].Load == nil {
		return nil
	}
	w := l.Node.In[1]
	x, err := read(&l.In[0])
	if err != nil {
		return err
	}
	m := all[w.Load.Tensors[0]]
	if m == nil {
		m = &sums{cols: w.Shape.Last(), stack: 1}
		if len(w.Shape) > 2 {
			m.stack = w.Shape[0]
		}
		m.sum, m.count = make([]float64, m.stack*m.cols), make([]float64, m.stack)
		all[w.Load.Tensors[0]] = m
	}
	rows := len(x) / m.cols
	take := func(row, e int) {
		for i, v := range x[row*m.cols : (row+1)*m.cols] {
			m.sum[e*m.cols+i] += float64(v * v)
		}
		m.count[e]++
	}
	if l.Node.Op != ops.LinearID {
		for r := range rows {
			take(r, 0)
		}
		return nil
	}
	ids, err := read(&l.In[2])
	if err != nil {
		return err
	}
	tokens := l.Node.In[2].Shape.Rows()
	chosen, each := len(ids)/tokens, rows/tokens // each: one row for all experts of a token, or one for each
	for i, e := range ids {
		if e >= 0 && int(e) < m.stack {
			take(i/chosen*each+min(i%chosen, each-1), int(e))
		}
	}
	return nil
}

// matrices gives them the names that GGUF has.
func (all squares) matrices(names map[string]string) imatrix.Matrices {
	out := imatrix.Matrices{}
	for name, m := range all {
		if n := names[name]; n != "" {
			name = n
		}
		x := &imatrix.Matrix{Cols: m.cols}
		for _, v := range m.sum {
			x.Sums = append(x.Sums, float32(v))
		}
		for _, v := range m.count {
			x.Counts = append(x.Counts, float32(v))
		}
		out[name] = x
	}
	return out
}
