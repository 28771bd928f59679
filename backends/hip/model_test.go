package hip_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
)

// TestSpeed times a model of synthetic weights, as GRETA_HIP_SPEED says:
// "llama2_7b f16,q4_0", behind GRETA_HIP_DEPTH tokens of prompt (512). It checks nothing but that
// the numbers are finite.
func TestSpeed(t *testing.T) {
	what := strings.Fields(os.Getenv("GRETA_HIP_SPEED"))
	if len(what) != 2 {
		t.Skip("GRETA_HIP_SPEED names no model and types")
	}
	for name := range strings.SplitSeq(what[1], ",") {
		t.Run(name, func(t *testing.T) { speed(t, what[0], name) })
	}
}

// speed measures one model with one type of weights, in one piece: what each figure is of stands
// before it.
func speed(t *testing.T, model, typeName string) {
	opt := engine.Options{Seed: 1}
	if !opt.SetType(typeName) {
		t.Fatalf("no type %s", typeName)
	}
	file, err := models.Builtin(model)
	if err != nil {
		t.Fatal(err)
	}
	dev := openHalf(t)
	defer closing(t, dev)
	switch how := os.Getenv("GRETA_HIP_HOW"); {
	case strings.Contains(how, "alone"):
		dev.Alone()
		fallthrough
	case strings.Contains(how, "serial"):
		dev.Serial()
	}
	if strings.Contains(os.Getenv("GRETA_HIP_HOW"), "parts") { // attention by attention.hip
		if err := dev.SetPath("clusters", false); err != nil {
			t.Fatal(err)
		}
	}
	choices := map[string]string{} // variants by kernel: "decode", "prefill", "decode/q6_K"
	for c := range strings.FieldsSeq(os.Getenv("GRETA_HIP_VARIANT")) {
		step, name, _ := strings.Cut(c, ":") // "prefill:tile=…", "decode:unroll=…"
		choices[step] = name
	}
	dev.Choose(func(n *graph.Node) string {
		step := "decode"
		if len(n.In) > 0 && n.In[0] != nil && n.In[0].Shape.Rows() > 8 {
			step = "prefill"
		}
		if len(n.In) > 1 && choices[step+"/"+n.In[1].Type.String()] != "" {
			step += "/" + n.In[1].Type.String()
		}
		if slices.Contains(dev.Variants(n), choices[step]) {
			return choices[step]
		}
		return ""
	})
	depth := 512
	if d := os.Getenv("GRETA_HIP_DEPTH"); d != "" {
		if depth, err = strconv.Atoi(d); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	start := time.Now()
	opt.Model, opt.Device, opt.Context = file, dev, depth+512
	e, err := engine.New(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	loaded := time.Since(start)
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	t.Logf("%s: loaded in %v, captured in %v, %d MB read per token", typeName, loaded, time.Since(start)-loaded,
		e.WeightBytes()>>20)
	prompt := make([]int32, depth)
	for i := range prompt {
		prompt[i] = int32(i*37%1000 + 3)
	}
	start = time.Now()
	logits, err := s.Prefill(ctx, prompt)
	if err != nil {
		t.Fatal(err)
	}
	if i, ok := engine.Finite(logits); !ok {
		t.Errorf("logit %d is %v", i, logits[i])
	}
	t.Logf("first prefill with its capture: %v", time.Since(start))
	for range max(10*512/depth, 1) {
		s.Reset()
		start = time.Now()
		if _, err := s.Prefill(ctx, prompt); err != nil {
			t.Fatal(err)
		}
		d := time.Since(start)
		t.Logf("pp%d: %v, %.0f tokens/s", depth, d, float64(depth)/d.Seconds())
	}
	for range 8 {
		if _, err := s.Decode(5); err != nil {
			t.Fatal(err)
		}
	}
	const n = 128
	start = time.Now()
	for i := range n {
		if _, err := s.Decode(int32(i + 7)); err != nil {
			t.Fatal(err)
		}
	}
	d := time.Since(start)
	t.Logf("tg128 @ d%d: %v a token, %.1f tokens/s", depth+8, d/n, n/d.Seconds())
	d = testkit.DecodeTime(t, s, prompt, n)
	t.Logf("tg128 @ d%d, chosen on the device: %v a token, %.1f tokens/s", depth, d, 1/d.Seconds())
	for _, tokens := range []int{1, 512} {
		if tokens == 512 {
			s.Reset()
		}
		st, err := s.Step(tokens, 1)
		if err != nil {
			t.Fatal(err)
		}
		times, err := st.Profile()
		if err != nil {
			t.Fatal(err)
		}
		t.Log(byKernel(st, times))
	}
	allocs := testing.AllocsPerRun(20, func() {
		if _, err := s.Decode(9); err != nil {
			t.Error(err)
		}
	})
	if allocs > 0 {
		t.Errorf("a token allocates %g times", allocs)
	}
}

// byKernel sums a profile by kernel and shape.
func byKernel(st *engine.Step, times []time.Duration) string {
	sum, count := map[string]time.Duration{}, map[string]int{}
	var all time.Duration
	for i, d := range times {
		l := &st.Program.Launches[i]
		key := l.Kernel.Name()
		if len(l.In) > 1 && l.In[1].Buffer != nil {
			key += fmt.Sprint(" ", l.In[1].Shape)
		}
		sum[key] += d
		count[key]++
		all += d
	}
	keys := make([]string, 0, len(sum))
	for k := range sum {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(sum[b], sum[a]) })
	var b strings.Builder
	fmt.Fprintf(&b, "S=%d: %v in %d launches\n", st.Tokens, all, len(times))
	for _, k := range keys {
		fmt.Fprintf(&b, "%12v %4d %10v each  %s\n", sum[k], count[k], sum[k]/time.Duration(count[k]), k)
	}
	return b.String()
}
