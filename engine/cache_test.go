//go:build linux

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/open"
)

// turned is the processor with kernels that want the rows of linear's weights
// turned around, byte by byte, behind a word of magic.
type turned struct {
	*cpu.Device
	packed atomic.Int64 // rows
	beyond int          // packed are the weights of products of more rows than this
	fail   error        // of every packing
}

const word = "turned rows start here 64 bytes on a cache line of their own...."

func (d *turned) packing() *backends.Packing {
	row := func(b []byte, t tensor.Type, s tensor.Shape, r int) []byte {
		n := t.RowBytes(s.Last())
		return b[r*n:][:n]
	}
	return &backends.Packing{
		ID: "turned/1", Unit: 3,
		Size: func(t tensor.Type, s tensor.Shape) int { n, _ := s.Bytes(t); return n + len(word) },
		Pack: func(dst, src []byte, t tensor.Type, s tensor.Shape, from, to int) error {
			d.packed.Add(int64(to - from))
			if from%3 != 0 {
				return fmt.Errorf("rows from %d, not a multiple of the unit", from)
			}
			if from == 0 {
				copy(dst, word)
			}
			for r := from; r < to; r++ {
				in, out := row(src, t, s, r), row(dst[len(word):], t, s, r)
				for i := range in {
					out[len(out)-1-i] = in[i]
				}
			}
			return d.fail
		},
	}
}

type turnedKernel struct {
	backends.Kernel
	p *backends.Packing
}

func (k turnedKernel) Packing(arg int) *backends.Packing {
	if arg == 1 {
		return k.p
	}
	return nil
}

func (d *turned) Kernel(n *graph.Node) (backends.Kernel, error) {
	k, err := d.Device.Kernel(n)
	if err == nil && strings.HasPrefix(n.Op.Name, "linear") && n.In[0].Shape.Rows() > d.beyond {
		return turnedKernel{k, d.packing()}, nil
	}
	return k, err
}

// Capture turns the rows back.
func (d *turned) Capture(p *backends.Program) (backends.Executable, error) {
	for i := range p.Launches {
		l := &p.Launches[i]
		k, ok := l.Kernel.(turnedKernel)
		if !ok {
			continue
		}
		l.Kernel = k.Kernel
		o := &l.In[1]
		b := o.Buffer.(interface{ Bytes() []byte }).Bytes()
		if !strings.HasPrefix(string(b[:len(word)]), word) || o.Packing != "turned/1" {
			return nil, fmt.Errorf("%v: its weights are not packed", l.Node)
		}
		plain := slices.Clone(b[len(word):])
		n := o.Type.RowBytes(o.Shape.Last())
		for r := range o.Shape.Rows() {
			slices.Reverse(plain[r*n : (r+1)*n])
		}
		buf, err := d.Alloc(len(plain), backends.Weights)
		if err != nil {
			return nil, err
		}
		copy(buf.(interface{ Bytes() []byte }).Bytes(), plain)
		o.Buffer, o.Packing = buf, ""
	}
	return d.Device.Capture(p)
}

type world struct {
	src   weights.Source
	model *models.File
}

// golden copies a small model, so that its files can be touched.
func golden(t *testing.T) world {
	t.Helper()
	from := testfiles.Shared(t, "goldens", "llama2_gqa_tied")
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return world{openSource(t, dir), nil}.matched(t)
}

