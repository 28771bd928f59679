// Package convert writes any weights as a GGUF file in a chosen type or mix of
// types: the engine of greta quantize.
//
// A conversion is a plan, a list of metadata and of items, each a tensor of the
// new file with the rows of the source that it is made of. GGUF and llama2.c
// sources keep names and order; folders from Hugging Face are renamed,
// permuted and described as llama.cpp's converter does it (see hf.go), so that
// other programs read the result.
package convert

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/mapped"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/gguf"
	"github.com/greta-project/greta/weights/imatrix"
	"github.com/greta-project/greta/weights/quant"
)

// Options of a conversion.
type Options struct {
	// Type is one of quant.RecipeNames, or "" for the types that the source has, as far as
	// GGUF has them.
	Type string
	// Tokenizer is a tokenizer.model or tokenizer.json; "" looks beside a
	// Hugging Face model. A GGUF source keeps its own.
	Tokenizer string
	// Workers is the number of goroutines; 0 takes GOMAXPROCS.
	Workers int
	// Matrices are the tensors of a Hugging Face folder that a model file's products and embeddings read, with what they
	// are called in rules of mixes ("output.weight", "token_embd.weight", or ""). Where it is given, or GGUF has no names
	// for the family, the new file keeps the folder's names and only these tensors get another type.
	Matrices map[string]string
	// Fresh makes a file that somebody else writes meanwhile an error, fs.ErrExist, instead of replacing it.
	Fresh bool
	// Importance weighs the errors of matrices, by their names in GGUF or in the folder; nil: all alike.
	Importance imatrix.Matrices
	// Progress, where not nil, is called after each piece with the source's
	// elements done and in all, and the tensor's name. Calls do not overlap.
	Progress func(done, total int64, name string)
	// Stop, where not nil, is asked between pieces: its error ends the
	// conversion, and leaves no file.
	Stop func() error
}

// Report says what was written.
type Report struct {
	Tensors      int
	Elements     int64
	BytesIn      int64
	BytesOut     int64               // of tensors, without padding
	Types        map[tensor.Type]int // tensors of each type
	Unweighted   []string            // tensors of blocks that the importance matrix does not name
	Fallbacks    []string            // tensors whose rows did not fit the wanted type
	Notes        []string            // what the file cannot say
	HasTokenizer bool
}

// item is a tensor of the new file.
type item struct {
	name  string
	shape tensor.Shape
	src   tensor.Type
	// parts are the source's tensors, stacked.
	parts []string
	// unit is the number of elements that perm moves as one: a row, or one
	// element of a bias.
	unit int
	perm func(i int) int // the unit of a part that comes to place i; nil: no change
	add  float32
	data []float32 // computed tensors have no parts
	// fixed tensors keep full precision: norms, biases, routers.
	fixed bool
	role  string      // what rules of mixes call it; "": its name
	typ   tensor.Type // chosen
	// means are the importance of a row's elements, of each matrix of a stack; nil: all alike.
	means []float32
}

// plan is a conversion before types are chosen.
type plan struct {
	kvs    []gguf.KV
	items  []*item
	traits quant.ModelTraits
	notes  []string
	keep   bool // fixed tensors keep their type instead of becoming f32
}

// ToGGUF writes src to a new GGUF file at path, whole or not at all.
func ToGGUF(src weights.Source, path string, opt Options) (rep Report, err error) {
	p, err := makePlan(src, opt)
	if err != nil {
		return rep, fmt.Errorf("converting %s: %w", src.Path(), err)
	}
	if err := p.chooseTypes(opt.Type, &rep); err != nil {
		return rep, fmt.Errorf("converting %s: %w", src.Path(), err)
	}
	if err := p.weigh(opt.Importance, &rep); err != nil {
		return rep, fmt.Errorf("converting %s: %w", src.Path(), err)
	}
	infos := make([]gguf.Info, len(p.items))
	for i, it := range p.items {
		infos[i] = gguf.Info{Name: it.name, Type: it.typ, Shape: it.shape}
		rep.count(it)
	}
	for _, kv := range p.kvs {
		rep.HasTokenizer = rep.HasTokenizer || kv.Key == "tokenizer.ggml.tokens"
	}
	rep.Notes = p.notes
	w, err := gguf.Create(path, p.kvs, infos)
	if err != nil {
		return rep, err
	}
	if opt.Fresh {
		w.Fresh()
	}
	if err := p.write(src, w, opt, rep.Elements); err != nil {
		return rep, errlist.Join(fmt.Errorf("converting %s: %w", src.Path(), err), w.Abort())
	}
	return rep, w.Close()
}

