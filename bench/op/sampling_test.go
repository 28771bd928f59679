package op

import (
	"math"
	"testing"

	"github.com/greta-project/greta/bench/record"
)

// TestSamplingCoversAllTheTime: of more samples than are kept those that are kept come from the whole time, evenly,
// and the result says how many there were.
func TestSamplingCoversAllTheTime(t *testing.T) {
	for _, n := range []int{1, maxSamples - 1, maxSamples, maxSamples + 1, 7*maxSamples + 3} {
		r := &record.Result{Metrics: map[string]float64{}}
		s := sampling{r: r}
		for i := range n {
			s.add(float64(i), float64(-i))
		}
		s.finish()
		k := len(r.Samples)
		if k > maxSamples || n >= maxSamples && k < maxSamples/2 || n < maxSamples && k != n || len(r.Host) != k {
			t.Fatalf("%d of %d are kept, and %d of the host's", k, n, len(r.Host))
		}
		step := 1.0
		if k > 1 {
			step = r.Samples[1]
		}
		for i := range k {
			if r.Samples[i] != float64(i)*step || r.Host[i] != -r.Samples[i] {
				t.Fatalf("sample %d of %d is the one at %g, with the host's at %g", i, n, r.Samples[i], -r.Host[i])
			}
		}
		if last := r.Samples[k-1]; float64(n-1)-last >= step {
			t.Errorf("the last one kept of %d is that at %g, every %gth", n, last, step)
		}
		if taken, said := r.Metrics["samples_taken"]; said != (n >= maxSamples) || said && taken != float64(n) {
			t.Errorf("of %d it says %g", n, taken)
		}
	}
	r := &record.Result{Metrics: map[string]float64{}}
	if s := (sampling{r: r}); true {
		s.add(1, math.NaN())
	}
	if len(r.Samples) != 1 || r.Host != nil {
		t.Errorf("%v, %v", r.Samples, r.Host)
	}
}
