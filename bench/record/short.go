package record

import (
	"fmt"
	"time"
)

// The metrics of a result that has fewer samples than were asked for, as its time was over.
const (
	SamplesAsked = "samples_asked"
	SamplingTime = "sampling_time_s" // seconds after which no more were taken
)

// Short notes that fewer samples than asked were taken, as they took longer than limit.
func (r *Result) Short(asked int, limit time.Duration) {
	if r.Metrics == nil {
		r.Metrics = map[string]float64{}
	}
	r.Metrics[SamplesAsked], r.Metrics[SamplingTime] = float64(asked), limit.Seconds()
}

// ShortText says that there are fewer samples than were asked for, and why; "" where there are not.
func (r *Result) ShortText() string {
	asked, ok := r.Metrics[SamplesAsked]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d samples instead of %g: no more were taken after %.3g s (ten times --min-time, and half a "+
		"second at least)", len(r.Samples), asked, r.Metrics[SamplingTime])
}