// weigh gives the items that become blocks their importance.
func (p *plan) weigh(all imatrix.Matrices, rep *Report) error {
	if all == nil {
		return nil
	}
	found := 0
	for _, it := range p.items {
		if it.fixed || !it.typ.IsBlock() {
			continue
		}
		m := all[it.name]
		if m == nil {
			m = all[it.role]
		}
		if m == nil {
			rep.Unweighted = append(rep.Unweighted, it.name)
			continue
		}
		if n := it.shape.Rows(); m.Cols != it.shape.Last() || n%len(m.Counts) != 0 {
			return fmt.Errorf("the importance matrix of %s has %d × %d numbers, the tensor is %v: it is another model's",
				it.name,
				len(m.Counts), m.Cols, it.shape)
		}
		it.means = m.Means()
		found++
	}
	if found == 0 {
		return fmt.Errorf("the importance matrix names none of the tensors that become blocks")
	}
	return nil
}

func (r *Report) count(it *item) {
	n := it.shape.Elems()
	r.Tensors++
	r.Elements += int64(n)
	r.BytesIn += int64(it.src.RowBytes(n))
	r.BytesOut += int64(it.typ.RowBytes(n))
	if r.Types == nil {
		r.Types = map[tensor.Type]int{}
	}
	r.Types[it.typ]++
}

func makePlan(src weights.Source, opt Options) (*plan, error) {
	switch {
	case src.Dialect() != "hf":
	case opt.Matrices != nil:
		return planNamed(src, opt)
	default:
		return planHF(src, opt)
	}
	return planGGUF(src, opt)
}

// chooseTypes sets each item's type and the metadata that speaks of it.
func (p *plan) chooseTypes(name string, rep *Report) error {
	var m quant.Recipe
	if name != "" {
		var err error
		if m, err = quant.FindRecipe(name); err != nil {
			return err
		}
	}
	for _, it := range p.items {
		switch {
		case it.fixed && p.keep:
			it.typ = it.src
		case it.fixed:
			it.typ = tensor.F32
		case !quant.Supported(it.src):
			it.typ = it.src
		case name == "":
			it.typ = stored(it.src)
		default:
			name := it.name
			if it.role != "" {
				name = it.role
			}
			it.typ = m.Type(name, it.shape.Last(), p.traits)
			if e, _ := m.Base.Block(); e > 1 && it.shape.Last()%e != 0 {
				rep.Fallbacks = append(rep.Fallbacks, it.name)
			}
		}
	}
	if name == "" {
		m.FileType = p.guessFileType()
	}
	p.set("general.file_type", m.FileType)
	p.set("general.quantization_version", uint32(2)) // of the block formats' layout
	return nil
}

// stored is the type that holds t's values exactly and that GGUF has, but for
// f64 and blocks that GGUF has no number for, which become f32.
func stored(t tensor.Type) tensor.Type {
	switch t {
	case tensor.F64:
		return tensor.F32
	case tensor.F8E4M3, tensor.F8E5M2, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ:
		return tensor.F16
	}
	if _, ok := gguf.TypeID(t); t.IsBlock() && !ok {
		return tensor.F32
	}
	return t
}

// guessFileType is the number of the type that most matrices have.
func (p *plan) guessFileType() uint32 {
	for _, kv := range p.kvs {
		if n, ok := kv.Value.(uint32); ok && kv.Key == "general.file_type" {
			return n
		}
	}
	elems := map[tensor.Type]int{}
	most := quant.Recipes[0]
	for _, it := range p.items {
		elems[it.typ] += it.shape.Elems()
	}
	for _, m := range quant.Recipes {
		if elems[m.Base] > elems[most.Base] {
			most = m
		}
	}
	return most.FileType
}

// set replaces a metadata value or adds it.
func (p *plan) set(key string, v any) {
	for i := range p.kvs {
		if p.kvs[i].Key == key {
			p.kvs[i].Value = v
			return
		}
	}
	p.kvs = append(p.kvs, gguf.KV{Key: key, Value: v})
}

