//go:build unix

package health

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/tensor"
)

// TestMain lets the test binary be the child: health.test child MODE PATH, or
// smoke MODE "".
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "smoke" {
		if err := smoke(os.Args[2]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 4 && os.Args[1] == "child" {
		err := Serve(os.Stdout, os.Args[3], func() (backends.Device, error) {
			switch os.Args[2] {
			case "none":
				return nil, fmt.Errorf("no device here")
			case "other":
				return newDevice("other driver"), nil
			}
			d := newDevice("1.0")
			d.mode = os.Args[2]
			return d, nil
		}, func(err error) bool { return strings.Contains(err.Error(), "full") })
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// device is the reference with two paths, whose use goes wrong as mode says.
type faultyDevice struct {
	backends.Device
	driver, code string
	mode         string
	on           map[string]bool
	sets         []string
}

func newDevice(driver string) *faultyDevice {
	return &faultyDevice{Device: ref.New(), driver: driver, code: "c1", on: map[string]bool{"matrix": true}}
}

func (d *faultyDevice) Info() backends.Info {
	i := d.Device.Info()
	i.Name, i.Driver = "Card\tX", d.driver
	return i
}

func (d *faultyDevice) Paths() []backends.Path {
	product := func(n *graph.Node) bool { return n.Op.Name == "linear" && n.In[0].Shape.Rows() == 33 }
	return []backends.Path{
		{Name: "matrix", About: "products on matrix cores", Auto: true, Code: d.code, Takes: product},
		{Name: "fp16", About: "half precision", Half: true, Auto: true, Rel: 2e-3, Code: d.code, Takes: product},
		{Name: "fast", About: "careless arithmetic", Half: true, Rel: 1e-2, Code: d.code, Takes: product},
		{Name: "fp8", About: "bytes", OptIn: true, Rel: 5e-2, Code: d.code, Takes: func(n *graph.Node) bool {
			return n.Op.Name == "linear" && n.In[1].Type == tensor.F8E4M3
		}},
	}
}

func (d *faultyDevice) SetPath(name string, on bool) error {
	d.on[name] = on
	d.sets = append(d.sets, fmt.Sprint(name, on))
	return nil
}

// Capture goes wrong where the matrix path is on.
func (d *faultyDevice) Capture(p *backends.Program) (backends.Executable, error) {
	e, err := d.Device.Capture(p)
	if !d.on["matrix"] || err != nil {
		return e, err
	}
	switch d.mode {
	case "crash":
		fmt.Fprintln(os.Stderr, "driver: assertion failed")
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Minute)
	case "hang":
		time.Sleep(time.Minute)
	case "error", "full":
		return nil, fmt.Errorf("the driver is %s", d.mode)
	case "wrong":
		return wrong{e, d, p}, nil
	}
	return e, nil
}

type wrong struct {
	backends.Executable
	d *faultyDevice
	p *backends.Program
}

func (w wrong) Wait() error {
	s, _ := w.d.Stream()
	l := w.p.Launches[len(w.p.Launches)-1]
	return s.Write(l.Out[0].Buffer, l.Out[0].Offset, make([]byte, 64))
}

// settings keep records in dir; the child goes wrong as mode says.
func settings(dir, mode string) Settings {
	return Settings{File: filepath.Join(dir, "health.txt"), Limit: 2 * time.Minute, Passing: func(err error) bool {
		return strings.Contains(err.Error(), "full")
	},
		Child: func(path string) child.Command { return child.Command{os.Args[0], "child", mode, path} }}
}

func apply(t *testing.T, d *faultyDevice, s Settings) []Decision {
	t.Helper()
	all, err := Apply(context.Background(), d, s)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 4 {
		t.Fatalf("%d decisions", len(all))
	}
	for _, v := range all {
		if d.on[v.Path] != v.On {
			t.Errorf("%s is on: %v, decided was %v", v.Path, d.on[v.Path], v.On)
		}
	}
	return all
}

// Each way to go wrong fails the check of the path that does, and of no other;
// it is remembered until the driver or the kernels change.
func TestChecks(t *testing.T) {
	for _, c := range []struct {
		mode, reason string
		limit        time.Duration
	}{
		{"well", "", 0}, {"crash", "while compiling: the child process crashed", 0},
		{"hang", "while compiling: the child process hung", 5 * time.Second},
		{"error", "the driver is error", 0}, {"wrong", "relative L2", 0},
	} {
		t.Run(c.mode, func(t *testing.T) {
			if c.limit > 0 && testing.Short() {
				t.Skip("it waits for the watchdog, long enough for a busy machine")
			}
			t.Parallel()
			s := settings(t.TempDir(), c.mode)
			if c.limit > 0 {
				s.Limit = c.limit
			}
			var said []string
			s.Notify = func(text string) { said = append(said, text) }
			good := c.mode == "well"
			a := apply(t, newDevice("1.0"), s)
			m, h := a[0], a[1]
			if m.On != good || !m.Fresh || !strings.Contains(m.Reason, c.reason) || good != (m.Reason == "") {
				t.Errorf("matrix: %+v", m)
			}
			if !h.On || !h.Fresh || h.Health != Passed {
				t.Errorf("fp16: %+v", h)
			}
			if a[2].On || a[2].Health != Unchecked {
				t.Errorf("fast: %+v", a[2])
			}
			if len(said) != 2 || !strings.Contains(said[0], "products on matrix cores") {
				t.Errorf("said %q", said)
			}
			// The second time nothing is run: the child would go well now.
			s.Child = settings("", "well").Child
			if m := apply(t, newDevice("1.0"), s)[0]; m.On != good || m.Fresh ||
				m.Health != map[bool]string{true: Passed, false: Failed}[good] {
				t.Errorf("again: %+v", m)
			}
			if good {
				return
			}
			s.Child = settings("", "well").Child
			other := newDevice("1.0")
			other.code = "c2"
			if m := apply(t, other, s)[0]; !m.On || !m.Fresh {
				t.Errorf("with other kernels: %+v", m)
			}
			if r, err := Records(s.File); err != nil || len(r) != 2 {
				t.Errorf("records %v, %v: a new result replaces the old", r, err)
			}
		})
	}
}

// TestChecksBesideEachOther: where several checks fail that ran beside each other, each is made again alone, and that
// counts; a single one that fails is not.
func TestChecksBesideEachOther(t *testing.T) {
	for first, calls := range map[string]int{"none": 4, "error": 2} { // "error": of the matrix path only
		s := settings(t.TempDir(), "well")
		var mutex sync.Mutex
		made := 0
		s.Child = func(path string) child.Command {
			mutex.Lock()
			defer mutex.Unlock()
			if made++; made <= 2 {
				return child.Command{os.Args[0], "child", first, path}
			}
			return child.Command{os.Args[0], "child", "well", path}
		}
		a := apply(t, newDevice("1.0"), s)
		if made != calls || a[0].On != (calls == 4) || !a[1].On {
			t.Errorf("%s: %d checks, %+v", first, made, a[:2])
		}
	}
}

func TestDriverChanges(t *testing.T) {
	s := settings(t.TempDir(), "other") // the child says that its driver is another
	a := apply(t, newDevice("1.0"), s)
	if a[0].On || a[0].Health != Unchecked || !strings.Contains(a[0].Reason, "another device") {
		t.Errorf("%+v", a[0])
	}
	if r, _ := Records(s.File); len(r) != 0 {
		t.Errorf("a check of another device was kept: %v", r)
	}
	a = apply(t, newDevice("other driver"), s)
	if !a[0].On || !a[0].Fresh {
		t.Errorf("%+v", a[0])
	}
	// What says nothing of the path is not kept.
	for _, mode := range []string{"none", "full"} {
		s := settings(t.TempDir(), mode)
		if a := apply(t, newDevice("1.0"), s); a[0].On || a[0].Health != Unchecked {
			t.Errorf("%s: %+v", mode, a[0])
		}
		if r, _ := Records(s.File); mode == "none" && len(r) != 0 || mode == "full" && (len(r) != 1 || r[0].Path != "fp16") {
			t.Errorf("%s: %v was kept", mode, r)
		}
	}
}

func TestChoice(t *testing.T) {
	ctx := context.Background()
	s := settings(t.TempDir(), "well")
	s.FP16 = backends.Off
	if a := apply(t, newDevice("1.0"), s); !a[0].On || a[1].On || a[2].On || a[1].Reason != "--fp16 off" {
		t.Errorf("off: %+v", a)
	}
	s.FP16 = backends.On
	if a := apply(t, newDevice("1.0"), s); !a[0].On || !a[1].On || !a[2].On || a[3].On ||
		a[3].Reason != "only with --fp8" {
		t.Errorf("on: %+v", a)
	}
	// What must be asked for by its name does not depend on the choice of half precision.
	s.FP16, s.FP8 = backends.Off, true
	if a := apply(t, newDevice("1.0"), s); !a[0].On || a[1].On || a[2].On || !a[3].On || a[3].Health != Passed {
		t.Errorf("--fp16 off --fp8: %+v", a)
	}
	if _, err := Apply(ctx, ref.New(), Settings{FP8: true}); err == nil {
		t.Error("--fp8 is accepted where there are no paths")
	}
	// In this process, where the device itself goes wrong; half paths are not touched by that.
	s = settings(t.TempDir(), "")
	s.Child = nil
	d := newDevice("1.0")
	d.mode = "wrong"
	var said string
	s.Notify = func(text string) { said += text }
	if a := apply(t, d, s); a[0].On || !a[1].On || !strings.Contains(said, "in this process") {
		t.Errorf("in this process: %+v, said %q", a, said)
	}
	if _, err := Apply(ctx, ref.New(), Settings{FP16: backends.On}); err == nil {
		t.Error("--fp16 on is accepted where there is no such path")
	}
	if a, err := Apply(ctx, ref.New(), Settings{}); a != nil || err != nil {
		t.Error(a, err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Apply(cancelled, newDevice("1.0"), settings(t.TempDir(), "well")); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// --fp16 on asks for a path whose check failed.
func TestDemanded(t *testing.T) {
	s := settings(t.TempDir(), "well")
	s.FP16 = backends.On
	d := newDevice("1.0")
	paths := d.Paths()
	if err := keep(s.File, record{key: keyOf(d.Info(), paths[1]), verdict: Failed,
		reason: "bad\tnumbers\n" + strings.Repeat("x", 1000), at: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(context.Background(), d, s); err == nil || !strings.Contains(err.Error(), "bad numbers x") ||
		len(err.Error()) > 800 {
		t.Errorf("%v", err)
	}
	s = settings(t.TempDir(), "well")
	s.FP8 = true
	if err := keep(s.File, record{key: keyOf(d.Info(), paths[3]), verdict: Failed, reason: "bad bytes",
		at: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(context.Background(), d, s); err == nil ||
		!strings.Contains(err.Error(), "--fp8: the check of bytes failed on this device and driver: bad bytes") {
		t.Errorf("--fp8: %v", err)
	}
}

// A file of garbage has no records, and is replaced.
func TestGarbage(t *testing.T) {
	s := settings(t.TempDir(), "well")
	for _, text := range []string{"\x00\xff\x00", "passed\t\t\t\n", strings.Repeat("passed\tx\ta\tb\tc\td\te\tf\tg\n", 3),
		strings.Repeat("y", recordMost+1)} {
		if err := os.WriteFile(s.File, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if a := apply(t, newDevice("1.0"), s); !a[0].On || !a[0].Fresh {
			t.Errorf("%.20q: %+v", text, a[0])
		}
		if r, err := Records(s.File); len(r) != 2 || err != nil {
			t.Errorf("%.20q: %v, %v", text, r, err)
		}
	}
}

// A path that takes nothing of the trial was not seen to work.
func TestTrial(t *testing.T) {
	names := map[string]bool{}
	for _, c := range trial() {
		if _, err := c.Bare(ref.New().Info().Float); err != nil {
			t.Error(err)
		}
		if names[c.Name] {
			t.Errorf("%s is there twice", c.Name)
		}
		names[c.Name] = true
	}
	if err := Check(newDevice("1.0"), "none", func(string) {}); err == nil || !strings.Contains(err.Error(), "no path") {
		t.Error(err)
	}
}
