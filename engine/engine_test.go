package engine

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/open"
)

// smallModel is a Llama of one block in a file of its own, so that tests of
// the engine need no weights.
const smallModel = `model: small
in: {tokens: "i32[S]", pos: "i32[S]", last: "i32[R]"}
params: {D: 32, H: 4, G: 2, Dh: D/H, F: 48, V: 50, eps: 1e-5}
weights:
  emb: {shape: [V, D]}
  n1: {shape: [D]}
  wq: {shape: [H*Dh, D]}
  wk: {shape: [G*Dh, D]}
  wv: {shape: [G*Dh, D]}
  wo: {shape: [D, H*Dh]}
  n2: {shape: [D]}
  wg: {shape: [F, D]}
  wu: {shape: [F, D]}
  wd: {shape: [D, F]}
state: {kc: "float[C, G, Dh]", vc: "float[C, G, Dh]"}
body:
  x:  embed(tokens, emb)
  h:  rmsnorm(x, n1, eps=eps)
  q:  rope(linear(h, wq) as [S, H, Dh], pos)
  ks: push(kc, rope(linear(h, wk) as [S, G, Dh], pos), pos)
  vs: push(vc, linear(h, wv) as [S, G, Dh], pos)
  a:  attention(q, ks, vs, pos)
  x1: x + linear(a as [S, H*Dh], wo)
  m:  rmsnorm(x1, n2, eps=eps)
  y:  x1 + linear(silu(linear(m, wg)) * linear(m, wu), wd)
  logits: linear(rows(y, last), emb)
out: logits
`

func small(t testing.TB) *models.File {
	t.Helper()
	return modelFile(t, "small.yaml", smallModel)
}

