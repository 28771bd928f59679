package guard

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestWarmUp gives runs whose times fall as a card's do: by a rise of the clock, slowly, or not at all.
func TestWarmUp(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name        string
		time        func(total time.Duration) time.Duration
		best        time.Duration
		least, most time.Duration
	}{
		{"steady", func(time.Duration) time.Duration { return 2 * ms }, 2 * ms, 600 * ms, 610 * ms},
		{"an H100 from idle", func(total time.Duration) time.Duration {
			if total < 450*ms {
				return 80 * ms
			}
			return 23 * ms
		}, 23 * ms, 1080 * ms, 1130 * ms},
		{"one long run", func(time.Duration) time.Duration { return 4000 * ms }, 4000 * ms, 4000 * ms, 4000 * ms},
		{"falls slowly", func(total time.Duration) time.Duration {
			return 10*ms - min(total, 800*ms)/100
		}, 2 * ms, 1300 * ms, 1450 * ms},
		{"falls for ever", func(total time.Duration) time.Duration {
			return 11*ms - total/330
		}, 19 * ms / 10, 2990 * ms, 3010 * ms},
		{"a clock that stands", func(time.Duration) time.Duration { return 0 }, time.Microsecond, 600 * ms, 601 * ms},
	} {
		var total time.Duration
		best, err := WarmUp(t.Context(), func() (time.Duration, error) {
			d := c.time(total)
			total += max(d, time.Microsecond)
			return d, nil
		})
		if err != nil || best < c.best || best > c.best*11/10 || total < c.least || total > c.most {
			t.Errorf("%s: fastest %v after %v, %v; want %v after %v to %v", c.name, best, total, err, c.best, c.least, c.most)
		}
	}
	broken := errors.New("lost")
	if _, err := WarmUp(t.Context(), func() (time.Duration, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("a run that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := WarmUp(ctx, func() (time.Duration, error) {
		cancel()
		return ms, nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
