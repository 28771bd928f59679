// What was measured: percentiles with their n, and whether tokens were really made.

package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Result is a measurement of a server.
type Result struct {
	URL         string            `json:"url"`
	Model       string            `json:"model"`
	Endpoint    string            `json:"endpoint"`
	Started     time.Time         `json:"started"`
	Environment map[string]string `json:"environment,omitempty"`
	Levels      []*Level          `json:"levels"`
}

// OK says whether every level passed its checks.
func (r *Result) OK() bool {
	return len(r.Levels) > 0 && !slices.ContainsFunc(r.Levels, func(l *Level) bool { return len(l.Wrong) > 0 })
}

// Times are milliseconds of n samples. A percentile that n does not bear is null.
type Times struct {
	N    int      `json:"n"`
	Mean float64  `json:"mean"`
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P95  *float64 `json:"p95"`
	P99  *float64 `json:"p99"`
	Max  float64  `json:"max"`
}

func times(samples []time.Duration) Times {
	t := Times{N: len(samples)}
	if t.N == 0 {
		return t
	}
	ms := make([]float64, t.N)
	for i, s := range samples {
		ms[i] = float64(s) / 1e6
		t.Mean += ms[i] / float64(t.N)
	}
	slices.Sort(ms)
	t.Max = ms[t.N-1]
	for _, p := range []struct {
		to   **float64
		q    float64
		need int
	}{{&t.P50, .5, 1}, {&t.P90, .9, 10}, {&t.P95, .95, 20}, {&t.P99, .99, 100}} {
		if t.N >= p.need {
			at := p.q * float64(t.N-1)
			i := int(at)
			v := ms[i]
			if i+1 < t.N {
				v += (at - float64(i)) * (ms[i+1] - v)
			}
			*p.to = &v
		}
	}
	return t
}

// Level is what was measured under one load.
type Level struct {
	Users     int      `json:"users,omitempty"`
	Rate      float64  `json:"rate,omitempty"` // requests a second that were sent
	Burst     float64  `json:"burstiness,omitempty"`
	Requests  int      `json:"requests"`
	Failed    int      `json:"failed"`
	Seconds   float64  `json:"seconds"`
	Input     int      `json:"input_tokens"`
	Output    int      `json:"output_tokens"`
	RequestsS float64  `json:"requests_per_second"`
	OutputS   float64  `json:"output_tokens_per_second"`
	TotalS    float64  `json:"total_tokens_per_second"`
	TTFT      Times    `json:"ttft_ms"`
	TPOT      Times    `json:"tpot_ms"`
	ITL       Times    `json:"itl_ms"`
	E2EL      Times    `json:"e2el_ms"`
	Goodput   *float64 `json:"goodput,omitempty"` // requests a second that met every bound
	Chunks    int      `json:"chunks"`
	Wrong     []string `json:"wrong,omitempty"` // why the figures are worth nothing
}

