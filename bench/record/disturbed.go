package record

import (
	"fmt"
	"strings"
)

// The metrics that say what disturbed a measurement; they are there where something did.
const (
	OthersCPUs   = "others_cpus"   // processors that other programs used meanwhile
	QuotaCPUs    = "quota_cpus"    // processors' time that the process was allowed
	AffinityCPUs = "affinity_cpus" // processors that the process was allowed to run on
)

// DisturbedAlike says whether the same kinds of things disturbed two measurements, none for one: only then does a
// difference between them tell of what was measured.
func (r *Result) DisturbedAlike(o *Result) bool {
	for _, m := range []string{OthersCPUs, QuotaCPUs, AffinityCPUs} {
		_, a := r.Metrics[m]
		if _, b := o.Metrics[m]; a != b {
			return false
		}
	}
	return true
}

// Disturbed says what disturbed the measurement, "" where nothing is known to have done so.
func (r *Result) Disturbed() string { return Disturbance(r.Metrics) }

// Disturbance puts the metrics that say what disturbed a measurement into words.
func Disturbance(metrics map[string]float64) string {
	var parts []string
	for _, m := range []struct{ name, form string }{
		{OthersCPUs, "other programs used %.2g processors"},
		{QuotaCPUs, "a quota allows %.2g processors"},
		{AffinityCPUs, "the process is bound to %.2g of the processors"},
	} {
		if v, ok := metrics[m.name]; ok {
			parts = append(parts, fmt.Sprintf(m.form, v))
		}
	}
	return strings.Join(parts, ", ")
}
