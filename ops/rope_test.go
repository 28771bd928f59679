package ops_test

import (
	"math"
	"testing"

	"github.com/greta-project/greta/ops"
)

// TestRopeFrequencies compares with values from a transcription, line by line, of
// what transformers publishes in modeling_rope_utils.py, computed in float64.
func TestRopeFrequencies(t *testing.T) {
	yarn := func(a ops.RoPEAttr) ops.RoPEAttr {
		a.Scaling, a.BetaFast, a.BetaSlow = "yarn", 32, 1
		return a
	}
	for _, c := range []struct {
		name   string
		attr   ops.RoPEAttr
		dh     int
		want   map[int]float64
		mscale float64
	}{
		{"none", ops.RoPEAttr{Base: 10000, Scaling: "none"}, 4, map[int]float64{0: 1, 1: 0.01}, 1},
		{"default partial", ops.RoPEAttr{Base: 10000, Scaling: "default", Dims: 4}, 64, map[int]float64{0: 1, 1: 0.01}, 1},
		{"linear", ops.RoPEAttr{Base: 10000, Scaling: "linear", Factor: 4}, 4, map[int]float64{0: 0.25, 1: 0.0025}, 1},
		{"llama 3.1", ops.RoPEAttr{Base: 500000, Scaling: "llama3", Factor: 8, Low: 1, High: 4, Original: 8192}, 128,
			map[int]float64{
				0: 1.0, 1: 0.8146172338565447, 25: 0.005940730375674967, 28: 0.0032114459947525913, 30: 0.0013718935677611381,
				32: 0.0005248461609929547, 34: 0.00017850781276799638, 35: 9.556212353964683e-05, 36: 7.78465527393245e-05,
				40: 3.428102195952591e-05, 63: 3.068925988914511e-07}, 1},
		{"yarn", yarn(ops.RoPEAttr{Base: 10000, Factor: 4, Original: 4096, Truncate: true}), 64, map[int]float64{
			0: 1.0, 5: 0.23713737056616555, 10: 0.056234132519034905, 12: 0.02797399468610489, 15: 0.009488517882700576,
			20: 0.0013378867023789293, 25: 0.00018747355233311394, 31: 3.33380358040831e-05}, 1.138629436111989},
		{"yarn, mscale", yarn(ops.RoPEAttr{Base: 1000000, Factor: 40, Original: 4096, MScale: 0.707, MScaleAllDim: 1}), 128,
			map[int]float64{
				0: 1.0, 10: 0.1154781984689458, 20: 0.008446235311291836, 25: 0.0014942140503281845, 30: 4.0174088616869416e-05,
				40: 4.445698525097307e-06, 47: 9.81047439621134e-07, 63: 3.102344401879299e-08}, 0.9210423553163399},
		{"yarn, no truncation", yarn(ops.RoPEAttr{Base: 150000, Factor: 32, Original: 4096}), 64, map[int]float64{
			0: 1.0, 5: 0.15532298948448497, 8: 0.050813274815461475, 10: 0.019335001126540362, 12: 0.006794959489732219,
			15: 0.0010526021013863359, 18: 3.8308812373753384e-05, 20: 1.818833668168956e-05, 31: 3.0235114281192144e-07},
			1.3465735902799727},
		{"yarn, factor given", yarn(ops.RoPEAttr{Base: 10000, Factor: 4, Original: 4096, AttnFactor: 1.5}), 64, nil, 1.5},
		{"yarn, no extension", yarn(ops.RoPEAttr{Base: 10000, Factor: 1, Original: 4096, Truncate: true}), 64,
			map[int]float64{16: 0.01}, 1},
	} {
		freqs, mscale := ops.RopeFrequencies(&c.attr, c.dh)
		if math.Abs(mscale-c.mscale) > 1e-15 {
			t.Errorf("%s: factor %.17g, want %.17g", c.name, mscale, c.mscale)
		}
		for i, want := range c.want {
			if math.Abs(freqs[i]/want-1) > 1e-12 {
				t.Errorf("%s: frequency %d is %.17g, want %.17g", c.name, i, freqs[i], want)
			}
		}
	}
}
