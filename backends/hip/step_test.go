package hip

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
)

// fns lists what was called since the last time.
func (f *fake) fns() []fn {
	var all []fn
	for _, c := range f.calls {
		all = append(all, c.f)
	}
	f.calls = nil
	return all
}

// Step memory is written and read without calls of the driver, and is right
// whichever way launches run.
// In one piece: one program, run in each way.
func TestStepMemory(t *testing.T) {
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
	in, out := l.In[0].Buffer.(*buffer), l.Out[0].Buffer.(*buffer)
	if in.use != backends.Step || out.use != backends.Step {
		t.Fatal("the scene has no Step memory")
	}
	onDevice := func(b *buffer, n int) []byte { return mem(b.at, n) }
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	e, err := dev.Capture(&backends.Program{Name: "p", Launches: []backends.Launch{*l}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()

	// Captured: what was written is there when the program runs, results come with its end.
	f.fns()
	if err := s.Write(in, 8, []byte("abcd")); err != nil {
		t.Fatal(err)
	}
	if calls := f.fns(); len(calls) > 0 {
		t.Errorf("a write calls %v", calls)
	}
	copy(onDevice(out, 4), "RES1") // what the kernel would have written
	if err := errors.Join(e.Submit(), e.Wait()); err != nil {
		t.Fatal(err)
	}
	f.fns()
	if err := s.Read(out, 0, got); err != nil || string(got) != "RES1" || len(f.fns()) > 0 {
		t.Errorf("the result is %q, %v", got, err)
	}
	if string(onDevice(in, 12)[8:]) != "abcd" {
		t.Errorf("the device has %q", onDevice(in, 12))
	}

	// A write while the program runs waits for its end.
	if err := e.Submit(); err != nil {
		t.Fatal(err)
	}
	f.fns()
	if err := s.Write(in, 0, []byte("efgh")); err != nil {
		t.Fatal(err)
	}
	if calls := f.fns(); !slices.Contains(calls, fnStreamWait) {
		t.Errorf("a write to memory in use calls %v", calls)
	}
	if err := e.Wait(); err != nil {
		t.Fatal(err)
	}

	// A launch on its own sees what was written, and its result is read from the device.
	if err := s.Launch(l); err != nil {
		t.Fatal(err)
	}
	if string(onDevice(in, 4)) != "efgh" {
		t.Errorf("the device has %q", onDevice(in, 4))
	}
	copy(onDevice(out, 4), "RES2")
	if err := s.Read(out, 0, got); err != nil || string(got) != "RES2" {
		t.Errorf("the result is %q, %v", got, err)
	}
	// Written behind it: both sides have it, and what the device alone had stays.
	if err := s.Write(out, 4, []byte("ijkl")); err != nil {
		t.Fatal(err)
	}
	if string(onDevice(out, 8)) != "RES2ijkl" {
		t.Errorf("the device has %q", onDevice(out, 8))
	}
	if err := errors.Join(e.Submit(), e.Wait()); err != nil {
		t.Fatal(err)
	}
	all := make([]byte, 8)
	if err := s.Read(out, 0, all); err != nil || string(all) != "RES2ijkl" {
		t.Errorf("the result is %q, %v", all, err)
	}
	// Profile runs launches on their own, too.
	if err := s.Write(in, 0, []byte("mnop")); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Profile(); err != nil {
		t.Fatal(err)
	}
	copy(onDevice(out, 4), "RES3")
	if err := s.Read(out, 0, got); err != nil || string(got) != "RES3" ||
		!bytes.HasPrefix(onDevice(in, 4), []byte("mnop")) {
		t.Errorf("the result is %q, the device has %q, %v", got, onDevice(in, 4), err)
	}
}

func TestStepRanges(t *testing.T) {
	b, other := &buffer{size: 4096}, &buffer{size: 4096}
	at := func(b *buffer, from, rows, row, stride int) backends.Operand {
		return backends.Operand{Buffer: b, Offset: from, Stride: stride, Type: tensor.U8, Shape: tensor.Shape{rows, row}}
	}
	launches := []backends.Launch{
		{In: []backends.Operand{at(b, 0, 1, 4, 4), at(other, 0, 1, 64, 64), {}},
			Out: []backends.Operand{at(b, 1024, 2, 64, 64)}},
		{In: []backends.Operand{at(b, 1024, 1, 64, 64), at(b, 64, 1, 4, 4), at(b, 1100, 1, 100, 100)},
			Out: []backends.Operand{at(b, 2048, 2, 8, 100), at(b, 1152, 1, 8, 8)}},
	}
	in, out := stepRanges(b, launches)
	// Tokens and positions are one copy; what was written before is not read of the
	// host, but a part of it that was not; rows with gaps are read first.
	if want := []stepRange{{b, 0, 68}, {b, 1100, 1200}, {b, 2048, 2156}}; !slices.Equal(in, want) {
		t.Errorf("in: %v, want %v", in, want)
	}
	if want := []stepRange{{b, 1024, 1160}, {b, 2048, 2156}}; !slices.Equal(out, want) {
		t.Errorf("out: %v, want %v", out, want)
	}
	// The tokens of eight steps and their logits come back at once, and what lies between them as it was.
	launches = nil
	for i := range 8 {
		launches = append(launches, backends.Launch{In: []backends.Operand{at(b, 64*i, 1, 4, 4)},
			Out: []backends.Operand{at(b, 1024+64*i, 1, 4, 4), at(b, 1536+64*i, 1, 4, 4)}})
	}
	in, out = stepRanges(b, launches)
	if want := []stepRange{{b, 0, 452}, {b, 1028, 1984}}; !slices.Equal(in, want) || !canMove(in) {
		t.Errorf("in of eight steps: %v, want %v", in, want)
	}
	if want := []stepRange{{b, 1024, 1988}}; !slices.Equal(out, want) || !canMove(out) {
		t.Errorf("out of eight steps: %v, want %v", out, want)
	}
}

// A program may be submitted behind another one: each is waited for by itself.
func TestQueued(t *testing.T) {
	f := newFake(amd)
	dev, err := openFake(f, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	var programs []backends.Executable
	for range 2 {
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
		programs = append(programs, e)
	}
	if !dev.Info().Queued {
		t.Error("the device does not say that programs can be queued")
	}
	a, b := programs[0], programs[1]
	for _, c := range []struct {
		name string
		do   func() error
		want []fn
	}{
		{"a", a.Submit, []fn{fnGraphLaunch}}, {"b behind a", b.Submit, []fn{fnEventRecord, fnGraphLaunch}},
		{"end of a", a.Wait, []fn{fnEventWait}},
		{"a behind b", a.Submit, []fn{fnEventRecord, fnGraphLaunch}}, {"end of b", b.Wait, []fn{fnEventWait}},
		{"end of a", a.Wait, []fn{fnStreamWait}},
		{"b alone", b.Submit, []fn{fnGraphLaunch}}, {"end of b", b.Wait, []fn{fnStreamWait}},
	} {
		f.fns()
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if got := slices.DeleteFunc(f.fns(), func(n fn) bool { return n == fnSetDevice }); !slices.Equal(got, c.want) {
			t.Errorf("%s: calls %v, want %v", c.name, got, c.want)
		}
	}
}
