//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	openfile "github.com/greta-project/greta/weights/open"
)

// plain is a device that neither queues steps nor chooses tokens.
type plain struct{ backends.Device }

func (p plain) Info() backends.Info {
	i := p.Device.Info()
	i.Queued, i.Picks = false, 0
	return i
}

// session makes a small model of synthetic weights whose vocabulary is large enough
// to be chosen from on the device.
func session(t testing.TB, dev backends.Device, change func(*engine.Options)) *engine.Session {
	t.Helper()
	s, err := model(t, dev, change)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func model(t testing.TB, dev backends.Device, change func(*engine.Options)) (*engine.Session, error) {
	t.Helper()
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	opt := engine.Options{Model: file, Device: dev, Context: 256, DType: tensor.Q8_0, Seed: 5, Chunk: 16,
		Set: map[string]string{"L": "2", "D": "64", "H": "4", "F": "96", "V": "5000"}}
	if change != nil {
		change(&opt)
	}
	e, err := engine.New(context.Background(), opt)
	if err != nil {
		return nil, err
	}
	s, err := e.NewSession()
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	t.Cleanup(func() {
		// A device that was lost says so once more.
		if err := errors.Join(s.Close(), e.Close()); err != nil && !errors.Is(err, vk.VK_ERROR_DEVICE_LOST) {
			t.Error(err)
		}
	})
	return s, nil
}

// Sessions that goroutines use at the same time give what one alone gives.
func TestSessionsAtOnce(t *testing.T) {
	dev, rounds := open(t, vulkan.Options{}), 4
	if brief(dev) {
		rounds = 1
	}
	types, prompts := []tensor.Type{tensor.F16, tensor.Q8_0}, []int{3, 13, 23, 33}
	if taste(dev, testfiles.Exhaustive()) {
		types, prompts = types[1:], []int{3, 13}
	}
	testkit.ConcurrentOf(t, dev, rounds, types, prompts)
}

// TestSchedules: sequences that run beside each other get the tokens that each has alone.
func TestSchedules(t *testing.T) {
	whole(t)
	dev := open(t, vulkan.Options{})
	testkit.Schedules(t, dev, 3, 2e-2)
	testkit.AdaptedSchedules(t, dev, 1, 2e-2)
}

// prompt makes n tokens.
func prompt(n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(i*37%4000 + 3)
	}
	return p
}

// TestFactors: a checkpoint in 8-bit floats with factors beside its matrices computes what
// one in f32 does whose numbers have them applied, prompts and single tokens; of a sample only these.
func TestFactors(t *testing.T) {
	src, err := openfile.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	file, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	dev := open(t, vulkan.Options{FP16: backends.On})
	logits := func(applied bool) (all []float32) {
		s := session(t, dev, func(o *engine.Options) {
			*o = engine.Options{Model: file, Source: testkit.ScaledFP8{Source: src, Applied: applied}, Device: dev, Context: 64,
				KV: tensor.F32}
		})
		rows := 12
		if taste(dev, testfiles.Exhaustive()) { // by the step of single tokens
			rows = 1
		}
		out, err := s.Prefill(context.Background(), prompt(rows))
		for i := range int32(3) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, out...)
			out, err = s.Decode(40 + i)
		}
		scaled := 0
		step, err := s.Step(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range step.Program.Launches {
			if step.Program.Launches[i].Node.Op == ops.LinearScaled {
				scaled++
			}
		}
		if (scaled > 0) == applied {
			t.Errorf("factors applied %v: %d launches apply factors", applied, scaled)
		}
		return all
	}
	if r := relative(logits(false), logits(true)); !(r <= 1e-5) {
		t.Errorf("relative L2 %.2e of factors beside the weights against factors in them", r)
	}
}

