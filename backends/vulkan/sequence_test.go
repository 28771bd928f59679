//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// TestSequence: the steps of a sequence that is known, several of them in one submission, give to the bit what single
// steps give, in memory with one side and with two, with stages that are handed over and with
// barriers; in brief only Llama's, each type once a way, of narrow blocks where not every case is asked for.
func TestSequence(t *testing.T) {
	sizes := func(model string) map[string]string {
		set := map[string]string{"D": "256", "H": "4", "F": "768"}
		if model == "mixtral_block" {
			set["G"] = "2"
		}
		return set
	}
	for _, c := range []struct {
		staged bool
		half   backends.Choice
	}{{false, backends.Off}, {false, backends.On}, {true, backends.On}} {
		dev := open(t, vulkan.Options{FP16: c.half})
		dev.Stage(c.staged)
		if err := ordered(t, dev, c.half == backends.On); err != nil {
			t.Log(err)
		}
		narrow := taste(dev, testfiles.Exhaustive())
		for _, name := range []string{"llama2_block", "phi3_block", "gemma2_block", "gpt_neox_block", "mixtral_block"} {
			for _, dtype := range []tensor.Type{tensor.F16, tensor.Q4_0} {
				if brief(dev) && (name != "llama2_block" || (dtype == tensor.Q4_0) != (c.half == backends.On)) {
					continue
				}
				t.Run(fmt.Sprint(name, "/", dtype, "/half ", c.half, "/staged ", c.staged), func(t *testing.T) {
					set := sizes(name)
					if narrow {
						set["D"], set["F"] = "64", "96"
					}
					sequence(t, dev, engine.Options{Set: set, DType: dtype, KV: tensor.F16}, name)
				})
			}
		}
		if sample(dev) && !c.staged {
			continue
		}
		small := map[string]string{"L": "1", "D": "256", "H": "4", "F": "768", "V": "500"}
		if narrow {
			small["D"], small["F"] = "64", "96"
		}
		t.Run(fmt.Sprint("llama2_7b/half ", c.half, "/staged ", c.staged), func(t *testing.T) {
			sequence(t, dev, engine.Options{Set: small, DType: tensor.F16}, "llama2_7b")
		})
	}
}

