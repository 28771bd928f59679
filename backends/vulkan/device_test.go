//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// TestNoDevice: what is asked for and not there is a NoDevice that lists what is.
func TestNoDevice(t *testing.T) {
	open(t, vulkan.Options{})
	_, err := vulkan.New(vulkan.Options{Device: "no such card"})
	var none *backends.NoDevice
	if !errors.As(err, &none) || !strings.Contains(err.Error(), `"no such card"; there are: 0 `) {
		t.Errorf("%v", err)
	}
}

// TestSoftwareUnasked: a software device is opened when it is named, not otherwise.
func TestSoftwareUnasked(t *testing.T) {
	list, err := vulkan.List()
	if err != nil {
		t.Skip(err)
	}
	for _, d := range list {
		if d.Kind != vulkan.Software {
			t.Skip("there is a hardware device: ", d.Name)
		}
	}
	var none *backends.NoDevice
	if _, err := vulkan.New(vulkan.Options{}); !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"0", list[0].UUID, list[0].Name[:5]} {
		dev, err := vulkan.New(vulkan.Options{Device: name})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		dev.Close()
	}
}

// TestLate: operands that the graph computes in each step are read in each step.
func TestLate(t *testing.T) {
	dev := open(t, vulkan.Options{})
	optest.RunLate(t, dev, sample(dev))
}