// TestQueued: prompts of several chunks, queued behind each other, end in the logits
// of chunks that are waited for one by one, in memory with one side and with two.
func TestQueued(t *testing.T) {
	for name, stage := range map[string]bool{"mapped": false, "staged": true} {
		t.Run(name, func(t *testing.T) {
			dev := open(t, vulkan.Options{})
			dev.Stage(stage)
			queued, single := session(t, dev, nil), session(t, plain{dev}, nil)
			if _, err := queued.Prefill(context.Background(), prompt(1)); err != nil { // waits for uploads too
				t.Fatal(err)
			}
			dev.Flights()
			lengths := []int{1, 16, 32, 33, 100}
			if taste(dev, testfiles.Exhaustive()) {
				lengths = []int{1, 33}
			}
			for _, n := range lengths {
				queued.Reset()
				single.Reset()
				got, err := queued.Prefill(context.Background(), prompt(n))
				if err != nil {
					t.Fatal(err)
				}
				want, err := single.Prefill(context.Background(), prompt(n))
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, want) || queued.Pos() != n {
					t.Errorf("%d tokens: the logits differ, or position %d", n, queued.Pos())
				}
			}
			if most := dev.Flights(); most < 2 {
				t.Errorf("at most %d submission was under way", most)
			}
			// An interrupted prompt leaves a session that works.
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := queued.Prefill(ctx, prompt(100)); !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted: %v", err)
			}
		})
	}
}

// TestDrawn: what the device draws, under masks and with filters too, is what the host draws from a processor's logits.
func TestDrawn(t *testing.T) {
	whole(t)
	host, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	testkit.Drawn(t, host, open(t, vulkan.Options{}), tensor.F16, false)
}

// TestPicks: tokens chosen on the device are those that the host chooses from all
// logits, and far fewer bytes come back.
func TestPicks(t *testing.T) {
	dev := open(t, vulkan.Options{})
	dev.Stage(true)
	large := func(o *engine.Options) { o.Chunk = 64 } // the logits behind other chunks come back too
	here, there := session(t, plain{dev}, large), session(t, dev, large)
	for _, o := range []engine.Sampling{{}, {Temperature: 0.9, TopK: 40, TopP: 0.95, MinP: 0.01, Seed: 3},
		{Temperature: 1.2, TopK: 1}, {RepeatPenalty: 1.3}} {
		var got [2]*engine.Generated
		var back [2]int
		for i, s := range []*engine.Session{here, there} {
			s.Reset()
			if err := s.Prepare(40, &o, true); err != nil {
				t.Fatal(err)
			}
			before := dev.Returned()
			g, err := s.Generate(context.Background(), prompt(40), engine.Generation{Max: 12, Sampling: o})
			if err != nil {
				t.Fatal(err)
			}
			got[i], back[i] = g, dev.Returned()-before
		}
		if !slices.Equal(got[0].Tokens, got[1].Tokens) {
			t.Errorf("%+v: %v on the host, %v on the device", o, got[0].Tokens, got[1].Tokens)
		}
		fewer := o.RepeatPenalty == 0 // a penalty needs logits
		if fewer && back[1] > back[0]/20 || !fewer && back[1] != back[0] {
			t.Errorf("%+v: %d bytes came back for the host's choice, %d for the device's", o, back[0], back[1])
		}
	}
}

