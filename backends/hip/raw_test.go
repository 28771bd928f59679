package hip

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// TestRaw goes through all of a device's lower side on a fake provider: kernels are
// compiled once, arguments arrive as they were given, nothing is left over, and an
// error of any call is told.
// In one piece, as one device lives from its first call to its last.
func TestRaw(t *testing.T) {
	source := "#include \"prelude.h\"\nG_KERNEL k(u32 *p, u32 n, float f, double d) {}\n"
	life := func(f *fake, dir string) (err error) {
		dev, err := openFake(f, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dev.Close()) }()
		r, err := dev.Raw()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		if _, err := r.Limits(); err != nil {
			return err
		}
		k, err := r.Compile("test.hip", source, "k", "BLOCK=64")
		if err != nil {
			return err
		}
		if _, err := r.Compile("test.hip", source, "k", "BLOCK=64"); err != nil {
			return err
		}
		m, err := r.Alloc(64, OnDevice)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Free()) }()
		p, err := r.Alloc(64, Pinned)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Free()) }()
		want := []byte("sixty-four bytes go to the device and come back from it, as told")
		copy(p.Host(), want)
		if err := errors.Join(r.StartCopy(m, p, 0, 64), m.Write(0, want)); err != nil {
			return err
		}
		got := make([]byte, 64)
		if err := m.Read(0, got); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%q came back", got)
		}
		l, err := r.Bind(k, 3, 64, 16, m, uint32(7), float32(1), 2.0)
		if err != nil {
			return err
		}
		defer l.Free()
		device, host, err := r.Time(func() error { return r.Start(l) })
		if err != nil {
			return err
		}
		if device != 0.25e-3 || host <= 0 {
			t.Errorf("the device took %v s, the host %v s", device, host)
		}
		g, err := r.Capture(func() error { return r.Start(l) })
		if err != nil {
			return err
		}
		return errors.Join(g.Start(), r.Wait(), g.Close())
	}
	for _, who := range []vendor{amd, nvidia} {
		f := newFake(who)
		if err := life(f, t.TempDir()); err != nil {
			t.Fatalf("%s: %v", who, err)
		}
		if left := f.leaks(); len(left) > 0 {
			t.Errorf("%s: left over: %v", who, left)
		}
		compiled := 0
		for _, c := range f.calls {
			switch c.f {
			case fnRtcCompile:
				compiled++
			case fnLaunch:
				if !slices.Equal(c.args[1:8], []uintptr{3, 1, 1, 64, 1, 1, 16}) {
					t.Errorf("%s: launched as %v", who, c.args)
				}
			}
		}
		if compiled != 1 {
			t.Errorf("%s: compiled %d times", who, compiled)
		}
		for i := range f.calls {
			failing := newFake(who)
			failing.failAt = i
			err := life(failing, t.TempDir())
			if c := f.calls[i].f; err == nil && (c == fnAttribute || c == fnSetDevice) {
				continue // an attribute is unknown then; a device that is not current shows at the next call
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%s: call %d (%s) fails, and the error is %v", who, i, who.symbol(f.calls[i].f), err)
			}
		}
	}
}

// TestRawRefuses what makes no sense, before any driver sees it.
func TestRawRefuses(t *testing.T) {
	dev, err := openFake(newFake(nvidia), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	r, err := dev.Raw()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	k, err := r.Compile("test.hip", "x", "k")
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Alloc(16, OnDevice)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	for name, err := range map[string]error{
		"no blocks":        second(r.Bind(k, 0, 64, 0)),
		"a wrong argument": second(r.Bind(k, 1, 64, 0, "text")),
		"no memory":        second(r.Alloc(0, OnDevice)),
		"beyond the end":   m.Write(8, make([]byte, 9)),
		"before the start": m.Read(-1, make([]byte, 1)),
		"device to device": r.StartCopy(m, m, 0, 8),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	var none *NoLibrary
	if _, err := r.BLAS(); !errors.As(err, &none) {
		t.Skip("there is a library of products here: ", err)
	}
}

func second[T any](_ T, err error) error { return err }
