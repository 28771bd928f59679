package hip

import (
	"context"
	"maps"
	"runtime"

	"github.com/greta-project/greta/backends"
)

// Compiled is backends.Precompiler's.
func (dev *Device) Compiled() int {
	dev.c.mu.Lock()
	defer dev.c.mu.Unlock()
	return dev.c.compiled
}

// Precompile is backends.Precompiler's: what capture captures is noted by a null device of the same architecture, and
// compiled on half of the cores, in the order in which it is asked for.
func (dev *Device) Precompile(ctx context.Context, capture func(backends.Device)) (<-chan struct{}, error) {
	captured := make(chan struct{})
	if dev.c.note != nil || !dev.d.has(fnRtcCompile) {
		close(captured)
		return captured, nil
	}
	jobs := make(chan program)
	seen := map[program]bool{}
	null, err := openNull(dev.info.Level, dev.units, func(p program) { // one at a time
		if seen[p] {
			return
		}
		seen[p] = true
		select {
		case jobs <- p:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return nil, err
	}
	null.off, null.invariant = maps.Clone(dev.off), dev.invariant
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		go func() {
			for p := range jobs {
				_, _ = dev.c.code(p) // who needs it is told what is wrong
			}
		}()
	}
	go func() {
		defer close(captured)
		capture(null)
		_ = null.Close()
		close(jobs)
	}()
	return captured, nil
}