// TestPickedNaN: a NaN comes before all numbers, so that who reads the first choice
// sees that the logits are none.
func TestPickedNaN(t *testing.T) {
	dev := open(t, vulkan.Options{})
	x := &graph.Value{Name: "x", Kind: graph.Input, Type: tensor.F32, Shape: tensor.Shape{1, 5000}}
	n := &graph.Node{Name: "choice", Op: ops.TopK, In: []*graph.Value{x}, Attr: &ops.TopKAttr{K: 3, Softmax: "none"},
		Float: tensor.F32}
	results, err := n.Op.Infer(n)
	if err != nil {
		t.Fatal(err)
	}
	k, err := dev.Kernel(n)
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	memory := func(bytes int) backends.Buffer {
		b, err := dev.Alloc(bytes, backends.Arena)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Free() })
		return b
	}
	data := make([]float32, 5000)
	data[77], data[4998], data[4000] = 3, float32(math.NaN()), float32(math.Inf(1))
	l := &backends.Launch{Node: n, Kernel: k, In: []backends.Operand{{Buffer: memory(20000), Stride: 20000, Type: x.Type,
		Shape: x.Shape}},
		Scratch: backends.Operand{Buffer: memory(k.Traits().Scratch), Stride: 1, Shape: []int{k.Traits().Scratch}}}
	for _, r := range results {
		n.Out = append(n.Out, &graph.Value{Type: r.Type, Shape: r.Shape})
		l.Out = append(l.Out, backends.Operand{Buffer: memory(12), Stride: 12, Type: r.Type, Shape: r.Shape})
	}
	values, tokens := make([]float32, 3), make([]int32, 3)
	if err := errors.Join(s.Write(l.In[0].Buffer, 0, tensor.Bytes(data)), s.Launch(l),
		s.Read(l.Out[0].Buffer, 0, tensor.Bytes(values)), s.Read(l.Out[1].Buffer, 0, tensor.Bytes(tokens))); err != nil {
		t.Fatal(err)
	}
	if !math.IsNaN(float64(values[0])) || !math.IsInf(float64(values[1]), 1) || values[2] != 3 ||
		!slices.Equal(tokens, []int32{4998, 4000, 77}) {
		t.Errorf("the choice is %v: %v", tokens, values)
	}
}