// write streams all items.
func (p *plan) write(src weights.Source, w *gguf.Writer, opt Options, total int64) error {
	workers := opt.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	done := int64(0)
	for _, it := range p.items {
		err := it.write(src, w, workers, func(n int) error {
			done += int64(n)
			if opt.Progress != nil {
				opt.Progress(done, total, it.name)
			}
			if opt.Stop != nil {
				return opt.Stop()
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("tensor %s: %w", it.name, err)
		}
	}
	return nil
}

// piece is how many elements each worker holds at once: what a core's cache holds.
const piece = 1 << 16

func (it *item) write(src weights.Source, w *gguf.Writer, workers int, progress func(elems int) error) error {
	if it.data != nil {
		b := make([]byte, it.typ.RowBytes(len(it.data)))
		if err := quant.Encode(it.typ, b, it.data, len(it.data)); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		return progress(len(it.data))
	}
	elems := it.shape.Elems() / len(it.parts)
	row := it.shape.Last()
	rows := max(1, piece/row)
	out := make([]byte, it.typ.RowBytes(min(workers*rows*row, elems)))
	for i, part := range it.parts {
		data, err := src.Data(part)
		if err != nil {
			return err
		}
		if len(data) != it.src.RowBytes(elems) {
			return fmt.Errorf("%s has %d bytes; expected %d", part, len(data), it.src.RowBytes(elems))
		}
		for from := 0; from < elems; from += workers * rows * row {
			to := min(from+workers*rows*row, elems)
			dst := out[:it.typ.RowBytes(to-from)]
			if err := it.convert(dst, data, i, from, to, rows*row, workers); err != nil {
				return fmt.Errorf("%s: %w", part, err)
			}
			if _, err := w.Write(dst); err != nil {
				return err
			}
			if err := progress(to - from); err != nil {
				return err
			}
		}
	}
	return nil
}

// convert makes elements [from, to) of a part, each worker a step of them.
func (it *item) convert(dst, data []byte, part, from, to, step, workers int) error {
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for k := range workers {
		lo, hi := from+k*step, min(from+(k+1)*step, to)
		if lo >= hi {
			break
		}
		wg.Go(func() {
			mapped.Watch()
			defer mapped.Recover()
			errs[k] = it.encode(dst[it.typ.RowBytes(lo-from):it.typ.RowBytes(hi-from)], data, part, lo, hi)
		})
	}
	wg.Wait()
	return errlist.Join(errs...)
}

// encode makes elements [lo, hi), whole rows, of a part.
func (it *item) encode(dst, data []byte, part, lo, hi int) error {
	if it.src == it.typ && it.add == 0 {
		it.gather(lo, hi, func(at, from, n int) {
			copy(dst[it.src.RowBytes(at):], data[it.src.RowBytes(from):it.src.RowBytes(from+n)])
		})
		return nil
	}
	vals := make([]float32, hi-lo)
	var err error
	it.gather(lo, hi, func(at, from, n int) {
		err = errlist.Join(err, quant.Decode(it.src, vals[at:at+n], data[it.src.RowBytes(from):]))
	})
	if err != nil {
		return err
	}
	if it.add != 0 {
		for i := range vals {
			vals[i] += it.add
		}
	}
	row := it.shape.Last()
	fail := func(err error) error {
		if err != nil {
			return fmt.Errorf("counting from row %d: %w", lo/row, err)
		}
		return nil
	}
	if it.means == nil {
		return fail(quant.Encode(it.typ, dst, vals, row))
	}
	perMatrix := it.shape.Rows() / (len(it.means) / row) // rows
	before := part * (it.shape.Rows() / len(it.parts))   // in parts before this one
	for at := 0; at < len(vals); at += row {
		e := (before + (lo+at)/row) / perMatrix
		out := dst[it.typ.RowBytes(at):it.typ.RowBytes(at+row)]
		if err := quant.EncodeWeighted(it.typ, out, vals[at:at+row], row, it.means[e*row:(e+1)*row]); err != nil {
			return fail(err)
		}
	}
	return nil
}

// gather calls copy for each run of elements [lo, hi): to place at, from the
// part's element from, n of them.
func (it *item) gather(lo, hi int, copy func(at, from, n int)) {
	if it.perm == nil {
		copy(0, lo, hi-lo)
		return
	}
	for i := lo; i < hi; i += it.unit {
		copy(i-lo, it.perm(i/it.unit)*it.unit, it.unit)
	}
}
