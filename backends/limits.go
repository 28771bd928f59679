package backends

import (
	"fmt"
	"time"

	"github.com/greta-project/greta/graph"
)

// Limits is what a machine did in passing, with the threads that run programs,
// when it was asked for one thing only: what a program's rates are compared with.
type Limits struct {
	// WeightBytes is what the products of one run of the program read of weights, in their
	// packed layout. Of experts those that are chosen count.
	WeightBytes float64
	// ReadGBs is the rate of reading these weights and doing nothing else, GB/s.
	ReadGBs float64
	// BestReadGBs is the fastest piece of that, read by a thread that nothing else held up, times the
	// threads: no less than what the machine can do.
	BestReadGBs float64
	// GFlops is twice the multiply-adds a second, in 10⁹, that products of
	// many rows with these weights could make on registers alone.
	GFlops float64
	// BestGFlops is that of the fastest piece, times the threads, as BestReadGBs.
	BestGFlops float64
	// Arithmetic names the instruction that GFlops is about.
	Arithmetic string
}

// Limiter is a device that can measure its limits.
type Limiter interface {
	// Limits measures for about the time given. The program is one of this device's; nothing else
	// may run on the device.
	Limits(p *Program, budget time.Duration) (Limits, error)
}

// MostLimits is how long limits are measured at most, 0: as long as is asked for. Tests set it that are not about the
// machine's limits.
var MostLimits time.Duration

// LimitsOf gives what measures a device's limits, nil where it cannot.
func LimitsOf(dev Device) func(p *Program, budget time.Duration) (Limits, error) {
	d, ok := dev.(Limiter)
	if !ok {
		return nil
	}
	return func(p *Program, budget time.Duration) (Limits, error) {
		if MostLimits > 0 {
			budget = min(budget, MostLimits)
		}
		l, err := d.Limits(p, budget)
		if err != nil {
			err = fmt.Errorf("measuring the device's limits: %w", err)
		}
		return l, err
	}
}

// PackedReader is a device whose packed weights have not always the size of those that are stored.
type PackedReader interface {
	// PackedExcess is by how many bytes what a launch reads of packed weights is more than what it would read of
	// them as they are stored; negative where packing makes them smaller.
	PackedExcess(l *Launch) (float64, error)
}

// PackedExcess is by how much a launch reads more of packed weights than of stored ones (PackedReader).
func PackedExcess(dev Device, l *Launch) (float64, error) {
	if d, ok := dev.(PackedReader); ok {
		return d.PackedExcess(l)
	}
	return 0, nil
}

// Cost is what a launch has to do on a device with kv positions in the caches: what its node has to do, and of
// weights that are packed what is read of them in that layout, as Limits counts them.
func Cost(dev Device, l *Launch, kv int) (graph.Cost, error) {
	if l.Node.Op.Cost == nil {
		return graph.Cost{}, nil
	}
	c := l.Node.Op.Cost(l.Node, kv)
	excess, err := PackedExcess(dev, l)
	c.Read += excess
	return c, err
}
