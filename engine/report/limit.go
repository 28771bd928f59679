package report

import "fmt"

// Limit is what the machine did in the same run when it was asked for nothing
// else, and the fraction of it that a phase reached.
type Limit struct {
	What     string  `json:"what"`            // a read loop over the weights, or an instruction
	Rate     float64 `json:"rate"`            // GB/s, or GFLOP/s
	Unit     string  `json:"unit"`            //
	Reached  float64 `json:"reached"`         // by the phase, in the same unit
	Fraction float64 `json:"fraction"`        // Reached / Rate
	Bytes    float64 `json:"bytes,omitempty"` // of weights, as they are packed, and of caches that a token reads
}

// SetReadLimit compares a decode with a read loop of rate GB/s over the bytes
// of weights and caches that each token reads.
func (p *Phase) SetReadLimit(bytes, rate float64) {
	if p.TokensPerSecond != nil && bytes > 0 && rate > 0 {
		reached := *p.TokensPerSecond * bytes / 1e9
		p.Limit = &Limit{What: "a read loop over the weights", Rate: rate, Unit: "GB/s", Reached: reached,
			Fraction: reached / rate, Bytes: bytes}
	}
}

// SetPeakLimit compares a prefill with the peak of the instruction that its
// products are made of, GFLOP/s.
func (p *Phase) SetPeakLimit(what string, rate float64) {
	if p.GFlops != nil && rate > 0 {
		p.Limit = &Limit{What: "the peak of " + what, Rate: rate, Unit: "GFLOP/s", Reached: *p.GFlops,
			Fraction: *p.GFlops / rate}
	}
}

// LimitSpread is the share of a measured limit up to which a phase may lie above it: what two measurements of the same
// thing differ by.
const LimitSpread = 1.02

// AboveLimit says that a phase was faster than its limit, beyond LimitSpread: then one of the two was measured wrong.
func (p *Phase) AboveLimit() error {
	if p.Limit == nil || p.Limit.Fraction <= LimitSpread {
		return nil
	}
	return fmt.Errorf("%s reached %.2f of %s, measured several times: more than the roof, so that one of the two figures "+
		"is wrong; try again on a quiet machine", p.Test, p.Limit.Fraction, p.Limit.What)
}

func (l *Limit) text() string {
	return fmt.Sprintf("%.2f of %s, %s %s", l.Fraction, l.What, Number(l.Rate), l.Unit)
}
