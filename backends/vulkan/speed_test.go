//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
)

// TestSpeed times a model of synthetic weights, as GRETA_VULKAN_SPEED says:
// "llama2_7b f16,q4_0 L=8", with the variant of products that GRETA_VULKAN_VARIANT
// names where there is one, without the paths of GRETA_VULKAN_WITHOUT, and nothing folded where
// GRETA_VULKAN_UNFOLDED is set. It checks that logits are finite.
func TestSpeed(t *testing.T) {
	what := strings.Fields(os.Getenv("GRETA_VULKAN_SPEED"))
	if len(what) < 2 {
		t.Skip("GRETA_VULKAN_SPEED names no model and types")
	}
	set := map[string]string{}
	for _, s := range what[2:] {
		k, v, _ := strings.Cut(s, "=")
		set[k] = v
	}
	for name := range strings.SplitSeq(what[1], ",") {
		t.Run(name, func(t *testing.T) { speed(t, what[0], name, set) })
	}
}

// speed measures one model with one type of weights, in one piece: what each figure is of stands
// before it.
func speed(t *testing.T, model, typeName string, set map[string]string) {
	opt := engine.Options{Seed: 1}
	if !opt.SetType(typeName) {
		t.Fatalf("no type %s", typeName)
	}
	file, err := models.Builtin(model)
	if err != nil {
		t.Fatal(err)
	}
	dev := open(t, vulkan.Options{FP16: backends.On})
	asked(t, dev)
	dev.Unfolded(os.Getenv("GRETA_VULKAN_UNFOLDED") != "")
	ctx := context.Background()
	start := time.Now()
	opt.Model, opt.Device, opt.Context, opt.Set = file, dev, 2560, set
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
	t.Logf("%s: loaded in %v, %d MB read per token", typeName, loaded, e.WeightBytes()>>20)
	prompt := make([]int32, 512)
	for i := range prompt {
		prompt[i] = int32(i*37%1000 + 3)
	}
	prefill := func() time.Duration {
		s.Reset()
		start := time.Now()
		logits, err := s.Prefill(ctx, prompt)
		if err != nil {
			t.Fatal(err)
		}
		if i, ok := engine.Finite(logits); !ok {
			t.Fatalf("logit %d is %v", i, logits[i])
		}
		return time.Since(start)
	}
	t.Logf("first prefill with its capture: %v", prefill())
	for start := time.Now(); time.Since(start) < time.Second; { // until clocks are up that fell while weights were made
		prefill()
	}
	var times []time.Duration
	for range 12 {
		times = append(times, prefill())
	}
	slices.Sort(times)
	t.Logf("pp512: median %v, %.0f tokens/s", times[6], 512/times[6].Seconds())
	decode := func(n int) time.Duration {
		var times []time.Duration
		for i := range n {
			start := time.Now()
			if _, err := s.Decode(int32(i + 7)); err != nil {
				t.Fatal(err)
			}
			times = append(times, time.Since(start))
		}
		slices.Sort(times)
		return times[n/2]
	}
	profile := func(tokens int) {
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
	profile(512)
	decode(8)
	d := decode(128)
	t.Logf("tg128 @ d520: median %v a token, %.1f tokens/s", d, 1/d.Seconds())
	profile(1)
	s.Reset()
	decode(2)
	d = decode(128)
	t.Logf("tg128: median %v a token, %.1f tokens/s", d, 1/d.Seconds())
	d = testkit.DecodeTime(t, s, prompt[:1], 128)
	t.Logf("tg128, chosen on the device: %v a token, %.1f tokens/s", d, 1/d.Seconds())
	s.Reset()
	for range 4 {
		if _, err := s.Prefill(ctx, prompt); err != nil {
			t.Fatal(err)
		}
	}
	decode(4)
	d = decode(64)
	t.Logf("tg64 @ d2048: median %v a token, %.1f tokens/s", d, 1/d.Seconds())
	profile(1)
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
	fmt.Fprintf(&b, "S=%d: %v in all\n", st.Tokens, all)
	for _, k := range keys {
		fmt.Fprintf(&b, "%10v %4d × %8v %s\n", sum[k], count[k], sum[k]/time.Duration(count[k]), k)
	}
	return b.String()
}
