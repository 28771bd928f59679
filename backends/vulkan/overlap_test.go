//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// patient says whether a wait on the device ends when it has seen what it waits for, or says that it was in vain.
// Debian 12's lavapipe ends every loop after 65,535 turns, some milliseconds, without a word. A wait lasts as long
// whenever another process takes the core of what is waited for.
func patient(t testing.TB, dev *vulkan.Device) bool {
	t.Helper()
	if dev.Info().Level != "software" {
		return true
	}
	patience.Do(func() {
		dev := open(t, vulkan.Options{FP16: backends.On})
		dev.Ordered()
		if err := dev.SetPath("overlap", true); err != nil {
			t.Fatal(err)
		}
		dev.Lose(true)
		// Every workgroup behind the first waits in vain: few do for the answer.
		s := session(t, dev, func(o *engine.Options) {
			o.DType, o.KV = tensor.F16, tensor.F16
			o.Set = map[string]string{"L": "1", "D": "32", "H": "1", "F": "32", "V": "32"}
		})
		_, err := s.Decode(7)
		patience.last = err != nil && strings.Contains(err.Error(), "waited in vain")
		if !patience.last && (err != nil || os.Getenv("GRETA_REQUIRE_VALIDATION") != "") { // of a driver that is new enough
			t.Fatalf("a wait for what nobody writes did not fail as it should: %v", err)
		}
	})
	return patience.last
}

var patience struct {
	sync.Once
	last bool
}

// ordered makes the device one that starts workgroups in the order of dispatches, with stages that are handed over or
// with barriers, and says why there can be none that are handed over. A test that compares no results need not ask.
func ordered(t testing.TB, dev *vulkan.Device, ahead bool) error {
	t.Helper()
	dev.Ordered()
	err := dev.SetPath("overlap", ahead)
	if !ahead {
		return nil // without the path there is nothing to turn off
	}
	if err == nil && !patient(t, dev) {
		err = errors.Join(errors.New("this driver ends loops, and so waits, before what they wait for is there"),
			dev.SetPath("overlap", false))
	}
	return err
}

