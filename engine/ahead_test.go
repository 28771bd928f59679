package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// far is a device whose memory the host reaches by a stream alone. Products want each second byte of their
// weights, and leave the bytes between them as they find them.
type far struct {
	backends.Device
	alive   int
	written map[*farBuffer][]byte
	from    map[*byte]bool // where the host had what was written
	order   []int          // sizes
	before  func(i int) error
	pack    func(rows int) error
}

type farBuffer struct {
	d    *far
	data []byte
}

func (b *farBuffer) Size() int   { return len(b.data) }
func (b *farBuffer) Free() error { b.d.alive--; return nil }

func newFar(t *testing.T) *far {
	return &far{Device: newCPU(t, 2), written: map[*farBuffer][]byte{}, from: map[*byte]bool{},
		before: func(int) error { return nil }, pack: func(int) error { return nil }}
}

func (d *far) Alloc(n int, _ backends.Use) (backends.Buffer, error) {
	d.alive++
	return &farBuffer{d, bytes.Repeat([]byte{0xee}, n)}, nil
}

func (d *far) Stream() (backends.Stream, error) { return &farStream{nil, d}, nil }

type farStream struct {
	backends.Stream
	d *far
}

func (s *farStream) Close() error { return nil }

func (s *farStream) Write(b backends.Buffer, offset int, src []byte) error {
	if err := s.d.before(len(s.d.order)); err != nil {
		return err
	}
	s.d.order = append(s.d.order, len(src))
	s.d.from[unsafe.SliceData(src)] = true
	time.Sleep(time.Millisecond) // what is made ahead is made now
	copy(b.(*farBuffer).data[offset:], src)
	return nil
}

func (d *far) Kernel(n *graph.Node) (backends.Kernel, error) {
	k, err := d.Device.Kernel(n)
	if err != nil || n.Op.Name != "linear" {
		return k, err
	}
	return farKernel{k, d}, nil
}

type farKernel struct {
	backends.Kernel
	d *far
}

func (k farKernel) Packing(arg int) *backends.Packing {
	if arg != 1 {
		return nil
	}
	return &backends.Packing{ID: "thin", Unit: 1, Size: thinSize,
		Pack: func(dst, src []byte, t tensor.Type, shape tensor.Shape, from, to int) error {
			row := t.RowBytes(shape.Last())
			for i := from * row; i < to*row; i++ {
				dst[2*i] = src[i]
			}
			return k.d.pack(shape.Rows())
		}}
}

func thinSize(t tensor.Type, shape tensor.Shape) int { return 2 * t.RowBytes(shape.Elems()) }

// loadsOn makes an engine on a device for a model whose weights are made up, packed, or both.
func loadsOn(ctx context.Context, t *testing.T, d backends.Device) (*Engine, error) {
	t.Helper()
	return New(ctx, Options{Model: small(t), Device: d, Context: 16, DType: tensor.F16})
}

// TestAheadSameBytes: what is made ahead, in memory that was used before, are the bytes that fresh memory would
// hold, in the order of the jobs; and all come out of two pieces of memory.
func TestAheadSameBytes(t *testing.T) {
	d := newFar(t)
	e, err := loadsOn(t.Context(), t, d)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, n := range e.first.Nodes {
		for arg, v := range n.In {
			if v == nil || v.Kind != graph.Weight {
				continue
			}
			k, err := d.Kernel(n)
			if err != nil {
				t.Fatal(err)
			}
			key, p := weightKey{name: v.Name}, k.Packing(arg)
			size := v.Bytes()
			if p != nil {
				key.packing, size = p.ID, p.Size(v.Type, v.Shape)
			}
			want := make([]byte, size)
			if p != nil {
				err = e.pack(t.Context(), want, v, nil, p)
			} else {
				err = e.produce(t.Context(), want, v)
			}
			if got := e.weights[key].buffer.(*farBuffer).data; err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s in layout %q: other bytes than in fresh memory: %v", v.Name, key.packing, err)
			}
			checked++
		}
	}
	if len(d.from) > 2 {
		t.Errorf("%d pieces of the host's memory for %d weights", len(d.from), len(d.order))
	}
	if checked < 10 || slices.IsSorted(d.order) {
		t.Errorf("%d weights of sizes %d: that shows nothing", checked, d.order)
	}
	if times := e.LoadTimes(); times.Loading < times.Copying || times.Making <= 0 || times.Copying <= 0 {
		t.Errorf("%+v", times)
	}
	if err := e.Close(); err != nil || d.alive != 0 {
		t.Errorf("%d buffers are left: %v", d.alive, err)
	}
}

// TestLargeAlone: beside a weight of more than aheadMost nothing else is made, and it gets memory once.
func TestLargeAlone(t *testing.T) {
	defer func(n int) { aheadMost = n }(aheadMost)
	aheadMost = 3000 // wq has 2 KB, wg 3 KB, packed twice as much
	d := newFar(t)
	e, err := loadsOn(t.Context(), t, d)
	if err != nil {
		t.Fatal(err)
	}
	if large := slices.Max(d.order); large <= aheadMost || len(d.from) != 3 {
		t.Errorf("%d pieces of memory for weights of up to %d bytes, of which %d are made beside each other", len(d.from),
			large, aheadMost)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func onlyIf(so bool, err error) error {
	if so {
		return err
	}
	return nil
}

// TestAheadFails: whatever goes wrong while something is made ahead, the error says what, nothing
// goes on behind it and all memory is given back.
func TestAheadFails(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		set  func(d *far, cancel func())
		want error
		text string
	}{
		"writing": {func(d *far, _ func()) {
			d.before = func(i int) error { return onlyIf(i == 3, broken) }
		}, broken, "weight "},
		"packing": {func(d *far, _ func()) {
			d.pack = func(rows int) error { return onlyIf(rows == 48, broken) }
		}, broken, "weight wg: broken"},
		"the end of the context": {func(d *far, cancel func()) {
			d.before = func(i int) error {
				if i == 2 {
					cancel()
				}
				return nil
			}
		}, context.Canceled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFar(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.set(d, cancel)
			before := runtime.NumGoroutine()
			e, err := loadsOn(ctx, t, d)
			if e != nil || !errors.Is(err, c.want) || !strings.HasPrefix(fmt.Sprint(err), c.text) {
				t.Errorf("%v, not %v", err, c.want)
			}
			if d.alive != 0 {
				t.Errorf("%d buffers are left", d.alive)
			}
			for wait := 0; runtime.NumGoroutine() > before && wait < 100; wait++ {
				time.Sleep(time.Millisecond) // who sent its last word may not have ended yet
			}
			if n := runtime.NumGoroutine(); n > before {
				t.Errorf("%d goroutines, %d before", n, before)
			}
		})
	}
}
