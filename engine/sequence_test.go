package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// chaining is a device that takes programs of several steps, and one behind another.
type chaining struct {
	backends.Device
	launches int // that a program may have
	chained  bool
	fail     int // of the submissions, the one whose wait fails; 0: none
	begun    int
	picks    int // that it chooses
	broken   int // of the reads of four bytes, the one that gives a NaN; 0: none
	reads    int
	full     bool // no program of several steps has room
}

func (d *chaining) Info() backends.Info {
	i := d.Device.Info()
	i.Queued, i.Chain, i.Picks = true, d.launches, d.picks
	return i
}

func (d *chaining) Stream() (backends.Stream, error) {
	s, err := d.Device.Stream()
	return breaking{s, d}, err
}

type breaking struct {
	backends.Stream
	dev *chaining
}

func (s breaking) Read(src backends.Buffer, offset int, dst []byte) error {
	err := s.Stream.Read(src, offset, dst)
	if len(dst) == 4 {
		if s.dev.reads++; s.dev.reads == s.dev.broken {
			tensor.View[uint32](dst)[0] = 0x7fc00000
		}
	}
	return err
}

func (d *chaining) Capture(p *backends.Program) (backends.Executable, error) {
	if d.full && p.Steps > 1 {
		return nil, errors.New("there is no room")
	}
	d.chained = d.chained || p.Steps > 1
	e, err := d.Device.Capture(p)
	return &failing{Executable: e, dev: d}, err
}

type failing struct {
	backends.Executable
	dev   *chaining
	fails bool
}

func (e *failing) Submit() error {
	e.dev.begun++
	e.fails = e.dev.begun == e.dev.fail
	return e.Executable.Submit()
}

func (e *failing) Wait() error {
	if err := e.Executable.Wait(); err != nil || !e.fails {
		return err
	}
	return errors.New("it broke")
}

// TestSequence: steps that are all known give what single calls give, whether the device
// takes them one by one, queued or in chains; errors say where they are, and the session
// stays behind what was told.
// In one piece: one session goes through all.
func TestSequence(t *testing.T) {
	ctx := context.Background()
	block, err := models.Builtin("llama2_block")
	if err != nil {
		t.Fatal(err)
	}
	const n, most = 23, 32
	x := Activations(n*64, 3)
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i * 7 % 11)
	}
	plain := newCPU(t, 1)
	for _, kind := range []struct {
		name string
		dev  backends.Device
	}{{"single", plain}, {"queued", &chaining{Device: plain}}, {"chains", &chaining{Device: plain, launches: 120}},
		{"long", &chaining{Device: plain, launches: 10000}}} {
		for _, of := range []struct {
			name string
			opt  Options
		}{{"block", Options{Model: block, Set: map[string]string{"D": "64", "H": "4", "F": "96"}}},
			{"model", Options{Model: small(t)}}} {
			t.Run(kind.name+"/"+of.name, func(t *testing.T) {
				opt := of.opt
				opt.Device, opt.Context, opt.DType = kind.dev, most, tensor.F16
				e, err := New(ctx, opt)
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				s := newSession(t, e)
				all := func(ctx context.Context, from, to int, row func(int, []float32) error) error {
					if e.IsBlock() {
						return s.BlockAll(ctx, x[from*64:to*64], row)
					}
					return s.DecodeAll(ctx, tokens[from:to], row)
				}
				var want [][]float32
				for i := range n {
					var out []float32
					if e.IsBlock() {
						out, err = s.Block(x[i*64 : (i+1)*64])
					} else {
						out, err = s.Decode(tokens[i])
					}
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, slices.Clone(out))
				}
				for range 2 {
					s.Reset()
					for _, part := range [][2]int{{0, 1}, {1, n}} {
						told := part[0]
						err := all(ctx, part[0], part[1], func(i int, out []float32) error {
							if part[0]+i != told || !slices.Equal(out, want[told]) {
								t.Errorf("step %d, told of as %d of %v, gives something else than alone", told, i, part)
							}
							told++
							return nil
						})
						if err != nil || told != part[1] || s.Pos() != part[1] {
							t.Fatalf("steps %v: %d were told of, position %d, %v", part, told, s.Pos(), err)
						}
					}
				}

				// what cannot be
				var long *TooLong
				if err := all(ctx, 0, n, nil); !errors.As(err, &long) || s.Pos() != n {
					t.Errorf("%d steps behind %d of %d: %v, position %d", n, n, most, err, s.Pos())
				}
				if err := all(ctx, 0, 0, nil); err == nil {
					t.Error("no steps at all are computed")
				}
				// an end in the middle, from outside and from row
				for _, stop := range []int{0, 1, 9, n - 1} {
					s.Reset()
					inner, cancel := context.WithCancel(ctx)
					oops, told := errors.New("oops"), 0
					err := all(inner, 0, n, func(i int, _ []float32) error {
						if told++; i == stop {
							return oops
						}
						return nil
					})
					if !errors.Is(err, oops) || told != stop+1 || s.Pos() != told {
						t.Errorf("row refuses step %d: %v, %d were told of, position %d", stop, err, told, s.Pos())
					}
					s.Reset()
					told = 0
					err = all(inner, 0, n, func(i int, _ []float32) error {
						if told++; i == stop {
							cancel()
						}
						return nil
					})
					cancel()
					if told < n && !errors.Is(err, context.Canceled) || s.Pos() != told || told <= stop {
						t.Errorf("cancelled at step %d: %v, %d were told of, position %d", stop, err, told, s.Pos())
					}
				}
				if dev, ok := kind.dev.(*chaining); ok {
					if dev.chained != (kind.name == "chains") {
						t.Errorf("programs of several steps: %v", dev.chained)
					}
					s.Reset()
					dev.fail = dev.begun + 2
					told := 0
					err := all(ctx, 0, n, func(int, []float32) error { told++; return nil })
					chain, _ := s.chain()
					if chain > n {
						chain = 0
					}
					where := "step 2 of 23: it broke"
					if chain > 0 {
						where = "of 23: it broke"
					}
					if err == nil || !strings.Contains(err.Error(), where) || told != max(chain, 1) || s.Pos() != told {
						t.Errorf("the second submission fails: %v, %d were told of, position %d", err, told, s.Pos())
					}
				}
			})
		}
	}
}