// TestSplitRanges: weights larger than a storage range are cut in pieces, of
// rows or of experts.
func TestSplitRanges(t *testing.T) {
	ranges := map[string]uint32{
		"linear/q8_0/1x512x19": 6000, "linear/q8_0/2x512x19": 6000, "linear/q8_0/3x512x130 bias": 20000,
		"linear/f32/5x37x19": 1600, "embed/f32/5x37": 1300, "embed/q8_0/5x512": 11000,
		"linear_id/q8_0/1x1x512x19": 12000, "linear_id/q8_0/1x2x512x19 bias": 24000,
	}
	dev := open(t, vulkan.Options{})
	tried := 0
	for _, c := range optest.Cases() {
		if r := ranges[c.Name]; r > 0 {
			tried++
			dev.SetMaxRange(r)
			if err := optest.Check(dev, c); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	if tried != len(ranges) {
		t.Errorf("%d of %d cases are in the table", tried, len(ranges))
	}
}

// TestTiles: products by tiles of every size, also those that a software device
// does not choose. A sample has each product with one of the sizes, and the
// longest of them where every case is asked for.
func TestTiles(t *testing.T) {
	dev := open(t, vulkan.Options{Tiled: 1})
	names := []string{"linear/long", "linear/f32/67x37x19", "linear/q4_0/19x512x19", "linear/q6_K/67x768x19"}
	for j, size := range []int{32, 64, 128} {
		dev.SetTile(size)
		for i, name := range names {
			if sample(dev) && i%3 != j || taste(dev, testfiles.Exhaustive()) && i == 0 {
				continue
			}
			c := of("linear")
			at := slices.IndexFunc(c, func(c optest.Case) bool { return c.Name == name })
			if at < 0 {
				t.Fatalf("%s is not in the table", name)
			}
			if err := optest.Check(dev, c[at]); err != nil {
				t.Errorf("%s with tiles of %d: %v", name, size, err)
			}
		}
	}
}

// TestGroups: many rows with experts are multiplied by groups of an expert's, in f32 and by matrices where the device
// has them, also where weights are cut in pieces; an expert that is none is refused, and the next step is right again.
// A device whose rows must not depend on each other multiplies them one by one.
func TestGroups(t *testing.T) {
	cases := slices.DeleteFunc(of("linear_id"), func(c optest.Case) bool { return !strings.Contains(c.Name, "/groups") })
	for _, half := range []backends.Choice{backends.Off, backends.On} {
		dev := open(t, vulkan.Options{FP16: half, Tiled: 1})
		if taste(dev, testfiles.Exhaustive()) {
			if half == backends.Off {
				continue
			}
			check(t, dev, cases[len(cases)-1:])
		} else {
			check(t, dev, cases)
		}
		bad := cases[0]
		bad.Args = strings.Replace(bad.Args, "<5", "<9", 1)
		if err := runCase(t, dev, bad); err == nil || !strings.Contains(err.Error(), "it must lie in [0, 7)") {
			t.Errorf("experts from 0 to 8 of 7: %v", err)
		}
		check(t, dev, cases[:1])
		dev.SetMaxRange(60000)
		check(t, dev, cases[len(cases)-1:]) // in three pieces
		matrices := slices.ContainsFunc(dev.Paths(), func(p backends.Path) bool { return p.Name == "matrix" && p.On })
		if !dev.Made("experts") || matrices != (dev.Made("matrix_f16_32") || dev.Made("matrix_f16_64")) {
			t.Errorf("half %v: what ran was none of the kernels that multiply by groups", half)
		}
	}
	dev := open(t, vulkan.Options{Invariant: true, Tiled: 1})
	check(t, dev, cases[:1])
	if dev.Made("experts") {
		t.Error("rows whose kernels must not depend on others are multiplied by groups")
	}
}

// TestIndexRefused: an index out of range is an error that names launch and
// value, and the device works on.
func TestIndexRefused(t *testing.T) {
	dev := open(t, vulkan.Options{})
	for name, change := range map[string][2]string{"embed": {"<11", "=3,4,11,0,1"}, "push": {"=2,3,4,5", "=2,3,9,5"},
		"attention": {"=30,31", "=30,33"}} {
		var good, bad optest.Case
		for _, c := range optest.Cases() {
			if op, _, _ := strings.Cut(c.Name, "/"); op == name && strings.Contains(c.Args, change[0]) &&
				!optest.Known("vulkan", c.Name) {
				good, bad = c, c
				break
			}
		}
		bad.Args = strings.Replace(bad.Args, change[0], change[1], 1)
		if good.Args == bad.Args {
			t.Fatalf("%s: the table has no case with %s", name, change[0])
		}
		if err := runCase(t, dev, bad); err == nil || !strings.Contains(err.Error(), "it must lie in [0, ") {
			t.Errorf("%s: %v", name, err)
		}
		if err := optest.Check(dev, good); err != nil {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
}

// TestRangeRefused: a range of rows that is empty, or lacks the row whose text it is, is an error that names it.
func TestRangeRefused(t *testing.T) {
	dev := open(t, vulkan.Options{})
	for _, c := range []optest.Case{
		{Name: "pool/empty", Eq: "y: pool(x, at)", Args: "x float[9, 3]; at i32[2, 2] =0,4,5,5"},
		{Name: "pool/behind", Eq: "y: pool(x, at)", Args: "x float[9, 3]; at i32[2, 2] =0,4,5,10"},
		{Name: "attention/lacks", Eq: "y: attention(q, k, v, pos, span=s, both=true)",
			Args: "q float[2, 1, 8]; k float[2, 1, 8]; v float[2, 1, 8]; pos i32[2] =0,0; s i32[2, 2] =0,1,0,1"},
	} {
		if err := runCase(t, dev, c); err == nil || !strings.Contains(err.Error(), "range 1, of which ") {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// runCase launches a case without comparing, as a reference refuses it too.
func runCase(t *testing.T, dev *vulkan.Device, c optest.Case) error {
	t.Helper()
	p, err := c.Prepare(tensor.F32)
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	place := func(v *graph.Value, data []byte) backends.Operand {
		buf, err := dev.Alloc(v.Bytes(), backends.Arena)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { buf.Free() })
		if err := s.Write(buf, 0, data); err != nil {
			t.Fatal(err)
		}
		return backends.Operand{Buffer: buf, Type: v.Type, Shape: v.Shape, Stride: v.Type.RowBytes(v.Shape[1:].Elems())}
	}
	k, err := dev.Kernel(p.Node)
	if err != nil {
		t.Fatal(err)
	}
	l := &backends.Launch{Node: p.Node, Kernel: k}
	if n := k.Traits().Scratch; n > 0 {
		l.Scratch = place(&graph.Value{Type: tensor.U8, Shape: tensor.Shape{n}}, nil)
	}
	for _, o := range p.In {
		if o.Value == nil { // left out
			l.In = append(l.In, backends.Operand{})
			continue
		}
		l.In = append(l.In, place(o.Value, o.Data))
	}
	if p.Node.Op.Kind == graph.Update {
		l.Out = l.In[:1]
	} else {
		l.Out = []backends.Operand{place(p.Node.Out[0], nil)}
	}
	return s.Launch(l)
}

// TestPipelineCache: compiled pipelines are kept, and a file of garbage is as
// good as none.
func TestPipelineCache(t *testing.T) {
	dir := t.TempDir()
	var silu optest.Case
	for _, c := range optest.Cases() {
		if c.Name == "silu/odd" {
			silu = c
		}
	}
	use := func() {
		t.Helper()
		dev := open(t, vulkan.Options{Cache: dir})
		if err := optest.Check(dev, silu); err != nil {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
	use()
	files, _ := filepath.Glob(filepath.Join(dir, "vulkan-*.pipelines"))
	if len(files) != 1 {
		t.Fatalf("%v were written", files)
	}
	for _, damage := range []func([]byte) []byte{
		func(b []byte) []byte { return b[:20] },
		func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		func([]byte) []byte { return []byte(strings.Repeat("garbage", 100)) },
	} {
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[0], damage(b), 0o600); err != nil {
			t.Fatal(err)
		}
		use()
	}
}

// TestPipelineCacheDisk: of a cache that does not fit on the disk nothing is left.
func TestPipelineCacheDisk(t *testing.T) {
	dir := t.TempDir()
	dev := open(t, vulkan.Options{Cache: dir})
	for _, c := range optest.Cases() {
		if c.Name == "silu/odd" {
			if err := optest.Check(dev, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A file beyond the limit is what a full disk is: a write that fails.
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 10, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	err := dev.Close()
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Error(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Errorf("%s is left", f.Name())
	}
}

// validated opens a device with the validation layer. said gives the messages that are new, once
// the layer, which has threads of its own, has looked at all that was submitted.
func validated(t *testing.T, bounds bool) (dev *vulkan.Device, said func() []string) {
	t.Helper()
	// Newer layers guess what a shader touches only when told to.
	t.Setenv("VK_LAYER_SYNCVAL_SHADER_ACCESSES_HEURISTIC", "1")
	var mu sync.Mutex
	var messages []string
	dev, err := vulkan.New(vulkan.Options{Software: true, Device: os.Getenv("GRETA_VULKAN_DEVICE"), Validate: true,
		Bounds: bounds,
		Message: func(s string) {
			mu.Lock()
			defer mu.Unlock()
			messages = append(messages, s)
		}})
	var none *backends.NoDevice
	if os.Getenv("GRETA_REQUIRE_VALIDATION") == "" && (errors.As(err, &none) ||
		errors.Is(err, vk.VK_ERROR_LAYER_NOT_PRESENT)) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev, func() []string {
		dev.Idle()
		mu.Lock()
		defer mu.Unlock()
		all := messages
		messages = nil
		return all
	}
}

// chain captures y = silu(silu(x)): two dispatches of which the second must wait.
func chain(t *testing.T, dev *vulkan.Device) {
	t.Helper()
	var o [3]backends.Operand
	v := make([]*graph.Value, 3)
	for i := range o {
		v[i] = &graph.Value{Name: string(rune('a' + i)), Kind: graph.Input, Type: tensor.F32, Shape: tensor.Shape{4, 64}}
		buf, err := dev.Alloc(1024, backends.Arena)
		if err != nil {
			t.Fatal(err)
		}
		defer buf.Free()
		o[i] = backends.Operand{Buffer: buf, Type: tensor.F32, Shape: v[i].Shape, Stride: 256}
	}
	p := &backends.Program{Name: "chain"}
	for i := range 2 {
		n := &graph.Node{Name: v[i+1].Name, Op: ops.SiLU, In: v[i : i+1], Out: v[i+1 : i+2]}
		k, err := dev.Kernel(n)
		if err != nil {
			t.Fatal(err)
		}
		p.Launches = append(p.Launches, backends.Launch{Node: n, Kernel: k, In: o[i : i+1], Out: o[i+1 : i+2]})
	}
	e, err := dev.Capture(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Submit(), e.Wait(), e.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestValidation: the layer, with synchronization checks, has nothing to say of the
// table of operators (with -short, one case of each; of a sample, none), of memory with two sides, of a
// chain, of a model whose prompt is computed in chunks that are queued, and of steps of
// one token with all paths.
func TestValidation(t *testing.T) {
	dev, said := validated(t, false)
	quiet := func(what string) {
		t.Helper()
		for _, m := range said() {
			t.Errorf("%s: %s", what, m)
		}
	}
	switch {
	case sample(dev):
	case testing.Short():
		eachOperator(t, dev)
	default:
		for _, c := range optest.Cases() {
			if optest.Known("vulkan", c.Name) {
				continue
			}
			if err := optest.Check(dev, c); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
			quiet(c.Name)
		}
	}
	chain(t, dev)
	quiet("chain")
	dev.Stage(true)
	if !sample(dev) {
		eachOperator(t, dev)
	}
	s := session(t, dev, nil)
	if _, err := s.Generate(context.Background(), prompt(60), engine.Generation{Max: 3}); err != nil {
		t.Error(err)
	}
	quiet("memory with two sides")
	for _, p := range dev.Paths() {
		if err := dev.SetPath(p.Name, true); err != nil {
			t.Fatal(err)
		}
	}
	check(t, dev, slices.DeleteFunc(of("linear_id"), func(c optest.Case) bool { return c.Name != "linear_id/groups f16" }))
	quiet("rows of experts together")
	for _, dtype := range []tensor.Type{tensor.F16, tensor.Q4_K} {
		s := session(t, dev, func(o *engine.Options) {
			o.DType, o.Set = dtype, map[string]string{"L": "2", "D": "256", "H": "4", "F": "512", "V": "5000"}
		})
		if _, err := s.Generate(context.Background(), prompt(5), engine.Generation{Max: 3}); err != nil {
			t.Error(err)
		}
		quiet("tokens with what is folded, " + dtype.String())
	}
	dev.SetUnits(150) // of which the tiles of these products leave many idle
	s = session(t, dev, func(o *engine.Options) {
		o.DType, o.Chunk, o.Set = tensor.Q4_0, 64, map[string]string{"L": "2", "D": "1024", "H": "8", "F": "1792",
			"V": "5000"}
	})
	if _, err := s.Prefill(context.Background(), prompt(40)); err != nil {
		t.Error(err)
	}
	quiet("products by halves")
}

// TestMissingBarrier proves that the layer would see a barrier that is missing.
func TestMissingBarrier(t *testing.T) {
	dev, said := validated(t, false)
	dev.ForgetBarriers()
	chain(t, dev)
	messages := said()
	for _, m := range messages {
		if strings.Contains(m, "SYNC-HAZARD") {
			return
		}
	}
	t.Errorf("the layer did not see the missing barrier; it said %q", messages)
}

// TestBounds: with every access checked the layer has nothing to say of one case of
// every operator (of a sample, of none); and a kernel that reads behind its operand is seen. What the layer
// says of its own settings does not count.
func TestBounds(t *testing.T) {
	dev, said := validated(t, true)
	own := func(m string) bool {
		return strings.HasPrefix(m, "VALIDATION-SETTINGS: ") || strings.Contains(m, "(): Internal Warning: ")
	}
	// With the code that layer 1.4.309 adds to mix.comp lavapipe 26.1.6 crashes; the
	// kernel has one loop and no index that is not bounded by it.
	if !sample(dev) {
		eachOperator(t, dev, "mix")
	}
	for _, m := range slices.DeleteFunc(said(), own) {
		t.Error(m)
	}
	dev.ShortenBindings()
	chain(t, dev)
	messages := said()
	for _, m := range messages {
		if strings.Contains(m, "VUID-vkCmdDispatch-storageBuffers-06936") {
			return
		}
	}
	if os.Getenv("GRETA_REQUIRE_VALIDATION") == "" { // as Debian 12's, 1.3.239, does not
		t.Skipf("the layer that is installed sees no access out of bounds; it said %q", messages)
	}
	t.Errorf("the layer did not see the access out of bounds; it said %q", messages)
}
