package record

import (
	"fmt"
	"math"
	"strings"
)

// The metrics that say what disturbed a measurement; they are there where something did.
const (
	OthersCPUs   = "others_cpus"   // processors that other programs used meanwhile
	QuotaCPUs    = "quota_cpus"    // processors' time that the process was allowed
	AffinityCPUs = "affinity_cpus" // processors that the process was allowed to run on
	Trend        = "trend"         // by how much times rise within the samples, as a share of their median
)

// DisturbedAlike says whether the same kinds of things disturbed two measurements, none for one, and a quota or a
// binding left them as much: only then does a difference between them tell of what was measured.
func (r *Result) DisturbedAlike(o *Result) bool {
	for _, m := range []string{OthersCPUs, QuotaCPUs, AffinityCPUs, Trend} {
		x, a := r.Metrics[m]
		y, b := o.Metrics[m]
		if a != b || x != y && (m == QuotaCPUs || m == AffinityCPUs) {
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
	if rise := metrics[Trend]; rise != 0 {
		parts = append(parts, TrendText(rise))
	}
	return strings.Join(parts, ", ")
}

// TrendText says that times rose or fell within a series.
func TrendText(rise float64) string {
	how := "rose"
	if rise < 0 {
		how = "fell"
	}
	return fmt.Sprintf("times %s by %.0f %% within the samples", how, 100*math.Abs(rise))
}
