package hip

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/greta-project/greta/backends"
)

// TestMoves: where launches overlap, a captured program's step memory is copied by
// launches, and Wait ends with the word that the last one counts up; where that
// stays out, the driver waits.
// In one piece: one program, captured in each way.
func TestMoves(t *testing.T) {
	f := newFake(nvidia)
	dev, err := openFake(f, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	dev.overlaps = true
	l, free, err := scene(dev, "silu/odd")
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	capture := func() (*executable, []fn) {
		f.fns()
		got, err := dev.Capture(&backends.Program{Name: "p", Launches: []backends.Launch{*l}})
		if err != nil {
			t.Fatal(err)
		}
		return got.(*executable), f.fns()
	}
	count := func(calls []fn, of ...fn) (n int) {
		for _, c := range calls {
			if slices.Contains(of, c) {
				n++
			}
		}
		return n
	}
	e, calls := capture()
	if copies, launches := count(calls, fnCopyIn, fnCopyOut), count(calls, fnLaunch, fnLaunchConfig); e.copies == nil ||
		copies != 0 || launches != 3 {
		t.Fatalf("a program of one launch is captured with %d copies and %d launches", copies, launches)
	}
	for run := range uint32(2) {
		if err := e.Submit(); err != nil {
			t.Fatal(err)
		}
		atomic.StoreUint32(e.copies.told, run+1) // as the last launch does
		f.fns()
		if err := e.Wait(); err != nil {
			t.Fatal(err)
		}
		if calls := f.fns(); count(calls, fnStreamWait, fnEventWait) > 0 {
			t.Errorf("run %d: the end was told, yet Wait calls %v", run, calls)
		}
	}
	// What runs outside of captured programs has the device's side as before.
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	in := l.In[0].Buffer.(*buffer)
	if err := errors.Join(s.Write(in, 0, []byte("abcd")), s.Launch(l)); err != nil || string(mem(in.at, 4)) != "abcd" {
		t.Errorf("a launch on its own finds %q, %v", mem(in.at, 4), err)
	}
	// A word that stays out: the driver's answer counts.
	if err := e.Submit(); err != nil {
		t.Fatal(err)
	}
	f.fns()
	if err := e.Wait(); err != nil || count(f.fns(), fnStreamWait) != 1 {
		t.Errorf("the driver was not asked for the end, %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	// Ranges of other kinds are the driver's.
	if canMove([]stepRange{{nil, 0, 6}}) || canMove([]stepRange{{nil, 2, 8}}) ||
		canMove(make([]stepRange, moveRanges+1)) || canMove([]stepRange{{nil, 0, moveMost}, {nil, moveMost, moveMost + 4}}) ||
		!canMove([]stepRange{{nil, 4, 12}}) {
		t.Error("ranges that stepcopy.hip cannot copy are taken, or others are not")
	}
	dev.Serial()
	e, calls = capture()
	if e.copies != nil || count(calls, fnCopyOut) != 1 || count(calls, fnLaunch) != 1 {
		t.Errorf("without overlap calls are %v", calls)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSteps: launches of a program's step begin before the step before has ended only where
// its first launch holds the others back, and none moves from one step to another.
func TestSteps(t *testing.T) {
	dev := onHopper(t)
	defer dev.Close()
	dev.overlaps = true
	capture := func(name string, steps int) *executable {
		t.Helper()
		l, free, err := scene(dev, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { free() })
		if p := l.Kernel.Packing(1); p != nil {
			w := &l.In[1]
			packed, err := dev.Alloc(p.Size(w.Type, w.Shape), backends.Weights)
			if err != nil {
				t.Fatal(err)
			}
			w.Buffer, w.Offset, w.Packing = packed, 0, p.ID
		}
		got, err := dev.Capture(&backends.Program{Name: "p", Launches: []backends.Launch{*l, *l, *l, *l}, Steps: steps})
		if err != nil {
			t.Fatal(err)
		}
		return got.(*executable)
	}
	product := firstCase(t, "linear/f16/1x", "")
	for _, c := range []struct {
		name   string
		steps  int
		levels int
		serial []int
		late   []uint64 // of the launches, where they have it
	}{
		{"silu/odd", 0, 4, nil, nil}, {"silu/odd", 4, 4, []int{1, 2, 3}, nil}, {"silu/odd", 2, 4, []int{2}, nil},
		{product, 1, 4, nil, []uint64{1, 0, 0, 0}}, {product, 2, 4, nil, []uint64{1, 0, 1, 0}},
	} {
		e := capture(c.name, c.steps)
		var late []uint64
		for _, level := range e.levels {
			if d := holder(level); d != nil {
				late = append(late, d.args.values[d.late])
			}
		}
		if len(e.levels) != c.levels || !slices.Equal(e.serial, c.serial) || !slices.Equal(late, c.late) {
			t.Errorf("%s in %d steps: %d levels, %v begin late, %v hold back", c.name, c.steps, len(e.levels), e.serial, late)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	l, free, err := scene(dev, "silu/odd")
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	if _, err := dev.Capture(&backends.Program{Name: "p", Launches: []backends.Launch{*l, *l, *l},
		Steps: 2}); err == nil || !strings.Contains(err.Error(), "3 launches") {
		t.Errorf("three launches in two steps: %v", err)
	}
	// what a kernel found wrong, and where
	dev.status[0], dev.status[1], dev.status[2], dev.status[3] = 1, 2, 5, 70
	if err := dev.fault(&backends.Program{Launches: []backends.Launch{*l, *l, *l, *l}, Steps: 2}); err == nil ||
		!strings.HasPrefix(err.Error(), "step 2 of 2: ") {
		t.Errorf("the error does not say in which step it was: %v", err)
	}
}

// TestWidenSoon: weights are widened beside the launches before only where those
// do not use the same area.
func TestWidenSoon(t *testing.T) {
	dev := &Device{overlaps: true}
	var levels [][]*bound
	var parts []*dispatch
	for _, areas := range [][]int{{2, 2}, {1}, {0}, {1}, {2}, {2, 2}, {1}} {
		b := &bound{}
		for _, a := range areas {
			d := &dispatch{area: a}
			d.ptr(1).u32(0)
			d.soon = 1
			b.parts = append(b.parts, d)
			parts = append(parts, d)
		}
		levels = append(levels, []*bound{b})
	}
	dev.widenSoon(levels)
	var got []uint64
	for _, d := range parts {
		got = append(got, d.args.values[1])
	}
	if want := []uint64{1, 1, 1, 0, 0, 1, 0, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("launches that start at once: %v, want %v", got, want)
	}
}