func openSource(t *testing.T, dir string) weights.Source {
	t.Helper()
	src, err := open.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

func (w world) matched(t *testing.T) world {
	t.Helper()
	var err error
	if w.model, err = models.Match(w.src); err != nil {
		t.Fatal(err)
	}
	return w
}

// run loads the model and gives logits, how many rows were packed for them,
// and what the engine had to say.
func (w world) run(t *testing.T, c packcache.Config, dtype tensor.Type) (logits []float32, packed int64,
	notes []string) {
	t.Helper()
	dev, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d := &turned{Device: dev}
	var done, total int64
	e, err := engine.New(t.Context(), engine.Options{
		Model: w.model, Source: w.src, Device: d, Context: 16, DType: dtype, Cache: c,
		Notify:   func(s string) { notes = append(notes, s) },
		Progress: func(n, all int64) { done, total = n, all },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if done != total || total == 0 {
		t.Errorf("progress ends at %d of %d", done, total)
	}
	kept := !c.Off && !slices.ContainsFunc(notes, func(n string) bool { return !strings.Contains(n, "damaged") })
	if text := e.LoadText(); kept != strings.Contains(text, "mapped from the cache") {
		t.Errorf("it says %q", text)
	}
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.Prefill(t.Context(), []int32{1, 5, 9})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(out), d.packed.Load(), notes
}

func TestPackedWeightsAreKept(t *testing.T) {
	w := golden(t)
	dir := t.TempDir()
	on, off := packcache.Config{Dir: dir, Least: -1}, packcache.Config{Off: true}
	want, rows, _ := w.run(t, off, tensor.Invalid)
	if rows == 0 {
		t.Fatal("nothing was packed")
	}
	same := func(what string, got []float32, packed, wantPacked int64, notes []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: other logits than without a cache", what)
		}
		if packed != wantPacked {
			t.Errorf("%s: %d rows were packed, want %d", what, packed, wantPacked)
		}
		if len(notes) > 0 {
			t.Errorf("%s: %q", what, notes)
		}
	}
	got, packed, notes := w.run(t, on, tensor.Invalid)
	same("first start", got, packed, rows, notes)
	got, packed, notes = w.run(t, on, tensor.Invalid)
	same("second start", got, packed, 0, notes)

	// Another type of the same weights is another file.
	if _, packed, _ = w.run(t, on, tensor.BF16); packed != rows {
		t.Errorf("as bf16: %d rows were packed, want %d", packed, rows)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(kept) != 2 {
		t.Fatalf("files %v, %v", kept, err)
	}
	for _, path := range kept {
		if err := os.Truncate(path, 5000); err != nil {
			t.Fatal(err)
		}
	}
	got, packed, notes = w.run(t, on, tensor.Invalid)
	if len(notes) != 1 || !strings.Contains(notes[0], "damaged") {
		t.Errorf("truncated: %q", notes)
	}
	same("truncated", got, packed, rows, nil)

	// A changed source has other weights.
	path := w.src.Path()
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		if err := os.WriteFile(filepath.Join(path, "note.txt"), []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, packed, notes = w.run(t, on, tensor.Invalid)
	same("changed source", got, packed, rows, notes)
}

// A device may want one layout for a token and another for many: a prompt's is there when
// the engine is, that of every row's logits when they are asked for.
func TestLayoutsByRows(t *testing.T) {
	w := golden(t)
	dev, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	run := func(d *turned) (logits []float64) {
		e, err := engine.New(t.Context(), engine.Options{Model: w.model, Source: w.src, Device: d, Context: 16,
			Cache: packcache.Config{Off: true}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		loaded := d.packed.Load()
		s, err := e.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		keep := func(v []float32, err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range v {
				logits = append(logits, float64(x))
			}
		}
		keep(s.Prefill(t.Context(), []int32{1, 5, 9}))
		keep(s.Decode(4))
		if n := d.packed.Load(); n != loaded {
			t.Errorf("%d rows were packed behind loading", n-loaded)
		}
		if err := s.PrefillAll(t.Context(), []int32{7, 8, 9}, func(_ int, v []float32) error {
			keep(v, nil)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return logits
	}
	always := &turned{Device: dev}
	want := run(always)
	d := &turned{Device: dev, beyond: 1}
	if rel, _ := engine.Errors(run(d), want); !(rel < 2e-3) { // caches of f16
		t.Errorf("relative L2 %.1e against one layout", rel)
	}
	if n := d.packed.Load(); n == 0 || n > always.packed.Load() {
		t.Errorf("%d rows were packed, with one layout %d", n, always.packed.Load())
	}
}

// Where nothing can be kept, the model runs from memory and says why.
func TestNothingCanBeKept(t *testing.T) {
	w := golden(t)
	want, rows, _ := w.run(t, packcache.Config{Off: true}, tensor.Invalid)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]packcache.Config{
		"no folder": {Dir: filepath.Join(file, "x"), Least: -1},
		"no room":   {Dir: t.TempDir(), Least: -1, Limit: 1000},
	} {
		got, packed, notes := w.run(t, c, tensor.Invalid)
		if !slices.Equal(got, want) || packed != rows {
			t.Errorf("%s: %d rows were packed, want %d, or other logits", name, packed, rows)
		}
		if len(notes) != 1 || !strings.Contains(notes[0], "not kept") {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
}

// Small models are not worth a file, and that is no news.
func TestSmallModelsAreNotKept(t *testing.T) {
	w := golden(t)
	dir := t.TempDir()
	t.Setenv(packcache.DirVariable, dir)
	dev, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	e, err := engine.New(t.Context(), engine.Options{
		Model: w.model, Source: w.src, Device: &turned{Device: dev}, Context: 16,
		Notify: func(s string) { t.Errorf("a note: %s", s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if text := e.LoadText(); !strings.Contains(text, "packed in memory") {
		t.Errorf("it says %q", text)
	}
	if kept, err := os.ReadDir(dir); err != nil || len(kept) > 0 {
		t.Errorf("kept %v, %v", kept, err)
	}
}

func TestPackingFails(t *testing.T) {
	w := golden(t)
	dev, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d := &turned{Device: dev, fail: errors.New("no such layout")}
	dir := t.TempDir()
	opt := engine.Options{Model: w.model, Source: w.src, Device: d, Context: 16,
		Cache: packcache.Config{Dir: dir, Least: -1}}
	if _, err := engine.New(t.Context(), opt); !errors.Is(err, d.fail) {
		t.Errorf("error %v", err)
	}
	d.fail = nil
	ctx, cancel := context.WithCancel(t.Context())
	opt.Progress = func(int64, int64) { cancel() }
	if _, err := engine.New(ctx, opt); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