// TestEager: without capture every dispatch is recorded, submitted and waited for by
// itself, and the logits are the same to the bit, also where norms are folded into
// products and launches share converted activations.
func TestEager(t *testing.T) {
	whole(t)
	recorded := 0
	for _, fp16 := range []backends.Choice{backends.Off, backends.On} {
		dev, err := broken(t, func(c *vk.Commands) {
			tap(&c.CmdDispatchAddr, func(int) vk.Result { recorded++; return vk.VK_SUCCESS })
		})
		if err != nil {
			t.Fatal(err)
		}
		if fp16 == backends.On {
			for _, p := range dev.Paths() {
				if err := dev.SetPath(p.Name, true); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Cleanup(func() { dev.Close() })
		for _, dtype := range []tensor.Type{tensor.F32, tensor.F16, tensor.Q8_0, tensor.Q4_K} {
			staged := dtype == tensor.F16
			dev.Stage(staged)
			change := func(o *engine.Options) {
				o.DType, o.Set = dtype, map[string]string{"L": "2", "D": "256", "H": "4", "F": "512", "V": "5000"}
			}
			captured, eager := session(t, dev, change), session(t, dev, func(o *engine.Options) { change(o); o.Eager = true })
			var logits [2][]float32
			var submits, dispatches [2]int
			for i, s := range []*engine.Session{captured, eager} {
				out, err := s.Prefill(context.Background(), prompt(20))
				if err != nil {
					t.Fatal(err)
				}
				logits[i] = slices.Clone(out)
				if _, err := s.Decode(8); err != nil { // captures, and zeroes what is new
					t.Fatal(err)
				}
				submitted := dev.Submits()
				recorded = 0
				if out, err = s.Decode(7); err != nil {
					t.Fatal(err)
				}
				logits[i] = append(logits[i], out...)
				submits[i], dispatches[i] = dev.Submits()-submitted, recorded
			}
			if !slices.Equal(logits[0], logits[1]) {
				t.Errorf("%s, half precision %v: the logits differ", dtype, fp16)
			}
			// Step memory with two sides is copied before the step and behind it.
			copies := submits[1] - dispatches[1]
			if submits[0] != 1 || dispatches[0] != 0 || dispatches[1] < 15 || copies != 2 && (copies != 0 || staged) {
				t.Errorf("%s: a token takes %d and %d submissions, for which %d and %d dispatches are recorded", dtype, submits[0],
					submits[1], dispatches[0], dispatches[1])
			}
		}
	}
}

// TestTokenAllocates: a token, chosen on the device or from its logits, allocates nothing.
func TestTokenAllocates(t *testing.T) {
	dev := open(t, vulkan.Options{})
	s := session(t, dev, nil)
	if _, err := s.Prefill(context.Background(), prompt(5)); err != nil {
		t.Fatal(err)
	}
	if a := testing.AllocsPerRun(20, func() {
		if _, err := s.Decode(9); err != nil {
			t.Error(err)
		}
	}); a > 0 {
		t.Errorf("a token whose logits are read allocates %g times", a)
	}
	count := func(n int) uint64 {
		s.Reset()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := s.Generate(context.Background(), prompt(5), engine.Generation{Max: n}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	count(4)
	few, many := count(10), count(60)
	if many > few+5 { // the runtime's own
		t.Errorf("10 tokens allocate %d times, 60 tokens %d times", few, many)
	}
}

// BenchmarkToken decodes a token of a model of 32 layers, greedily: the time and,
// of it, what the host works and does not wait.
func BenchmarkToken(b *testing.B) {
	dev := open(b, vulkan.Options{})
	for _, size := range []struct{ name, d, f, v string }{{"small", "256", "512", "32000"},
		{"1B", "2048", "5504", "32000"}} {
		b.Run(size.name, func(b *testing.B) {
			s := session(b, dev, func(o *engine.Options) {
				o.DType, o.Context, o.Chunk = tensor.Q4_0, 2048, 512
				o.Set = map[string]string{"L": "32", "D": size.d, "H": "8", "F": size.f, "V": size.v}
			})
			var tokens int
			var host, total time.Duration
			for b.Loop() {
				s.Reset()
				g := engine.Generation{Max: 256}
				if err := s.Prepare(8, &g.Sampling, true); err != nil {
					b.Fatal(err)
				}
				var start time.Time
				var waited time.Duration
				g.Emit = func(int32) bool {
					if start.IsZero() {
						start, waited = time.Now(), dev.Waited()
					}
					return true
				}
				if _, err := s.Generate(context.Background(), prompt(8), g); err != nil {
					b.Fatal(err)
				}
				took := time.Since(start)
				tokens += g.Max - 1
				total += took
				host += took - (dev.Waited() - waited)
			}
			b.ReportMetric(float64(host.Microseconds())/float64(tokens), "host-µs/token")
			b.ReportMetric(float64(total.Microseconds())/float64(tokens), "µs/token")
		})
	}
}

// poor is a device with little memory left, which counts what is allocated.
type poor struct {
	backends.Device
	left   int
	allocs *int
}

func (p poor) Info() backends.Info {
	i := p.Device.Info()
	i.Memory = p.left
	return i
}

func (p poor) Alloc(bytes int, use backends.Use) (backends.Buffer, error) {
	*p.allocs++
	return p.Device.Alloc(bytes, use)
}

// TestBudget: a model that does not fit says how much is missing before anything is
// allocated for it.
func TestBudget(t *testing.T) {
	dev := open(t, vulkan.Options{})
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	allocs := 0
	_, err = engine.New(context.Background(), engine.Options{Model: file, Device: poor{dev, 3e9, &allocs}, Context: 2048,
		DType: tensor.Q4_0})
	var memory *engine.OutOfMemory
	if !errors.As(err, &memory) || memory.Have != 3e9 || memory.Need < 4e9 || memory.Need > 6e9 ||
		!strings.Contains(err.Error(), "GB are missing") {
		t.Errorf("a 7B model in 3 GB: %v", err)
	}
	if allocs != 0 {
		t.Errorf("%d buffers were allocated before", allocs)
	}
}

// TestFiltered: what the device's filters leave, and what it draws of that, is what the host's sampler chooses.
func TestFiltered(t *testing.T) {
	dev, rows := open(t, vulkan.Options{}), 48
	if taste(dev, testfiles.Exhaustive()) {
		rows = 3
	} else if brief(dev) {
		rows = 12
	}
	testkit.Filtered(t, dev, rows)
}
