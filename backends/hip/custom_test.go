//go:build unix

package hip

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/bench/trial"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// serveCustom is the test binary as the process that tries a kernel: hip.test custom.
func serveCustom() error {
	out, err := child.Stdout()
	if err != nil {
		return err
	}
	return trial.Serve(context.Background(), os.Stdin, out, func() (backends.Device, error) { return New(Options{}) })
}

// customExample copies an example of kernels of one's own, with changes of its source and description.
func customExample(t *testing.T, file, source string, change ...string) string {
	t.Helper()
	dir := t.TempDir()
	r := strings.NewReplacer(change...)
	for _, name := range []string{file, source} {
		text, err := os.ReadFile(testfiles.Repo(t, "examples", "kernels", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(r.Replace(string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, file)
}

// hipKernels are a file's kernels for this backend.
func hipKernels(t *testing.T, path string) []*custom.Kernel {
	t.Helper()
	all, err := models.LoadKernels(path)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(k *custom.Kernel) bool { return k.Ending() != ".hip" })
}

func cardOr(t *testing.T) *Device {
	t.Helper()
	dev, err := New(Options{})
	if err != nil {
		var none *backends.NoDevice
		if errors.As(err, &none) && os.Getenv("GRETA_REQUIRE_HIP") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// customSet tries a file's kernels on a card, in a child process.
func customSet(t *testing.T, dev *Device, path string, dtype tensor.Type) (*trial.Set, engine.Options, error) {
	t.Helper()
	f, err := models.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	opt := engine.Options{Model: f, Device: dev, Context: 64, DType: dtype}
	opt.Cache.Off = true
	set, err := trial.Prepare(t.Context(), opt, []int{1, 33}, trial.Settings{Device: dev, Kernels: hipKernels(t, path),
		Child: child.Command{os.Args[0], "custom"}, Notify: func(text string) { t.Log(text) }})
	if set != nil {
		opt.Custom = set
	}
	return set, opt, err
}

// TestCustomKernels: the examples pass their trial on a card, are used in a plan, and steps with
// them agree with float64.
func TestCustomKernels(t *testing.T) {
	dev := cardOr(t)
	for _, c := range []struct {
		file, source, node string
		dtype              tensor.Type
	}{{"block.yaml", "rms.hip", "h: custom:rms_hip", tensor.F16},
		{"fp8.yaml", "fp8.hip", "y: custom:fp8", tensor.F8E4M3}} {
		t.Run(c.file, func(t *testing.T) {
			path := customExample(t, c.file, c.source, "constants: {WAVES: [4", "always: true\n    constants: {WAVES: [4")
			_, opt, err := customSet(t, dev, path, c.dtype)
			if err != nil {
				t.Fatal(err)
			}
			text, err := engine.Dump(opt, "plan", 1)
			if err != nil || !strings.Contains(text, c.node) {
				t.Fatalf("%v\n%s", err, text)
			}
			r, err := engine.Check(t.Context(), engine.CheckOptions{Options: opt, Ref: ref.New()})
			if err != nil {
				t.Fatal(err)
			}
			if !r.OK() {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestCustomRefused: planted mistakes are refused within ten seconds each, and the card is as good as before.
func TestCustomRefused(t *testing.T) {
	dev := cardOr(t)
	const store = "y[i] = w[i] * x[i] * scale;"
	for _, c := range []struct {
		name   string
		change []string
		want   string
	}{
		{"last row",
			[]string{store, "y[i] = w[i] * x[i] * scale + (blockIdx.x == gridDim.x - 1 && i == k - 1 ? 1.0f : 0.0f);"},
			"y[0, 255] of f32[1, 256] is "},
		{"past the end", []string{"float scale", "if (blockIdx.x == gridDim.x - 1) y[k + 5] = 1; float scale"},
			"it writes past the end of y f32[1, 256]"},
		{"before the beginning", []string{"float scale", "if (blockIdx.x == 0) y[-3] = 1; float scale"}, "bytes before y"},
		{"hang", []string{"float sum = 0;", "float sum = 0; while (*(volatile const float *)x < 1e30f) sum += 1;"},
			"it hangs"},
		{"grid", []string{"grid: rows", "grid: max(rows - 1, 1)"}, "y[1, 0] of f32[2, 256] was not written"},
		{"fault", []string{"float scale", "y[1LL << 40] = 1; float scale"}, "is refused: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			_, _, err := customSet(t, dev, customExample(t, "block.yaml", "rms.hip", c.change...), tensor.F16)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; %q is wanted", err, c.want)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	if _, _, err := customSet(t, dev, customExample(t, "block.yaml", "rms.hip"), tensor.F16); err != nil {
		t.Error(err)
	}
}

// rmsNode is a node of the example's operator.
func rmsNode(t *testing.T, rows int) *graph.Node {
	t.Helper()
	p, err := optest.Case{Name: "custom", Eq: "y: rmsnorm(x, w)", Args: fmt.Sprintf("x float[%d, 256]; w f32[256]",
		rows)}.Prepare(tensor.F32)
	if err != nil {
		t.Fatal(err)
	}
	return p.Node
}

// On a provider in Go: what a description says arrives at the driver.
func TestCustomLaunch(t *testing.T) {
	for _, who := range []vendor{nvidia, amd} {
		f := newFake(who)
		dev, err := openFake(f, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		path := customExample(t, "block.yaml", "rms.hip", "grid: rows\n    block: BLOCK", "grid: [rows, 2]\n    "+
			"block: [BLOCK, 2]\n    shared: 4*BLOCK", "extern \"C\"", "#include \"prelude.h\"\nextern \"C\"")
		k := hipKernels(t, path)[0]
		i, err := k.Instance(map[string]int{"BLOCK": 128})
		if err != nil {
			t.Fatal(err)
		}
		n := rmsNode(t, 5)
		made, err := dev.CustomKernel(n, i, false)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(f.source, "#define BLOCK 128\n") || !strings.Contains(f.source, "G_KERNEL") {
			t.Errorf("%.200s", f.source)
		}
		if backends.CustomOf(made) != i || !strings.HasPrefix(made.Name(), "custom:rms_hip BLOCK=128") ||
			!strings.Contains(made.Traits().Why, "rms.hip") {
			t.Error(made.Name(), made.Traits().Why)
		}
		l := &backends.Launch{Node: backends.CustomNode(n), Kernel: made}
		buffer := func(v *graph.Value) backends.Operand {
			b, err := dev.Alloc(v.Bytes(), backends.Arena)
			if err != nil {
				t.Fatal(err)
			}
			return backends.Operand{Buffer: b, Stride: v.Type.RowBytes(v.Shape[1:].Elems()), Type: v.Type, Shape: v.Shape}
		}
		l.In = []backends.Operand{buffer(n.In[0]), buffer(n.In[1])}
		l.Out = []backends.Operand{buffer(n.Out[0])}
		e, err := dev.Capture(&backends.Program{Name: "p", Launches: []backends.Launch{*l}})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, c := range f.calls {
			if c.f == fnLaunch && fmt.Sprint(c.args[1:8]) == fmt.Sprint([]uintptr{5, 2, 1, 128, 2, 1, 512}) {
				found = true
			}
		}
		if !found {
			t.Errorf("%v: no launch of a grid of 5 by 2 blocks of 128 by 2 threads with 512 bytes", who)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		l.In[0].Stride *= 2
		if _, err := dev.Capture(&backends.Program{Name: "p", Launches: []backends.Launch{*l}}); err == nil ||
			!strings.Contains(err.Error(), "have gaps") {
			t.Error(err)
		}
		for _, o := range slices.Concat(l.In, l.Out) {
			if err := o.Buffer.Free(); err != nil {
				t.Error(err)
			}
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "rms.hip"), []byte("#include \"gone.h\"\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
		if i, err = k.Instance(map[string]int{"BLOCK": 64}); err != nil {
			t.Fatal(err)
		}
		if _, err := dev.CustomKernel(n, i, false); err == nil || !strings.Contains(err.Error(), "gone.h, which is neither") {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if leaks := f.leaks(); len(leaks) > 0 {
			t.Error(leaks)
		}
	}
}

// TestCustomSources compiles the example for both vendors, as the run-time compilers would.
func TestCustomSources(t *testing.T) {
	clang := testfiles.Clang(t)
	k := hipKernels(t, testfiles.Repo(t, "examples", "kernels", "fp8.yaml"))[0]
	for _, constants := range k.Variants() {
		i, err := k.Instance(constants)
		if err != nil {
			t.Fatal(err)
		}
		source, err := customSource(i)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "k.hip")
		if err := os.WriteFile(path, []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{
			"-x hip --offload-arch=gfx942 -nogpuinc -nogpulib -mcumode", "-x hip --offload-arch=gfx1100 -nogpuinc -nogpulib",
			"-x cuda --cuda-gpu-arch=sm_90 --cuda-feature=+ptx80 -nocudainc -nocudalib"} {
			c := exec.Command(clang, append(strings.Fields(args), "--cuda-device-only", "-std=c++17", "-O3", "-Wall", "-Werror",
				"-S", "-o", os.DevNull, path)...)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %v\n%s", c.Args, err, out)
			}
		}
	}
}
