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
	b, err := NewBuilder(dev.info.Level, dev.units)
	if err != nil {
		t.Fatal(err)
	}
	capture(b.Device())
	all := b.Programs()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	run(ended)
	if few := compiled(); few >= all {
		t.Errorf("%d of %d programs were compiled though it had ended before", few, all)
	}
	run(t.Context())
	for wait := time.Now(); dev.Compiled() < all && time.Since(wait) < time.Minute; {
		time.Sleep(time.Millisecond)
	}
	if n := compiled(); all < 5 || n != all || dev.Compiled() != all {
		t.Errorf("%d programs were compiled, the device counts %d, steps need %d", n, dev.Compiled(), all)
	}
	run(t.Context())
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
