package engine

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/greta-project/greta/backends"
)

// cardBuffer is memory that the host cannot reach.
type cardBuffer int

func (b cardBuffer) Size() int   { return int(b) }
func (b cardBuffer) Free() error { return nil }

// onCard gives an engine whose weights seem to lie in a card's memory of so many bytes, and what they take.
func onCard(t *testing.T, bytes int) (e *Engine, weights int64) {
	e = newEngine(t, Options{Model: small(t), Device: newCPU(t, 1), Context: 64})
	e.dev = tightDevice{e.dev, bytes}
	kept := e.weights
	t.Cleanup(func() { e.weights = kept })
	e.weights = map[weightKey]*loaded{}
	for k, l := range kept {
		e.weights[k] = &loaded{cardBuffer(l.buffer.Size()), made}
		weights += int64(l.buffer.Size())
	}
	return e, weights
}

// TestRoomOnCard: caches take of a card what weights, steps, others and a margin leave, and no more than all contexts.
func TestRoomOnCard(t *testing.T) {
	const GB = 1 << 30
	memory := func(e *Engine, o SchedulerOptions) int64 {
		t.Helper()
		if err := o.fill(e); err != nil {
			t.Fatal(err)
		}
		return o.Memory
	}
	e, weights := onCard(t, 80*GB)
	contexts := 16 * 64 * int64(e.pageBytes(1))
	if got := memory(e, SchedulerOptions{Sequences: 16}); got != contexts {
		t.Errorf("16 contexts of %d bytes fit: the caches have %d", contexts, got)
	}
	count := len(e.weights)
	room := func(o SchedulerOptions) int64 {
		t.Helper()
		n, err := e.room(&o)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	few := SchedulerOptions{Sequences: 4, Rows: 16, Page: 32}
	_, steps, err := e.taken(&few)
	if err != nil || steps <= 0 {
		t.Fatal(steps, err)
	}
	if len(e.weights) != count {
		t.Errorf("counting left %d weights, there were %d", len(e.weights), count)
	}
	left := 80*GB - weights - steps
	has := float64(80 * GB)
	spare := int64(0.08 * has)
	if got := room(few); got != left-spare {
		t.Errorf("%d bytes, wanted are %d", got, left-spare)
	}
	few.Beside = 20 * GB
	if got := room(few); got != left-20*GB-spare {
		t.Errorf("beside 20 GB: %d bytes, wanted are %d", got, left-20*GB-spare)
	}
	few.Share = 2
	if got, want := room(few), (left-20*GB)/2-spare; got != want {
		t.Errorf("shared by two: %d bytes, wanted are %d", got, want)
	}
	few.Beside, few.Share = left-GB, 0 // the margin is half of what is left at most
	if got := room(few); got != GB/2 {
		t.Errorf("of 1 GB left: %d bytes", got)
	}
	few.Beside = left
	var none *OutOfMemory
	if _, err := e.room(&few); !errors.As(err, &none) || none.Need < none.Have {
		t.Errorf("nothing is left: %v", err)
	}
	few.Rows, few.Beside = 512, 0
	if _, more, err := e.taken(&few); err != nil || more <= steps {
		t.Errorf("steps of 512 rows take %d bytes, of 16 %d; %v", more, steps, err)
	}
}

// TestRoomOfHost: of memory that the host has too, caches take half of what is left at most.
func TestRoomOfHost(t *testing.T) {
	e := newEngine(t, Options{Model: small(t), Device: newCPU(t, 1), Context: 64})
	e.dev = tightDevice{e.dev, 100000}
	o := SchedulerOptions{Sequences: 1000}
	if err := o.fill(e); err != nil {
		t.Fatal(err)
	}
	if want := (100000 - int64(e.bytes)) / 2; o.Memory != want {
		t.Errorf("%d bytes, wanted are %d", o.Memory, want)
	}
}

// fullDevice gives no memory while it is full.
type fullDevice struct {
	backends.Device
	full *atomic.Bool
}

func (d fullDevice) Alloc(bytes int, use backends.Use) (backends.Buffer, error) {
	if d.full.Load() {
		return nil, &OutOfMemory{Need: int64(bytes), What: use.String()}
	}
	return d.Device.Alloc(bytes, use)
}

// TestOutOfMemoryLater: where a step finds no memory, as another program has it, its requests say so, and those that
// come when there is some again are answered.
func TestOutOfMemoryLater(t *testing.T) {
	dev := fullDevice{newCPU(t, 1), new(atomic.Bool)}
	s := newScheduler(t, newEngine(t, Options{Model: small(t), Device: dev, Context: 64}), SchedulerOptions{Tokens: 128})
	ask := func() ([][]int32, error) {
		h, err := s.Add(t.Context(), Request{Prompt: []int32{1, 2, 3, 4, 5, 6, 7}, Max: 3})
		if err != nil {
			t.Fatal(err)
		}
		return read(h)
	}
	dev.full.Store(true)
	var none *OutOfMemory
	if _, err := ask(); !errors.As(err, &none) {
		t.Errorf("the device is full: %v", err)
	}
	freed(t, s)
	dev.full.Store(false)
	if got, err := ask(); err != nil || len(got[0]) != 3 {
		t.Errorf("there is memory again: %v, %v", got, err)
	}
}
