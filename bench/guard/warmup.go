package guard

import (
	"context"
	"time"
)

// Limits of a warm-up.
const (
	settled    = 600 * time.Millisecond // without a run faster by a thirtieth than the fastest before
	mostWarmUp = 3 * time.Second        // but for the last run
)

// WarmUp runs what is to be measured until its time no longer falls, for three seconds at most or one run that
// takes longer, and gives the fastest. A GPU's clocks fall within tenths of a second of idling, while a kernel is
// compiled or a reference computed, stay low for the first half second of work (an H100 under Vulkan: at 345 MHz
// for 0.45 s, then at 1,950), and take up to a second to come back; few backends can read them. Times are those
// that run returns. The error is run's, or the context's.
func WarmUp(ctx context.Context, run func() (time.Duration, error)) (time.Duration, error) {
	var best, since, total time.Duration
	for since < settled && total < mostWarmUp {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		t, err := run()
		if err != nil {
			return 0, err
		}
		t = max(t, time.Microsecond) // so that it ends, whatever the clock says
		total, since = total+t, since+t
		if best == 0 || t < best-best/30 {
			best, since = t, 0
		}
	}
	return best, nil
}
