package backends

import (
	"slices"
	"time"
)

// Explainer is an Executable that says where the time of a replay goes. Launches that run as one,
// or while others end, have no time of their own in a profile that runs them one by one.
type Explainer interface {
	// Explain replays the program and beginnings of it, for about the time given, or a little longer
	// where one run of each takes that. Nothing else may run on the device.
	Explain(budget time.Duration) (*Explanation, error)
}

// Explanation is where the time of a program's replay goes. Times are medians.
type Explanation struct {
	Parts []Part // in the order in which they begin
	// Whole is the time of a replay on the device, copies of inputs and results included; 0 where the device is
	// the host.
	Whole time.Duration
	// Cut says that beginnings of the program were timed: Start, Added and End are there, and Whole is their
	// sum. Else only Alone is, of each part.
	Cut bool
	// Start is the time of a replay that has no parts, and End by how much the whole is longer than all
	// parts: what comes back to the host.
	Start, End time.Duration
}

// Part is what of a program runs as one: a launch, or several that a device joins.
type Part struct {
	// Launches are the numbers of its launches in the program; the first one names it.
	Launches []int
	// Alone is the time of the part with nothing else under way.
	Alone time.Duration
	// Added is by how much the program is longer with this part, when nothing comes behind it: less than
	// Alone where it begins while others end, more where there is a gap before it.
	Added time.Duration
}

// Took is what a part adds to a replay where that was timed, else its time alone.
func (x *Explanation) Took(p *Part) time.Duration {
	if x.Cut {
		return p.Added
	}
	return p.Alone
}

// Median gives the median of times, of an even number the greater one, and leaves them in order. There must be one.
func Median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
