package hip

import (
	"errors"
	"slices"
	"testing"

	"github.com/greta-project/greta/backends"
)

// mute is a provider that, once on, takes calls without a note of them: what
// is left is the work of this package.
type mute struct {
	*fake
	on bool
}

func (m *mute) invoke(f fn, a []uintptr) uintptr {
	if m.on {
		return 0
	}
	return m.fake.invoke(f, a)
}

// token gives what a decoded token asks of the device: tokens and positions are
// written, a captured program of many launches runs, its result is read.
func token(t testing.TB, f *fake) (m *mute, step func() error, end func()) {
	t.Helper()
	m = &mute{fake: f}
	dev, err := openDevice(&driver{m}, Found{Arch: "gfx942"}, Options{Cache: &Cache{Dir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	l, free, err := scene(dev, "silu/odd")
	if err != nil {
		t.Fatal(err)
	}
	e, err := dev.Capture(&backends.Program{Name: "p", Launches: slices.Repeat([]backends.Launch{*l}, 300)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, l.Out[0].Buffer.Size())
	step = func() error {
		return errors.Join(s.Write(l.In[0].Buffer, 0, out[:4]), s.Write(l.In[0].Buffer, 64, out[:4]),
			e.Submit(), e.Wait(), s.Read(l.Out[0].Buffer, 0, out))
	}
	return m, step, func() {
		m.on = false
		if err := errors.Join(e.Close(), free(), dev.Close()); err != nil {
			t.Error(err)
		}
		if l := f.leaks(); len(l) > 0 {
			t.Errorf("%v are left", l)
		}
	}
}

// A decoded token allocates nothing, however many launches it has.
func TestTokenAllocatesNothing(t *testing.T) {
	for _, who := range []vendor{amd, nvidia} {
		m, step, end := token(t, newFake(who))
		m.on = true
		if n := testing.AllocsPerRun(50, func() {
			if err := step(); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("%s: a token allocates %g times", who, n)
		}
		end()
	}
}

// BenchmarkToken is the work of this package for a token, without the driver's.
func BenchmarkToken(b *testing.B) {
	m, step, end := token(b, newFake(nvidia))
	defer end()
	m.on = true
	b.ReportAllocs()
	for b.Loop() {
		if err := step(); err != nil {
			b.Fatal(err)
		}
	}
}
