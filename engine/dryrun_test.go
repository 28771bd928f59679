package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// TestDryRunBatches: all steps of a scheduler can be captured on a device that only notes what they need, up to the
// most rows that a device of its own takes, and not behind its end.
func TestDryRunBatches(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"sm_90", "gfx942"} {
		b, err := hip.NewBuilder(arch, 0)
		if err != nil {
			t.Fatal(err)
		}
		opt := Options{Model: file, Device: b.Device(), Context: 2048, KV: tensor.F16, DType: tensor.Q4_0,
			Set: map[string]string{"L": "2"}}
		opt.fill()
		o := SchedulerOptions{Rows: buckets[len(buckets)-1], Sequences: 256, Page: 32}
		size := poolSize{pages: 1000, page: 32, lines: 256}
		ended, stop := context.WithCancel(t.Context())
		stop()
		if err := dryRunBatches(ended, opt, nil, o, size); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: at its end: %v", arch, err)
		}
		few := b.Programs()
		if err := dryRunBatches(t.Context(), opt, nil, o, size); err != nil || b.Programs() < few+5 {
			t.Errorf("%s: %d programs, %d more than without a step, %v", arch, b.Programs(), b.Programs()-few, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