func sequence(t *testing.T, dev *vulkan.Device, opt engine.Options, model string) {
	file, err := models.Builtin(model)
	if err != nil {
		t.Fatal(err)
	}
	const n = 37
	s := session(t, dev, func(o *engine.Options) {
		*o = opt
		o.Model, o.Device, o.Context, o.Seed = file, dev, 64, 5
	})
	st, err := s.Step(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	var x []float32
	tokens, width := make([]int32, n), 0
	if in := st.Graph.Input("x"); in != nil {
		width = in.Shape[1]
		x = engine.Activations(n*width, 7)
	}
	for i := range tokens {
		tokens[i] = int32(i * 37 % 499)
	}
	var want [][]float32
	for i := range n {
		var out []float32
		if width > 0 {
			out, err = s.Block(x[i*width : (i+1)*width])
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
		differ, before := 0, dev.Submits()
		row := func(i int, out []float32) error {
			if !slices.Equal(out, want[i]) {
				differ++
			}
			return nil
		}
		if width > 0 {
			err = s.BlockAll(context.Background(), x, row)
		} else {
			err = s.DecodeAll(context.Background(), tokens, row)
		}
		if err != nil || differ > 0 || s.Pos() != n {
			t.Errorf("%d of %d steps give something else than alone; position %d, %v", differ, n, s.Pos(), err)
		}
		if got := dev.Submits() - before; got > n/2 {
			t.Errorf("%d steps took %d submissions", n, got)
		}
	}
}

// TestSteps: a program of several steps is that of one several times: as many dispatches are handed
// over in each, and its results are the same bits, also where there is no memory for the results of
// all of them at once, or for any.
// In one piece: one program, run in each way.
func TestSteps(t *testing.T) {
	const n = 5
	for _, dtype := range []tensor.Type{tensor.Q8_0, tensor.F16} {
		t.Run(dtype.String(), func(t *testing.T) {
			dev := open(t, vulkan.Options{FP16: backends.On})
			if err := ordered(t, dev, true); err != nil {
				t.Skip(err)
			}
			stream, err := dev.Stream()
			if err != nil {
				t.Fatal(err)
			}
			s := session(t, dev, func(o *engine.Options) {
				o.DType, o.KV = dtype, tensor.F16
				o.Set = map[string]string{"L": "2", "D": "256", "H": "4", "G": "2", "F": "768", "V": "500"}
			})
			for i := range 20 {
				if _, err := s.Decode(int32(i)); err != nil {
					t.Fatal(err)
				}
			}
			st, err := s.Step(1, 1)
			if err != nil {
				t.Fatal(err)
			}
			one := st.Program
			capture := func(steps int) backends.Executable {
				p := &backends.Program{Name: "steps", Steps: steps}
				for range steps {
					p.Launches = append(p.Launches, one.Launches...)
				}
				x, err := dev.Capture(p)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { x.Close() })
				return x
			}
			o := &one.Launches[len(one.Launches)-1].Out[0]
			run := func(x backends.Executable) []byte {
				b := make([]byte, 4*o.Shape.Elems())
				if err := stream.Write(o.Buffer, o.Offset, b); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := x.Submit(); err != nil {
						t.Fatal(err)
					}
					if err := x.Wait(); err != nil {
						t.Fatal(err)
					}
				}
				if err := stream.Read(o.Buffer, o.Offset, b); err != nil {
					t.Fatal(err)
				}
				return b
			}
			single := capture(1)
			want, handed := run(single), vulkan.Handed(single)
			if handed == 0 {
				t.Fatal("nothing is handed over")
			}
			const room = 1 << 16 // more than a step's results take, less than three times that
			for _, c := range []struct {
				most          uint64
				round, handed int
			}{{64 << 20, n, n * handed}, {room, 0, n * handed}, {4096, 0, 0}} {
				dev.Apart(c.most)
				x := capture(n)
				round := vulkan.Round(x)
				if c.round > 0 && round != c.round || c.most == room && (round < 1 || round >= n) {
					t.Errorf("%d bytes for results: rounds of %d steps", c.most, round)
				}
				if got := vulkan.Handed(x); got != c.handed {
					t.Errorf("%d bytes for results: %d dispatches of %d steps are handed over, not %d", c.most, got, n, c.handed)
				}
				if !bytes.Equal(run(x), want) {
					t.Errorf("%d bytes for results: other bits than one step", c.most)
				}
				times, err := x.Profile()
				if err != nil || len(times) != n*len(one.Launches) {
					t.Errorf("a profile of %d launches: %v", len(times), err)
				}
				e, err := dev.Eager(&backends.Program{Name: "eager", Launches: slices.Repeat(one.Launches, n), Steps: n})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(run(e), want) {
					t.Error("other bits dispatch by dispatch")
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			i := slices.IndexFunc(one.Launches, func(l backends.Launch) bool { return l.Node.Op == ops.RoPEPush })
			pos := &one.Launches[i].In[2]
			if err := stream.Write(pos.Buffer, pos.Offset, []byte{0, 1, 0, 0}); err != nil { // behind the context
				t.Fatal(err)
			}
			x := capture(n)
			if err := x.Submit(); err != nil {
				t.Fatal(err)
			}
			if err := x.Wait(); err == nil || !strings.Contains(err.Error(), "step 1 of 5: ") ||
				!strings.Contains(err.Error(), "index 0 is 256") {
				t.Errorf("a position outside of the caches: %v", err)
			}
			if _, err := dev.Capture(&backends.Program{Name: "odd", Launches: one.Launches[:3], Steps: 2}); err == nil ||
				!strings.Contains(err.Error(), "2 equal steps") {
				t.Errorf("three launches of two steps: %v", err)
			}
		})
	}
}

// TestGreedy: tokens that are chosen on the device, several in a submission, are those of single steps.
func TestGreedy(t *testing.T) {
	whole(t)
	for _, c := range []struct {
		staged, ahead bool
	}{{false, false}, {false, true}, {true, true}} {
		for _, dtype := range []tensor.Type{tensor.F16, tensor.Q4_0} {
			t.Run(fmt.Sprint(dtype, "/ahead ", c.ahead, "/staged ", c.staged), func(t *testing.T) {
				dev := open(t, vulkan.Options{FP16: backends.On})
				dev.Stage(c.staged)
				if err := ordered(t, dev, c.ahead); err != nil {
					t.Skip(err)
				}
				set := map[string]string{"L": "2", "D": "256", "H": "4", "F": "768", "V": "5000"}
				testkit.Multistep(t, dev, dtype, set, false)
			})
		}
	}
}

// watched notes what is captured.
type watched struct {
	backends.Device
	seen func(p *backends.Program, x backends.Executable)
}

func (w watched) Capture(p *backends.Program) (backends.Executable, error) {
	x, err := w.Device.Capture(p)
	if err == nil {
		w.seen(p, x)
	}
	return x, err
}

// TestWholeSteps: of a step of one token that chooses the next, everything behind the embedding
// follows without a barrier, the head and the choice as well, and so it is in each step of a
// program of several; with another embedding than that of the other weights, too.
func TestWholeSteps(t *testing.T) {
	whole(t)
	for _, dtype := range []tensor.Type{tensor.Q4_0, tensor.Q8_0, tensor.Q4_K, tensor.Q6_K, tensor.F16} {
		t.Run(dtype.String(), func(t *testing.T) {
			dev := open(t, vulkan.Options{FP16: backends.On})
			dev.Ordered()
			if err := dev.SetPath("overlap", true); err != nil || dev.LeastSubgroup() < 8 {
				t.Skip("no stages are handed over: ", err)
			}
			counts := map[int][2]int{} // by the number of steps: dispatches, those that are handed over
			w := watched{dev, func(p *backends.Program, x backends.Executable) {
				if p.Launches[0].In[0].Shape.Elems() == 1 && p.Launches[len(p.Launches)-1].Node.Op == ops.TopK {
					counts[max(p.Steps, 1)] = [2]int{vulkan.Dispatches(x), vulkan.Handed(x)}
				}
			}}
			s := session(t, w, func(o *engine.Options) {
				o.DType, o.KV = dtype, tensor.F16
				o.Set = map[string]string{"L": "2", "D": "256", "H": "4", "G": "2", "F": "768", "V": "5000"}
			})
			if err := s.Prepare(0, &engine.Sampling{}, true); err != nil {
				t.Fatal(err)
			}
			const each = 1 + 2*7 + 1 + 2 // the embedding, seven a block, the head, the choice
			if counts[1] != [2]int{each, each - 1} {
				t.Errorf("of %d dispatches %d are handed over, all but one of %d are wanted", counts[1][0], counts[1][1], each)
			}
			for n, c := range counts {
				if c != [2]int{n * each, n * (each - 1)} {
					t.Errorf("%d steps: of %d dispatches %d are handed over", n, c[0], c[1])
				}
			}
		})
	}
}
