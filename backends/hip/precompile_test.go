package hip

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// TestPrecompile: what steps need is compiled beside other work, once however many ask for it at the same time, and a
// second time nothing is; an end before leaves the rest.
func TestPrecompile(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(nvidia)
	dev, err := openFake(f, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	compiled := func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range f.calls {
			if c.f == fnRtcCompile {
				n++
			}
		}
		return n
	}
	capture := func(null backends.Device) {
		if err := engine.DryRun(engine.Options{Model: file, Device: null, Context: 64, KV: tensor.F16, DType: tensor.Q4_0,
			Set: map[string]string{"L": "2"}}, 1, 64); err != nil {
			t.Error(err)
		}
	}
	run := func(ctx context.Context) {
		t.Helper()
		captured, err := dev.Precompile(ctx, capture)
		if err != nil {
			t.Fatal(err)
		}
		<-captured
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	run(ended)
	few := compiled()
	run(t.Context())
	for n := -1; n < compiled(); time.Sleep(100 * time.Millisecond) {
		n = compiled()
	}
	all := compiled()
	if all < 5 || few >= all || dev.Compiled() != all {
		t.Errorf("%d programs were compiled, %d of them where it had ended before, the device counts %d", all, few,
			dev.Compiled())
	}
	run(t.Context())
	time.Sleep(100 * time.Millisecond)
	if again := compiled() - all; again != 0 {
		t.Errorf("%d programs were compiled again", again)
	}
	var others sync.WaitGroup
	for range 8 {
		others.Go(func() {
			if _, err := dev.c.code("norm.hip"); err != nil {
				t.Error(err)
			}
		})
	}
	others.Wait()
	if n := compiled() - all; n > 1 {
		t.Errorf("a program that eight ask for was compiled %d times", n)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