// summarise makes a level of what clients saw.
func summarise(out []outcome, wants []int, took time.Duration, opt Options) *Level {
	l := &Level{Requests: len(out), Seconds: took.Seconds()}
	var ttft, tpot, itl, e2el []time.Duration
	good, short := 0, 0
	errs := map[string]int{}
	for i, o := range out {
		switch {
		case o.err != nil:
			l.Failed++
			errs[o.err.Error()]++
			continue
		case o.tokens <= 0 || o.prompt < 0 || o.chunks == 0:
			l.Failed++
			errs[fmt.Sprintf("an answer has %d tokens by its usage, its prompt %d, and %d chunks with text", o.tokens, o.prompt,
				o.chunks)]++
			continue
		}
		if !opt.NoEnd && o.tokens != wants[i] {
			short++
		}
		l.Input += o.prompt
		l.Output += o.tokens
		l.Chunks += o.chunks
		first, all := o.first-o.sent, o.last-o.sent
		ttft, e2el, itl = append(ttft, first), append(e2el, all), append(itl, o.gaps...)
		each := time.Duration(0)
		if o.tokens > 1 {
			each = (all - first) / time.Duration(o.tokens-1)
			tpot = append(tpot, each)
		}
		if meets(opt.Bounds, first, each, all) {
			good++
		}
	}
	for text, n := range errs {
		l.Wrong = append(l.Wrong, fmt.Sprintf("%d of %d requests failed: %s", n, len(out), text))
	}
	slices.Sort(l.Wrong)
	if short > 0 {
		l.Wrong = append(l.Wrong, fmt.Sprintf("%d answers have not the tokens that were asked for, though ignore_eos "+
			"was sent: "+
			"does the server know it? --natural-end lets answers end", short))
	}
	l.TTFT, l.TPOT, l.ITL, l.E2EL = times(ttft), times(tpot), times(itl), times(e2el)
	if s := l.Seconds; s > 0 {
		done := float64(l.Requests - l.Failed)
		l.RequestsS, l.OutputS, l.TotalS = done/s, float64(l.Output)/s, float64(l.Input+l.Output)/s
		if len(opt.Bounds) > 0 {
			g := float64(good) / s
			l.Goodput = &g
		}
	}
	return l
}

func meets(bounds map[string]time.Duration, ttft, tpot, e2el time.Duration) bool {
	for name, v := range map[string]time.Duration{"ttft": ttft, "tpot": tpot, "e2el": e2el} {
		if b, ok := bounds[name]; ok && v > b {
			return false
		}
	}
	return true
}

// verify looks whether tokens were really made: usage alone would be a server's word. Some texts are counted
// again, by the server's own tokeniser where it lets us; else each token must have left a trace in bytes.
func (r *runner) verify(ctx context.Context, l *Level, out []outcome) {
	seen := map[string]int{}
	looked := 0
	for _, o := range out {
		if o.err != nil || o.tokens == 0 {
			continue
		}
		if seen[o.text]++; looked >= 8 {
			continue
		}
		looked++
		counted := 0
		if r.tokens {
			var t struct{ Count int }
			body, _ := json.Marshal(map[string]any{"model": r.opt.Model, "prompt": o.text, "add_special_tokens": false})
			if r.call(ctx, "POST", "/tokenize", body, &t) == nil {
				counted = t.Count
			}
		} else {
			counted = o.bytes // a token that adds no byte is rare
		}
		// A text can be written with fewer tokens than it was made of, but not with much fewer.
		if counted*4 < o.tokens {
			l.Wrong = append(l.Wrong, fmt.Sprintf("an answer is said to have %d tokens, its text has %d: %.80q", o.tokens,
				counted, o.text))
			return
		}
	}
	if len(r.opt.Data) == 0 && l.Requests-l.Failed >= 8 && len(seen) == 1 && r.opt.Output > 4 {
		l.Wrong = append(l.Wrong, "all answers to different prompts are the same text")
	}
}

func ms(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.4g", *v)
}

// Line says a level in a line.
func (l *Level) Line() string {
	load := fmt.Sprintf("%d users", l.Users)
	if l.Rate > 0 {
		load = fmt.Sprintf("%g requests a second", l.Rate)
	}
	text := fmt.Sprintf("%s: %d requests, %.4g requests/s, %.5g tokens/s; ms at p50/p99: TTFT %s/%s, ITL %s/%s (n = "+
		"%d), E2EL %s/%s",
		load, l.Requests-l.Failed, l.RequestsS, l.OutputS, ms(l.TTFT.P50), ms(l.TTFT.P99), ms(l.ITL.P50), ms(l.ITL.P99),
		l.ITL.N,
		ms(l.E2EL.P50), ms(l.E2EL.P99))
	if len(l.Wrong) > 0 {
		text += "; WRONG: " + strings.Join(l.Wrong, "; ")
	}
	return text
}
