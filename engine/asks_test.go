package engine

import (
	"sync/atomic"
	"testing"

	"github.com/greta-project/greta/backends"
)

// asked counts how often a device is asked for its Info, which may ask a driver.
type asked struct {
	backends.Device
	times *atomic.Int64
}

func (a asked) Info() backends.Info {
	a.times.Add(1)
	return a.Device.Info()
}

// TestStepsDoNotAsk: once its steps are captured, a scheduler asks the device nothing, however many
// sequences there are.
func TestStepsDoNotAsk(t *testing.T) {
	dev := asked{newCPU(t, 1), new(atomic.Int64)}
	s := newScheduler(t, newEngine(t, Options{Model: small(t), Device: dev, Context: 32}), SchedulerOptions{Tokens: 64})
	answer := func() int64 {
		before := dev.times.Load()
		h, err := s.Add(t.Context(), Request{Prompt: []int32{1, 2, 3}, Max: 6, Salt: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(h); err != nil {
			t.Fatal(err)
		}
		return dev.times.Load() - before
	}
	if first := answer(); first == 0 {
		t.Error("steps were captured, and the device was not asked: does the test still see it?")
	}
	if n := answer(); n > 0 {
		t.Errorf("the device was asked %d times in steps that were captured before", n)
	}
}
