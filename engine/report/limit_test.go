package report

import (
	"strings"
	"testing"
	"time"
)

func TestLimit(t *testing.T) {
	var p, d Phase
	p.SetPhase("pp8", 8, []time.Duration{time.Second})
	d.SetPhase("tg4", 4, []time.Duration{2 * time.Second})
	p.SetPeakLimit("multiply-adds of f32", 4)
	d.SetReadLimit(0, 10)
	if p.Limit != nil || d.Limit != nil {
		t.Errorf("without operations or bytes there is nothing to compare: %v, %v", p.Limit, d.Limit)
	}
	if err := p.SetRoof(0, 0, 250e6, 0, 0); err != nil {
		t.Fatal(err)
	}
	p.SetPeakLimit("multiply-adds of f32", 4)
	d.SetReadLimit(3e9, 10)
	if p.Limit.Fraction != 0.5 || d.Limit.Fraction != 0.6 || d.Limit.Reached != 6 || d.Limit.Bytes != 3e9 {
		t.Errorf("prefill %+v, decode %+v", p.Limit, d.Limit)
	}
	if s := d.text(); !strings.Contains(s, "0.60 of a read loop over the weights, 10.00 GB/s") {
		t.Error(s)
	}
}