func modelFile(t testing.TB, name, text string) *models.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := models.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newCPU(t testing.TB, threads int) backends.Device {
	t.Helper()
	d, err := cpu.New(threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func newEngine(t testing.TB, opt Options) *Engine {
	t.Helper()
	e, err := New(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func newSession(t testing.TB, e *Engine) *Session {
	t.Helper()
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestDecodeAllocatesNothing(t *testing.T) {
	for _, kv := range []tensor.Type{tensor.F32, tensor.F16} {
		for _, dtype := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16} {
			s := newSession(t, newEngine(t, Options{Model: small(t), Device: newCPU(t, 2), Context: 256, KV: kv, DType: dtype}))
			if _, err := s.Prefill(t.Context(), []int32{1, 2, 3}); err != nil {
				t.Fatal(err)
			}
			next := int32(0)
			n := testing.AllocsPerRun(50, func() {
				if _, err := s.Decode(next % 50); err != nil {
					t.Fatal(err)
				}
				next++
			})
			if n != 0 {
				t.Errorf("weights %s, caches %s: a decode step allocates %v times", dtype, kv, n)
			}
		}
	}
}

// Nor does a step over weights in blocks, whose kernels turn activations into
// 8-bit ones on the way.
func TestDecodeOverBlocksAllocatesNothing(t *testing.T) {
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	m, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, dtype := range []tensor.Type{tensor.Q4_0, tensor.Q8_0, tensor.IQ4_NL} {
		s := newSession(t, newEngine(t, Options{Model: m, Source: src, Device: newCPU(t, 2), Context: 128, DType: dtype}))
		if _, err := s.Prefill(t.Context(), []int32{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(50, func() {
			if _, err := s.Decode(7); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("weights %s: a decode step allocates %v times", dtype, n)
		}
	}
}

// A token at depth reads 2·positions rows of the caches, two heads of 8 halves each.
func TestCacheBytes(t *testing.T) {
	e := newEngine(t, Options{Model: small(t), Device: newCPU(t, 1), Context: 64})
	for positions, want := range map[int]float64{0: 0, 1: 64, 40: 2560, 100: 4096} {
		if got := e.CacheBytes(positions); got != want {
			t.Errorf("%d positions of 64: %v bytes of the caches, want %v", positions, got, want)
		}
	}
}

// TestChunksAgree computes a prompt in chunks of every size; the result must
// not depend on it beyond rounding, nor on the number of threads at all.
func TestChunksAgree(t *testing.T) {
	prompt := []int32{7, 3, 49, 0, 12, 12, 31, 5, 8, 44, 2}
	var want []float32
	for _, chunk := range []int{len(prompt), 1, 2, 3, 4, 5, 7} {
		for _, threads := range []int{1, 3} {
			s := newSession(t, newEngine(t, Options{Model: small(t), Device: newCPU(t, threads), Context: 16, KV: tensor.F32,
				Chunk: chunk}))
			got, err := s.Prefill(t.Context(), prompt)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = append(want, got...)
			}
			if rel, _ := Errors(widen(got), widen(want)); !(rel < 1e-5) {
				t.Errorf("chunk %d, %d threads: relative L2 %.1e against one chunk", chunk, threads, rel)
			}
			if s.Pos() != len(prompt) {
				t.Errorf("chunk %d: position %d behind %d tokens", chunk, s.Pos(), len(prompt))
			}
		}
	}
}

func TestPrefillAllGivesEveryRow(t *testing.T) {
	prompt := []int32{7, 3, 49, 0, 12}
	e := newEngine(t, Options{Model: small(t), Device: newCPU(t, 1), Context: 16, KV: tensor.F32, Chunk: 2})
	s := newSession(t, e)
	var rows [][]float32
	err := s.PrefillAll(t.Context(), prompt, func(i int, logits []float32) error {
		if i != len(rows) {
			t.Errorf("row %d came as number %d", i, len(rows))
		}
		rows = append(rows, append([]float32(nil), logits...))
		return nil
	})
	if err != nil || len(rows) != len(prompt) {
		t.Fatal(len(rows), err)
	}
	single := newSession(t, e)
	for i, token := range prompt {
		got, err := single.Prefill(t.Context(), []int32{token})
		if err != nil {
			t.Fatal(err)
		}
		if rel, _ := Errors(widen(rows[i]), widen(got)); !(rel < 1e-5) {
			t.Errorf("row %d: relative L2 %.1e against a single step", i, rel)
		}
	}
}

// TestLiteralLast runs a file whose last has one row: every position's logits
// then come from single steps.
func TestLiteralLast(t *testing.T) {
	f := modelFile(t, "literal.yaml", strings.Replace(smallModel, `last: "i32[R]"`, `last: "i32[1]"`, 1))
	s := newSession(t, newEngine(t, Options{Model: f, Device: newCPU(t, 1), Context: 16, KV: tensor.F32}))
	rows := 0
	err := s.PrefillAll(t.Context(), []int32{1, 2, 3}, func(int, []float32) error { rows++; return nil })
	if err != nil || rows != 3 {
		t.Fatal(rows, err)
	}
}

func TestCheckFindsNothing(t *testing.T) {
	for _, kv := range []tensor.Type{tensor.F32, tensor.F16} {
		for _, noFuse := range []bool{false, true} {
			r, err := Check(t.Context(), CheckOptions{Options: Options{Model: small(t), Device: newCPU(t, 2), Context: 16,
				KV: kv, DType: tensor.F32, NoFuse: noFuse}, Ref: ref.New()})
			if err != nil {
				t.Fatal(err)
			}
			if !r.OK() || len(r.Ops) < 20 {
				t.Errorf("kv %s, unfused %v: %d results compared, %+v", kv, noFuse, len(r.Ops), r)
			}
		}
	}
}

// TestCheckOfDeepCaches: what 32 layers make of caches in bf16 is no mistake.
func TestCheckOfDeepCaches(t *testing.T) {
	if !testfiles.Exhaustive() {
		t.Skip("runs 32 layers in float64")
	}
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{"D": "512", "F": "1024", "H": "8", "G": "8", "L": "32", "V": "1000"}
	r, err := Check(t.Context(), CheckOptions{Options: Options{Model: file, Device: newCPU(t, 2), Context: 16,
		KV: tensor.BF16, DType: tensor.F16, Set: set}, Ref: ref.New()})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		t.Errorf("%+v, limit %.0e", r.Diverged, r.Limit)
	}
}

// wrongKernel is the processor with one operator's results changed.
type wrongKernel struct {
	backends.Device
	op string
}

type wrongStream struct {
	backends.Stream
	op string
}

func (w wrongKernel) Stream() (backends.Stream, error) {
	s, err := w.Device.Stream()
	return wrongStream{s, w.op}, err
}

func (w wrongStream) Launch(l *backends.Launch) error {
	if err := w.Stream.Launch(l); err != nil || l.Node.Op.Name != w.op {
		return err
	}
	out := &l.Out[0]
	at := out.Offset + (out.Rows()-1)*out.Stride // the last row's first element
	var b [4]byte
	if err := w.Read(out.Buffer, at, b[:]); err != nil {
		return err
	}
	b[3] ^= 0x80 // its sign
	return w.Write(out.Buffer, at, b[:])
}

func TestCheckNamesTheFirstDivergence(t *testing.T) {
	dev := wrongKernel{newCPU(t, 1), "attention"}
	r, err := Check(t.Context(), CheckOptions{Options: Options{Model: small(t), Device: dev, Context: 16, KV: tensor.F32,
		DType: tensor.F32}, Ref: ref.New()})
	if err != nil {
		t.Fatal(err)
	}
	if r.Diverged == nil || r.Diverged.Op != "attention" || r.Diverged.Name != "a" || r.OK() {
		t.Errorf("the first divergence is %+v, attention was made wrong", r.Diverged)
	}
	if r.ReplayOK {
		t.Error("replay is right and eager launches are wrong, but they are said to agree")
	}
}

func TestRefusals(t *testing.T) {
	e := newEngine(t, Options{Model: small(t), Device: newCPU(t, 1), Context: 4})
	s := newSession(t, e)
	var long *TooLong
	if _, err := s.Prefill(t.Context(), []int32{1, 2, 3, 4, 5}); !errors.As(err, &long) {
		t.Errorf("five tokens in a context of four: %v", err)
	}
	for _, bad := range []int32{-1, 50, math.MaxInt32} {
		if _, err := s.Prefill(t.Context(), []int32{bad}); err == nil {
			t.Errorf("token %d of a vocabulary of 50 was taken", bad)
		}
	}
	if _, err := s.Prefill(t.Context(), nil); err == nil {
		t.Error("an empty prompt was taken")
	}
	if _, err := s.Prefill(t.Context(), []int32{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Decode(1); !errors.As(err, &long) {
		t.Errorf("a token behind a full context: %v", err)
	}
	s.Reset()
	if _, err := s.Decode(1); err != nil {
		t.Errorf("behind a reset: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Prefill(ctx, []int32{1}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if _, err := New(t.Context(), Options{Model: small(t), Device: newCPU(t, 1), Context: 0}); err == nil {
		t.Error("a context of no positions was taken")
	}
}

// tightDevice has little memory and cannot map files.
type tightDevice struct {
	backends.Device
	bytes int
}

func (d tightDevice) Info() backends.Info {
	info := d.Device.Info()
	info.Memory = d.bytes
	return info
}

func TestOutOfMemoryIsFoundBeforeLoading(t *testing.T) {
	var none *OutOfMemory
	loaded := int64(0)
	_, err := New(t.Context(), Options{Model: small(t), Device: tightDevice{newCPU(t, 1), 10000}, Context: 4,
		Progress: func(done, _ int64) {
			loaded = done
		}})
	if !errors.As(err, &none) || none.Need <= none.Have || none.Have != 10000 {
		t.Errorf("10000 bytes of memory: %v", err)
	}
	if loaded != 0 {
		t.Errorf("%d bytes were loaded before memory was found to be short", loaded)
	}
}

// TestConversions loads a trained model with every type of weights that its
// rows can be held in; the nearer the type, the nearer the logits.
func TestConversions(t *testing.T) {
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	f, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	prompt := []int32{1, 484, 554}
	logits := func(dtype tensor.Type) []float32 {
		s := newSession(t, newEngine(t, Options{Model: f, Source: src, Device: newCPU(t, 2), Context: 8, KV: tensor.F32,
			DType: dtype}))
		out, err := s.Prefill(t.Context(), prompt)
		if err != nil {
			t.Fatal(err)
		}
		return append([]float32(nil), out...)
	}
	want := logits(tensor.Invalid)
	for i, c := range []struct {
		dtype tensor.Type
		limit float64
	}{{tensor.BF16, 0}, {tensor.F32, 1e-5}, {tensor.F16, 1e-3}, {tensor.Q8_0, 0.02}, {tensor.Q4_0, 0.2},
		{tensor.F8E4M3, 0.1}, {tensor.Q5_1, 0.1}, {tensor.IQ4_NL, 0.2}, {tensor.F8E5M2, 0.2}} {
		if i > 5 && !testfiles.Exhaustive() {
			break
		}
		if rel, _ := Errors(widen(logits(c.dtype)), widen(want)); !(rel <= c.limit) {
			t.Errorf("%s: relative L2 %.2e against bf16 as stored, at most %.0e", c.dtype, rel, c.limit)
		}
	}
	// Rows of 192 and 512 elements: blocks of 256 where they divide them, of 32 elsewhere.
	e := newEngine(t, Options{Model: f, Source: src, Device: newCPU(t, 1), Context: 8, DType: tensor.Q4_K})
	if stored := e.Stored(); !strings.Contains(stored, "as q5_0 (rows are no blocks of 256, as q4_K wants them)") {
		t.Errorf("Stored: %q", stored)
	}
	if rel, _ := Errors(widen(logits(tensor.Q4_K)), widen(want)); !(rel <= 0.3) {
		t.Errorf("q4_K: relative L2 %.2e against bf16 as stored", rel)
	}
}

// blockOf gives a block of which only the equations and inputs vary.
func blockOf(t *testing.T, in, body string) *models.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(path, []byte("block: m\nin: {"+in+"}\nbody:\n"+body+"out: y\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := models.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestStridedOutput: a result may be some columns of a wider tensor.
func TestStridedOutput(t *testing.T) {
	m := blockOf(t, "x: 'float[S, 8]'", "  h: x * 2\n  a, y, c: split(h, sizes=[1, 5, 2])\n")
	for _, d := range []backends.Device{newCPU(t, 1), ref.New()} {
		s := newSession(t, newEngine(t, Options{Model: m, Device: d, Context: 8}))
		x := make([]float32, 3*8)
		for i := range x {
			x[i] = float32(i)
		}
		got, err := s.Block(x)
		if err != nil {
			t.Fatal(err)
		}
		want := []float32{2, 4, 6, 8, 10, 18, 20, 22, 24, 26, 34, 36, 38, 40, 42}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", d.Info().Backend, got, want)
		}
	}
}

// TestUnfilledInputs: an input that no step fills is refused, not read as it lies.
func TestUnfilledInputs(t *testing.T) {
	for in, body := range map[string]string{
		"x: 'float[S, 8]', z: 'float[S, 8]'": "  y: x * z\n",
		"x: 'float[S, 8]', ids: 'i32[S]'":    "  y: x + rows(x, ids)\n",
		"u: 'float[S, 8]'":                   "  y: u * 2\n",
	} {
		_, err := New(t.Context(), Options{Model: blockOf(t, in, body), Device: newCPU(t, 1), Context: 8})
		if err == nil || !strings.Contains(err.Error(), "nothing fills the input") {
			t.Errorf("{%s}: %v", in, err)
		}
	}
}
