package hip

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// TestTakes: what the processor has a kernel for, this backend has one for, but for
// weights of f64, which its kernels do not decode.
func TestTakes(t *testing.T) {
	host, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for _, who := range []vendor{nvidia, amd} {
		dev, err := openFake(newFake(who), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		names, err := optest.Lacking(dev, host)
		names = slices.DeleteFunc(names, func(n string) bool { return strings.Contains(n, "/f64/") })
		if unknown, stale := optest.Differs("hip", names); err != nil || len(unknown)+len(stale) > 0 {
			t.Errorf("without a kernel: %q; with one, though ops/optest/lacking.txt says none: %q; error %v", unknown, stale,
				err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// openFake opens a device on a fake provider, with a cache of its own.
func openFake(f *fake, dir string) (*Device, error) {
	d := &driver{f}
	found, err := d.devices()
	if err != nil {
		return nil, err
	}
	return openDevice(d, found[0], Options{Cache: &Cache{Dir: dir}})
}

// scene places a case's operands on a device. Its buffers are in the launch.
func scene(dev *Device, name string) (l *backends.Launch, free func() error, err error) {
	var buffers []backends.Buffer
	free = func() error {
		var errs []error
		for _, b := range buffers {
			errs = append(errs, b.Free())
		}
		return errors.Join(errs...)
	}
	for _, c := range optest.Cases() {
		if c.Name != name {
			continue
		}
		p, err := c.Prepare(tensor.F32)
		if err != nil {
			return nil, free, err
		}
		k, err := dev.Kernel(p.Node)
		if err != nil {
			return nil, free, err
		}
		l = &backends.Launch{Node: p.Node, Kernel: k}
		s, err := dev.Stream()
		if err != nil {
			return nil, free, err
		}
		place := func(t tensor.Type, shape tensor.Shape, data []byte, use backends.Use) (backends.Operand, error) {
			b, err := dev.Alloc(t.RowBytes(shape.Elems()), use)
			if err != nil {
				return backends.Operand{}, err
			}
			buffers = append(buffers, b)
			o := backends.Operand{Buffer: b, Type: t, Shape: shape}
			o.Stride = t.RowBytes(o.RowElems())
			return o, s.Write(b, 0, data)
		}
		for _, in := range p.In {
			use := backends.Weights
			if in.Value.Kind == graph.Input {
				use = backends.Step
			}
			o, err := place(in.Value.Type, in.Value.Shape, in.Data, use)
			if err != nil {
				return nil, free, err
			}
			l.In = append(l.In, o)
		}
		for _, v := range p.Node.Out {
			o, err := place(v.Type, v.Shape, nil, backends.Step)
			if err != nil {
				return nil, free, err
			}
			l.Out = append(l.Out, o)
		}
		if n := k.Traits().Scratch; n > 0 {
			if l.Scratch, err = place(tensor.U8, tensor.Shape{n}, nil, backends.Arena); err != nil {
				return nil, free, err
			}
		}
		return l, free, nil
	}
	return nil, free, fmt.Errorf("no case %s", name)
}

// life is all that a device does, from opening to closing.
func life(f *fake, dir string) (err error) {
	dev, err := openFake(f, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	var launches []backends.Launch
	for _, name := range []string{"silu/odd", "attention/decode", "rope/half", "linear/f16/19x37x19"} {
		l, free, failed := scene(dev, name)
		defer func() { err = errors.Join(err, free()) }()
		if failed != nil {
			return failed
		}
		launches = append(launches, *l)
	}
	s, err := dev.Stream()
	if err != nil {
		return err
	}
	if err := s.Launch(&launches[0]); err != nil {
		return err
	}
	e, err := dev.Capture(&backends.Program{Name: "life", Launches: launches})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if err := errors.Join(e.Submit(), e.Wait()); err != nil {
		return err
	}
	if _, err := e.Profile(); err != nil {
		return err
	}
	if err := Explained(e, len(launches), 5*time.Second); err != nil {
		return err
	}
	return s.Read(launches[0].Out[0].Buffer, 0, make([]byte, 100<<10)[:launches[0].Out[0].Buffer.Size()])
}

// Each call fails in turn: the error names it, nothing is leaked.
func TestEveryCallFails(t *testing.T) {
	for _, who := range []vendor{amd, nvidia} {
		whole := newFake(who)
		if err := life(whole, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		if l := whole.leaks(); len(l) > 0 {
			t.Fatalf("%s: without any failure, %v are left", who, l)
		}
		first := map[fn]bool{}
		for i, c := range whole.calls {
			// The first call of each function, and some of those behind it.
			if first[c.f] && i%24 != 0 && !testfiles.Exhaustive() {
				continue
			}
			first[c.f] = true
			f := newFake(who)
			f.failAt = i
			err := life(f, t.TempDir())
			what := fmt.Sprintf("%s, call %d, %s", who, i, who.symbol(c.f))
			if err == nil {
				// Setting the current thread's device is tried again by every call.
				if f.calls[i].f != fnSetDevice {
					t.Errorf("%s: no error", what)
				}
				continue
			}
			if !strings.Contains(err.Error(), who.symbol(f.calls[i].f)) {
				t.Errorf("%s: the error does not name it: %v", what, err)
			}
			left := f.leaks()
			// What could not be freed is the only thing that may be left.
			ends := []fn{fnFree, fnHostFree, fnModuleUnload, fnStreamDestroy, fnEventDestroy, fnGraphDestroy, fnGraphExecDestroy,
				fnRtcDestroy, fnReleaseContext}
			if slices.Contains(ends, f.calls[i].f) && len(left) == 1 && strings.HasPrefix(left[0], "1 ") {
				continue
			}
			if len(left) > 0 {
				t.Errorf("%s: %v are left", what, left)
			}
		}
	}
}

// A replay is one call and a wait; nothing is set, allocated or changed.
func TestReplay(t *testing.T) {
	f := newFake(nvidia)
	dev, err := openFake(f, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	l, free, err := scene(dev, "silu/odd")
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	e, err := dev.Capture(&backends.Program{Name: "p", Launches: []backends.Launch{*l}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	f.calls = nil
	if err := errors.Join(e.Submit(), e.Wait()); err != nil {
		t.Fatal(err)
	}
	var got []fn
	for _, c := range f.calls {
		got = append(got, c.f)
	}
	if want := []fn{fnSetDevice, fnGraphLaunch, fnSetDevice, fnStreamWait}; !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	dev.status[1], dev.status[2], dev.status[3], dev.status[0] = 0, 4, uint32(math.MaxUint32), 1
	if err := e.Wait(); err == nil || !strings.Contains(err.Error(), "index 4 is -1") {
		t.Errorf("a fault of a kernel is reported as %v", err)
	}
	if err := e.Wait(); err != nil {
		t.Errorf("a fault is reported twice: %v", err)
	}
}

// A captured graph is brought to the device at once, where the driver can do that.
func TestUpload(t *testing.T) {
	for _, who := range []vendor{amd, nvidia} {
		for name, c := range map[string]struct {
			lacks bool
			code  uintptr // of the upload
			fails bool
		}{"": {}, "missing": {lacks: true}, "not supported": {code: errNotSupported},
			"out of memory": {code: errOutOfMemory, fails: true}} {
			f := newFake(who)
			f.lacks = map[fn]bool{fnGraphUpload: c.lacks}
			dev, err := openFake(f, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			l, free, err := scene(dev, "silu/odd")
			if err != nil {
				t.Fatal(err)
			}
			f.answers = map[fn]uintptr{fnGraphUpload: c.code}
			f.calls = nil
			e, err := dev.Capture(&backends.Program{Name: "p", Launches: []backends.Launch{*l}})
			if (err != nil) != c.fails || err != nil && !strings.Contains(err.Error(), who.symbol(fnGraphUpload)) {
				t.Fatalf("%s, upload %s: %v", who, name, err)
			}
			at := func(n fn) int { return slices.IndexFunc(f.calls, func(c fakeCall) bool { return c.f == n }) }
			if up := at(fnGraphUpload); (up >= 0) == c.lacks || up >= 0 &&
				(up < at(fnGraphInstantiate) || f.calls[up].args[1] != dev.stream) {
				t.Errorf("%s, upload %s: call %d of %v", who, name, up, f.calls)
			}
			if e != nil {
				err = errors.Join(e.Submit(), e.Wait(), e.Close())
			}
			if err := errors.Join(free(), dev.Close()); err != nil {
				t.Error(err)
			}
			if e != nil && err != nil || len(f.leaks()) > 0 {
				t.Errorf("%s, upload %s: %v, left %v", who, name, err, f.leaks())
			}
		}
	}
}

// The arguments of a launch are where the driver looks for them.
func TestArguments(t *testing.T) {
	f := newFake(nvidia)
	dev, err := openFake(f, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	l, free, err := scene(dev, "scale/odd")
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	f.calls = nil
	s, _ := dev.Stream()
	if err := s.Launch(l); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(f.calls, func(c fakeCall) bool { return c.f == fnLaunch })
	a := f.calls[i].args
	if len(a) != 11 || a[1] != 1 || a[2] != 1 || a[3] != 1 || a[4] != 256 || a[5] != 1 || a[6] != 1 || a[7] != 0 ||
		a[8] != dev.stream || a[10] != 0 {
		t.Fatalf("launch with %v", a)
	}
	b, err := dev.bind(l, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer b.free()
	params := b.parts[0].args.ptrs
	if len(params) != 6 { // y, x, n, row, stride, p
		t.Fatalf("%d arguments", len(params))
	}
	if got := uintptr(*word(params[1])); got != l.In[0].Buffer.(*buffer).at {
		t.Errorf("x is %#x", got)
	}
	if n := *(*uint32)(unsafe.Pointer(word(params[2]))); n != 3*37 {
		t.Errorf("n is %d", n)
	}
	if p := math.Float32frombits(*(*uint32)(unsafe.Pointer(word(params[5])))); p != 0.125 {
		t.Errorf("p is %g", p)
	}
}

func TestNoDevice(t *testing.T) {
	for _, who := range []vendor{amd, nvidia} {
		f := newFake(who)
		f.none = true
		_, err := openFake(f, t.TempDir())
		var none *backends.NoDevice
		if !errors.As(err, &none) || !strings.Contains(err.Error(), who.symbol(fnDeviceCount)) {
			t.Errorf("%s: %v", who, err)
		}
		f = newFake(who)
		f.failAt, f.code = 0, errInvalidDevice // init
		if _, err := openFake(f, t.TempDir()); !errors.As(err, &none) {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// The compiler is not called for an architecture that it would abort for.
func TestUnknownTarget(t *testing.T) {
	f := newFake(amd)
	f.isas = []string{"gfx90a", "gfx1030"}
	if _, err := openFake(f, t.TempDir()); err == nil || !strings.Contains(err.Error(), "does not know gfx942") {
		t.Error(err)
	}
	if l := f.leaks(); len(l) > 0 {
		t.Error(l)
	}
}

// Code is compiled once, found again, and compiled anew where its file was damaged.
func TestCache(t *testing.T) {
	dir := t.TempDir()
	compile := func() int {
		f := newFake(nvidia)
		dev, err := openFake(f, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		if err := dev.prepare([]program{pointFile, routeFile, pointFile}); err != nil {
			t.Fatal(err)
		}
		return dev.c.compiled
	}
	if n := compile(); n != 2 {
		t.Fatalf("%d compiled at first", n)
	}
	if n := compile(); n != 0 {
		t.Fatalf("%d compiled again", n)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, damage := range []func(b []byte) []byte{
		func(b []byte) []byte { return b[:len(b)-1] },
		func(b []byte) []byte { b[len(b)-2] ^= 1; return b },
		func([]byte) []byte { return nil },
	} {
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[0], damage(b), 0o644); err != nil {
			t.Fatal(err)
		}
		if n := compile(); n != 1 {
			t.Errorf("%d compiled after damage", n)
		}
	}
	c := Cache{Dir: dir}
	if l, err := c.List(); err != nil || len(l) != 2 || !strings.HasSuffix(l[0].What, ".hip") {
		t.Error(l, err)
	}
	if err := (Cache{dir, 100}).trim(); err != nil {
		t.Error(err)
	}
	if l, _ := c.List(); len(l) != 1 {
		t.Errorf("%d files are left in 100 bytes", len(l))
	}
	if n, err := c.Clear(); n != 1 || err != nil {
		t.Error(n, err)
	}
}

// A compiler's message is in the error.
func TestCompilerMessage(t *testing.T) {
	f := newFake(nvidia)
	dev, err := openFake(f, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	f.failAt = len(f.calls) + 1
	if err := dev.prepare([]program{pointFile}); err == nil || !strings.Contains(err.Error(), "oops") ||
		!strings.Contains(err.Error(), "point.hip") {
		t.Error(err)
	}
}

func TestLevels(t *testing.T) {
	at := func(ranges ...span) []span { return ranges }
	r := func(from, to uintptr) span { return span{from, to, false} }
	w := func(from, to uintptr) span { return span{from, to, true} }
	a, b, c := at(r(0, 8), w(8, 16)), at(r(0, 8), w(16, 24)), at(r(8, 24), w(24, 32))
	d := at(r(40, 48), w(0, 4))   // overwrites what a and b read
	e := at(r(48, 56), w(56, 64)) // free of all
	got := levelsOf([][]span{a, b, c, d, e})
	want := [][]int{{0, 1, 4}, {2, 3}}
	if len(got) != len(want) {
		t.Fatalf("%d levels", len(got))
	}
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("level %d has %d launches, %d are wanted", i, len(got[i]), len(want[i]))
		}
	}
}

func TestPlanes(t *testing.T) {
	for typ, ps := range parts {
		_, bytes := typ.Block()
		seen := make([]bool, bytes)
		for _, p := range ps {
			for i := p.at; i < p.at+p.size; i++ {
				if seen[i] {
					t.Errorf("%s: byte %d is in two planes", typ, i)
				}
				seen[i] = true
			}
		}
		if slices.Contains(seen, false) {
			t.Errorf("%s: a byte is in no plane", typ)
		}
	}
}

func TestArchName(t *testing.T) {
	for _, c := range []struct {
		at   int
		text string
		want string
	}{{396, "gfx90a:sramecc+:xnack-", "gfx90a"}, {1160, "gfx1103", "gfx1103"}, {1160, "Radeon", ""}, {0, "", ""}} {
		props := make([]byte, 4096)
		copy(props[c.at:], c.text)
		if got := archName(props); got != c.want {
			t.Errorf("%q at %d: %q", c.text, c.at, got)
		}
	}
}

// The path of matrix cores decides which kernels products get.
func TestPaths(t *testing.T) {
	f := newFake(amd)
	dev, err := openFake(f, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	uses := func() string {
		l, free, err := scene(dev, "linear/f16/19x37x19")
		if err != nil {
			t.Fatal(err)
		}
		defer free()
		b, err := dev.bind(l, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.free()
		if !takesMatrix(l.Node) {
			t.Error("the path does not take a product of 19 rows")
		}
		return string(b.parts[len(b.parts)-1].code.program)
	}
	if p := uses(); !strings.HasPrefix(p, "matrix.hip") {
		t.Errorf("a device opens with its exact paths on, but %s is used", p)
	}
	if err := dev.SetPath(pathMatrix, false); err != nil {
		t.Fatal(err)
	}
	if p := uses(); !strings.HasPrefix(p, "tile.hip") {
		t.Errorf("with the path off %s is used", p)
	}
	if err := dev.SetPath("no such", true); err == nil {
		t.Error("a path that does not exist was set")
	}
	if p := dev.Paths(); len(p) == 0 || p[0].Code == "" || !strings.Contains(p[0].About, "MFMA") {
		t.Errorf("paths %+v", p)
	}
	if d := dev.Info().Driver; !strings.HasPrefix(d, "HIP 6.2.41134") {
		t.Errorf("driver %q", d)
	}
	for text, want := range map[string]string{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue\nGCC " +
		"version: 12.2\n": " 580.159.03", "6.10.5\n": " 6.10.5", "": ""} {
		path := filepath.Join(t.TempDir(), "version")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := kernelModule(path); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
