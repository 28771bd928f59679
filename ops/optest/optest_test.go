package optest_test

import (
	"errors"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

func TestReferenceDevice(t *testing.T) { optest.Run(t, ref.New()) }

func TestReferenceDeviceGraphs(t *testing.T) { optest.RunGraphs(t, ref.New(), 60) }

func TestEveryOperatorHasACase(t *testing.T) {
	seen, names := map[string]int{}, map[string]bool{}
	for _, c := range optest.Cases() {
		n, err := c.Bare(tensor.F32)
		if err != nil {
			t.Error(err)
			continue
		}
		if names[c.Name] {
			t.Errorf("two cases are called %s", c.Name)
		}
		names[c.Name] = true
		seen[n.Op.Name]++
		if !strings.HasPrefix(c.Name, n.Op.Name+"/") {
			t.Errorf("case %s is one of %s", c.Name, n.Op.Name)
		}
	}
	for _, op := range ops.All() {
		if seen[op.Name] < 2 {
			t.Errorf("%s has %d cases, at least 2 are wanted", op.Name, seen[op.Name])
		}
	}
}

// TestDataIsDeterministic: equal names give equal data, on every machine.
func TestDataIsDeterministic(t *testing.T) {
	hash := fnv.New64a()
	for i, c := range optest.Cases() {
		if i%5 != 0 && c.Name != "rope/factors" && !testfiles.Exhaustive() {
			continue
		}
		a, err := c.Prepare(tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Prepare(tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a.In {
			if string(a.In[i].Data) != string(b.In[i].Data) {
				t.Errorf("%s: operand %d differs between two preparations", c.Name, i)
			}
		}
		if c.Name == "rope/factors" {
			for _, o := range a.In {
				hash.Write(o.Data)
			}
		}
	}
	if got, want := hash.Sum64(), uint64(0x4fd3ebbf49314a8c); got != want {
		t.Errorf("the data of rope/factors has hash %#x, %#x is wanted", got, want)
	}
}

// faulty is the reference device with a fault that optest must see.
type faulty struct {
	backends.Device
	fault func(s backends.Stream, l *backends.Launch) error
}

type faultyStream struct {
	backends.Stream
	fault func(s backends.Stream, l *backends.Launch) error
}

func (f faulty) Stream() (backends.Stream, error) {
	s, err := f.Device.Stream()
	return faultyStream{s, f.fault}, err
}

func (s faultyStream) Launch(l *backends.Launch) error {
	return errors.Join(s.Stream.Launch(l), s.fault(s.Stream, l))
}

func TestFaultsAreSeen(t *testing.T) {
	write := func(at func(o backends.Operand) int, data []byte) func(backends.Stream, *backends.Launch) error {
		return func(s backends.Stream, l *backends.Launch) error {
			return s.Write(l.Out[0].Buffer, at(l.Out[0]), data)
		}
	}
	size := func(o backends.Operand) int { return (o.Rows()-1)*o.Stride + o.Type.RowBytes(o.RowElems()) }
	for _, f := range []struct {
		name, want string
		fault      func(backends.Stream, *backends.Launch) error
	}{
		{"none", "", func(backends.Stream, *backends.Launch) error { return nil }},
		{"wrong value", "relative L2", write(func(o backends.Operand) int { return o.Offset }, make([]byte, 8))},
		{"nothing written", "NaN", write(func(o backends.Operand) int {
			return o.Offset + size(o) - 8
		}, []byte{255, 255, 255, 255, 255, 255, 255, 255})},
		{"behind the result", "overwritten", write(func(o backends.Operand) int { return o.Offset + size(o) }, []byte{0})},
		{"before the result", "overwritten", write(func(o backends.Operand) int { return o.Offset - 1 }, []byte{0})},
		{"operand changed", "operand 0", func(s backends.Stream, l *backends.Launch) error {
			return s.Write(l.In[0].Buffer, l.In[0].Offset, []byte{77})
		}},
	} {
		err := optest.Check(faulty{ref.New(), f.fault}, optest.Case{
			Name: "fault", Eq: "y: silu(x)", Args: "x float[3, 5] +2", Rel: 1e-6, Abs: 1e-5,
		})
		if f.want == "" && err == nil {
			continue
		}
		if err == nil || f.want == "" || !strings.Contains(err.Error(), f.want) {
			t.Errorf("%s: error %v, wanted one with %q", f.name, err, f.want)
		}
	}
}

// refusing has no kernel for an operator.
type refusing struct {
	backends.Device
	op string
}

func (d refusing) Kernel(n *graph.Node) (backends.Kernel, error) {
	if n.Op.Name == d.op {
		return nil, backends.Unsupportedf("refusing", n, "it is left out")
	}
	return d.Device.Kernel(n)
}

// TestLackingKernel: an operator without a kernel fails, unless its body runs and is right.
func TestLackingKernel(t *testing.T) {
	var lacks *backends.Unsupported
	silu := optest.Case{Name: "lacks", Eq: "y: silu(x)", Args: "x float[3, 5]", Rel: 1e-6, Abs: 1e-5}
	if err := optest.Check(refusing{ref.New(), "silu"}, silu); !errors.As(err, &lacks) {
		t.Errorf("no kernel gives %v", err)
	}
	gate := optest.Case{Name: "lacks", Eq: "y: swiglu(g, u)", Args: "g float[3, 5]; u float[3, 5]", Rel: 1e-6, Abs: 1e-5}
	if err := optest.Check(refusing{ref.New(), "swiglu"}, gate); err != nil {
		t.Errorf("no kernel where the body can run gives %v", err)
	}
	if err := optest.Check(refusing{ref.New(), "silu"}, gate); err != nil {
		t.Errorf("no kernel for a part of the body gives %v", err)
	}
	both := refusing{refusing{ref.New(), "silu"}, "swiglu"}
	if err := optest.Check(both, gate); !errors.As(err, &lacks) {
		t.Errorf("neither a kernel nor one for the body gives %v", err)
	}
}

func TestForeignRowOfAStateIsSeen(t *testing.T) {
	dev := faulty{ref.New(), func(s backends.Stream, l *backends.Launch) error {
		o := l.Out[0]
		first := make([]byte, 1)
		if err := s.Read(o.Buffer, o.Offset, first); err != nil {
			return err
		}
		return s.Write(o.Buffer, o.Offset, []byte{first[0] ^ 1}) // lowest bit of row 0
	}}
	err := optest.Check(dev, optest.Case{
		Name: "row", Eq: "y: push(cache, x, pos)", Args: "cache f16[4, 1, 4]; x float[1, 1, 4]; pos i32[1] =2", Rel: 1,
		Abs: 1,
	})
	if err == nil {
		t.Error("a changed row that no position names was not seen")
	}
}

// TestFusedHaveBodiesAsReference: a fused operator's reference is its body, so
// that every comparison with the reference is one with the body.
func TestFusedHaveBodiesAsReference(t *testing.T) {
	for _, op := range ops.All() {
		if (op.Body == "") == (op.Ref == nil) {
			t.Errorf("%s must have either a reference or a body", op.Name)
		}
	}
	for _, op := range ops.Fused() {
		if op.Body == "" {
			t.Errorf("%s is listed as fused but has no body", op.Name)
		}
	}
}

// TestRandomGraphsFuse: random graphs would prove nothing of fusion if
// none of them held what can be fused.
func TestRandomGraphsFuse(t *testing.T) {
	count := map[string]int{}
	for seed := range 60 {
		g, _, err := optest.RandomGraph(uint64(seed), tensor.F32)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, op := range ops.Fused() {
			count[op.Name] += g.Fuse(op, ops.Table, func(*graph.Node) bool { return true })
		}
	}
	for _, op := range ops.Fused() {
		if count[op.Name] < 5 {
			t.Errorf("%s stands in 60 random graphs %d times only", op.Name, count[op.Name])
		}
	}
}