// bitsOf gives the bits of a program's result.
func bitsOf(t *testing.T, stream backends.Stream, x backends.Executable, o *backends.Operand) []byte {
	t.Helper()
	b := make([]byte, 4*o.Shape.Elems())
	// What another left must not stand for the result.
	if err := errors.Join(stream.Write(o.Buffer, o.Offset, b), x.Submit(), x.Wait(),
		stream.Read(o.Buffer, o.Offset, b)); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestHanded: a step whose stages are handed over gives the bits of one with barriers, run after run.
// In one piece: one program, run in each way.
func TestHanded(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	if err := ordered(t, dev, true); err != nil {
		t.Skip(err)
	}
	stream, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dtype, kv tensor.Type
		context   int
		mix       string // instead of one type
	}{
		{tensor.Q4_0, tensor.F16, 64, ""}, {tensor.Q8_0, tensor.F16, 600, ""}, {tensor.Q4_K, tensor.BF16, 600, ""},
		{tensor.Q6_K, tensor.F32, 64, ""},
		{tensor.Q5_1, tensor.F16, 64, ""}, {tensor.Q5_K, tensor.F16, 64, ""}, {tensor.F16, tensor.F16, 600, ""},
		{tensor.BF16, tensor.BF16, 64, ""},
		{tensor.Q4_K, tensor.F16, 64, "q4_k_m"},
	} {
		t.Run(fmt.Sprintf("%s kv %s context %d", cmp.Or(c.mix, c.dtype.String()), c.kv, c.context), func(t *testing.T) {
			var handed [2]int
			for i, layers := range []string{"3", "4"} {
				s := session(t, dev, func(o *engine.Options) {
					o.DType, o.KV, o.Context = c.dtype, c.kv, c.context
					if c.mix != "" && !o.SetType(c.mix) {
						t.Fatalf("no mix %s", c.mix)
					}
					o.Set = map[string]string{"L": layers, "D": "256", "H": "4", "G": "2", "F": "768", "V": "500"}
				})
				for range c.context / 20 { // behind 256 positions attention has parts, which are handed over too
					if _, err := s.Prefill(context.Background(), []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := s.Decode(7); err != nil { // writes what the step reads
					t.Fatal(err)
				}
				st, err := s.Step(1, 1)
				if err != nil {
					t.Fatal(err)
				}
				var x [2]backends.Executable
				for n := range x {
					if err := dev.SetPath("overlap", n == 1); err != nil {
						t.Fatal(err)
					}
					if x[n], err = dev.Capture(st.Program); err != nil {
						t.Fatal(err)
					}
					defer x[n].Close()
				}
				handed[i] = vulkan.Handed(x[1])
				if n := vulkan.Handed(x[0]); n > 0 {
					t.Errorf("%d dispatches are handed over where nothing is to be", n)
				}
				o := &st.Program.Launches[len(st.Program.Launches)-1].Out[0]
				want := bitsOf(t, stream, x[0], o)
				for n := range 10 {
					if !bytes.Equal(bitsOf(t, stream, x[1], o), want) {
						t.Fatalf("%s layers, run %d gives other bits than with barriers", layers, n)
					}
				}
				if _, err := x[1].(interface {
					Profile() ([]time.Duration, error)
				}).Profile(); err != nil {
					t.Error(err)
				}
			}
			want := 7
			if c.kv == tensor.F32 || dev.LeastSubgroup() < 8 { // attention and what reads it wait at barriers
				want = 5
			}
			if c.dtype.IsBlock() && !slices.ContainsFunc(dev.Paths(), func(p backends.Path) bool {
				return p.Name == "int8dot"
			}) {
				want = 0
			}
			if n := handed[1] - handed[0]; n != want {
				t.Errorf("%d dispatches of a block are handed over, not %d", n, want)
			}
		})
	}
}

// TestTryAhead: what a health check asks of the path passes; and where a wait has no end, the check and every step that
// is handed over fail, and say so.
func TestTryAhead(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	if err := ordered(t, dev, true); err != nil {
		t.Skip(err)
	}
	try := dev.Paths()[slices.IndexFunc(dev.Paths(), func(p backends.Path) bool { return p.Name == "overlap" })].Try
	if err := try(); err != nil {
		t.Error(err)
	}
	dev.Lose(true)
	defer dev.Lose(false)
	for range 2 {
		if err := try(); err == nil || !strings.Contains(err.Error(), "waited in vain") {
			t.Errorf("waits for what nobody writes: %v", err)
		}
	}
	dev.Lose(false)
	if err := try(); err != nil {
		t.Error("afterwards:", err)
	}
}

// TestHandedInput: in what the host gave every word is a number, also the one that says of a result that it is not
// there yet.
func TestHandedInput(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	if err := ordered(t, dev, true); err != nil {
		t.Skip(err)
	}
	file, err := models.Builtin("llama2_block")
	if err != nil {
		t.Fatal(err)
	}
	for _, dtype := range []tensor.Type{tensor.Q8_0, tensor.F16} {
		t.Run(dtype.String(), func(t *testing.T) {
			var got [2][]float32
			for n := range got {
				if err := dev.SetPath("overlap", n == 1); err != nil {
					t.Fatal(err)
				}
				s := session(t, dev, func(o *engine.Options) {
					o.Model, o.DType = file, dtype
					o.Set = map[string]string{"D": "256", "H": "4", "G": "2", "F": "768"}
				})
				x := engine.Activations(256, 3)
				for i := range 4 {
					x[64*i+5] = math.Float32frombits(0x80808080)
				}
				for range 3 {
					out, err := s.Block(x)
					if err != nil {
						t.Fatal(err)
					}
					got[n] = append(got[n], out...)
				}
				st, err := s.Step(1, 1)
				if err != nil {
					t.Fatal(err)
				}
				x1, err := dev.Capture(st.Program)
				if err != nil {
					t.Fatal(err)
				}
				if handed := vulkan.Handed(x1) > 0; handed != (n == 1) {
					t.Errorf("handed over: %v", handed)
				}
				if err := x1.Close(); err != nil {
					t.Error(err)
				}
			}
			if !slices.Equal(got[0], got[1]) {
				t.Error("other bits than with barriers")
			}
		})
	}
}

// TestHandedOver: what waits for words follows without a barrier, also where both use the same scratch memory; two that
// share scratch memory and do not wait for each other have a barrier between them.
func TestHandedOver(t *testing.T) {
	type list = []vulkan.Touches
	const scratch = 9
	for _, c := range []struct {
		name string
		list list
		want []bool
	}{
		{"a chain", list{{nil, []int{0}}, {[]int{0}, []int{1}}, {[]int{1}, []int{2}}}, []bool{false, true, true}},
		{"scratch of a chain", list{{nil, []int{0}}, {[]int{0}, []int{1, scratch}}, {[]int{1}, []int{2}},
			{[]int{2}, []int{3, scratch}}}, []bool{false, true, true, true}},
		{"scratch of two", list{{nil, []int{0, 1}}, {[]int{0}, []int{2, scratch}}, {[]int{1}, []int{3, scratch}}},
			[]bool{false, true, false}},
		{"behind that barrier", list{{nil, []int{0, 1}}, {[]int{0}, []int{2, scratch}}, {[]int{1}, []int{3, scratch}},
			{[]int{3}, []int{4, scratch}}}, []bool{false, true, false, true}},
	} {
		if got := vulkan.HandedOver(c.list); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestOneHanded: a launch alone leaves its results in the arena, where who launched it reads them, although its own
// stages could hand over.
func TestOneHanded(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	dev.Ordered()
	if err := dev.SetPath("overlap", true); err != nil {
		t.Skip("no stages are handed over: ", err)
	}
	n := 0
	for _, c := range optest.Cases() {
		if optest.Known("vulkan", c.Name) {
			continue
		}
		if strings.HasPrefix(c.Name, "topk/") {
			n++
			if err := optest.Check(dev, c); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	if n == 0 {
		t.Error("the table has no case of topk")
	}
}
