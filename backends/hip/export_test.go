package hip

import (
	"fmt"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
)

// What tests compare with: launches one by one, without overlap.

// Alone makes programs that are captured from then on run each launch by itself.
func (dev *Device) Alone() { dev.alone = true }

// Serial makes launches wait for the end of those before them.
func (dev *Device) Serial() { dev.overlaps = false }

// FP8Types are the types that an architecture's fp8 instructions take.
func FP8Types(level string) []tensor.Type { return fp8Types(level) }

// As makes the device choose kernels as one of another architecture does.
func (dev *Device) As(level string) {
	dev.info.Level = level
	dev.say()
}

// Needs names the programs that were found.
func (b *Builder) Needs() []string {
	var all []string
	for p := range b.need {
		all = append(all, string(p))
	}
	return all
}

// Explained checks that what Explain gives is whole: each launch is in one part, and where there was time for
// beginnings of the program, the times of its parts are those of a replay.
func Explained(e backends.Executable, launches int, budget time.Duration) error {
	x, err := e.(backends.Explainer).Explain(budget)
	if err != nil {
		return err
	}
	sum, seen := x.Start+x.End, map[int]bool{}
	for _, p := range x.Parts {
		sum += p.Added
		for _, i := range p.Launches {
			if seen[i] || i < 0 || i >= launches {
				return fmt.Errorf("launch %d is in two parts, or none of the program's", i)
			}
			seen[i] = true
		}
	}
	switch {
	case len(seen) != launches:
		return fmt.Errorf("%d of %d launches are Explained", len(seen), launches)
	case x.Whole <= 0:
		return fmt.Errorf("a replay takes %v", x.Whole)
	case x.Cut != (budget > time.Second):
		return fmt.Errorf("within %v: beginnings timed: %v", budget, x.Cut)
	case x.Cut && sum != x.Whole:
		return fmt.Errorf("the parts take %v, a replay %v", sum, x.Whole)
	}
	return nil
}
