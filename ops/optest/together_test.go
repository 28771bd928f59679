package optest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/ops/optest"
)

// spoiled is the reference device whose programs end with a fault.
type spoiled struct {
	backends.Device
	fault func(s backends.Stream, l *backends.Launch, run int) error
}

type spoiledProgram struct {
	backends.Executable
	dev  spoiled
	l    *backends.Launch
	runs int
}

func (d spoiled) Capture(p *backends.Program) (backends.Executable, error) {
	e, err := d.Device.Capture(p)
	return &spoiledProgram{e, d, &p.Launches[len(p.Launches)-1], 0}, err
}

func (e *spoiledProgram) Wait() error {
	if err := e.Executable.Wait(); err != nil {
		return err
	}
	s, err := e.dev.Stream()
	if err != nil {
		return err
	}
	e.runs++
	return e.dev.fault(s, e.l, e.runs)
}

func TestTogether(t *testing.T) {
	var cases []optest.Case
	for _, c := range optest.Cases() {
		if strings.HasPrefix(c.Name, "linear/tiles") || strings.HasPrefix(c.Name, "push/") ||
			strings.HasPrefix(c.Name, "topk/") {
			cases = append(cases, c)
		}
	}
	if len(cases) < 8 {
		t.Fatalf("%d cases", len(cases))
	}
	write := func(run, at int, data ...byte) func(backends.Stream, *backends.Launch, int) error {
		return func(s backends.Stream, l *backends.Launch, n int) error {
			if run >= 0 && n != run {
				return nil
			}
			return s.Write(l.Out[0].Buffer, l.Out[0].Offset+at, data)
		}
	}
	for _, f := range []struct {
		name, want string
		rel        float64
		fault      func(backends.Stream, *backends.Launch, int) error
	}{
		{"none", "", 0, write(0, 0)},
		{"wrong", "relative L2", 0, write(1, 0, 0, 0, 0, 0, 0, 0, 0, 0)},
		{"wrong, but let through", "", 10, write(-1, 0, 0, 0, 0, 0, 0, 0, 0, 0)},
		{"before the result", "overwritten", 0, write(1, -1, 7)},
		{"other bits when replayed", "replay", 10, write(2, 0, 0)},
	} {
		var stages []string
		// The last launch is the one that is spoiled.
		list := append(slices.Clone(cases), optest.Case{Name: "last", Eq: "y: silu(x)", Args: "x float[3, 5]", Rel: 1e-6,
			Abs: 1e-5})
		err := optest.Together(spoiled{ref.New(), f.fault}, list, f.rel, func(s string) { stages = append(stages, s) })
		switch {
		case f.want == "" && err == nil:
			if want := []string{"placing", "compiling", "running", "replaying"}; f.rel == 0 && !slices.Equal(stages, want) {
				t.Errorf("stages %v, want %v", stages, want)
			}
		case err == nil || f.want == "" || !strings.Contains(err.Error(), f.want) || !strings.HasPrefix(err.Error(), "last"):
			t.Errorf("%s: error %v, wanted one with %q", f.name, err, f.want)
		}
	}
}
