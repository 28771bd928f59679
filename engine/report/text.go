package report

import (
	"fmt"
	"math"
	"strings"
)

// Summary is the report for people, one line a subject, with the status last.
func (r *Report) Summary() string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", label, fmt.Sprintf(format, args...))
	}
	if r.Model != "" {
		line("model", "%s", r.modelText())
	}
	if r.Backend != "" {
		line("device", "%s", r.deviceText())
	}
	for _, p := range r.Paths {
		line("path", "%s", p.text())
	}
	if t := r.variantText(); t != "" {
		line("variants", "%s", t)
	}
	if r.LoadMS > 0 {
		line("load", "%.0f ms", r.LoadMS)
	}
	if r.Prefill.TokensPerSecond != nil {
		line("prefill", "%s", r.Prefill.text())
	}
	if r.Decode.TokensPerSecond != nil {
		how := ""
		if r.Sequence != nil || r.Greedy != nil {
			how = "  each step from the host and back"
		}
		line("decode", "%s%s", r.Decode.text(), how)
	}
	if r.Sequence != nil && r.Sequence.TokensPerSecond != nil {
		line("sequence", "%s  the same steps, all known before, not waited for one by one", r.Sequence.text())
	}
	if r.Greedy != nil && r.Greedy.TokensPerSecond != nil {
		line("greedy", "%s  tokens that the device chooses, several computed at a time", r.Greedy.text())
	}
	if t := r.latency(); t != "" {
		line("latency", "%s", t)
	}
	if r.Disturbed != "" {
		line("disturbed", "%s: these are no figures to compare with others", r.Disturbed)
	}
	if r.WeightBytes > 0 {
		line("weights", "%s a token", Bytes(float64(r.WeightBytes)))
	}
	if r.Stored != "" {
		line("stored", "%s", r.Stored)
	}
	if r.PeakMemory > 0 {
		checks := ""
		if r.PeakMemory > r.ModelMemory {
			checks = fmt.Sprintf("; %s with the checks", Bytes(float64(r.PeakMemory)))
		}
		line("memory", "%s at the peak, %s of it not from files%s", Bytes(float64(r.ModelMemory)), Bytes(float64(r.Private)),
			checks)
	}
	if r.NLL != nil {
		line("nll", "%.6f a token, perplexity %.4f", *r.NLL, math.Exp(*r.NLL))
	}
	if r.OutputHash != "" {
		line("output", "%s", r.outputText())
	}
	for _, c := range r.Checks {
		line("check", "%s", c.text())
	}
	status := "STATUS=" + string(r.Status)
	if r.Reason != "" {
		status += ": " + strings.ReplaceAll(r.Reason, "\n", "; ")
	}
	b.WriteString(status + "\n")
	return b.String()
}

// variantText counts the kernels that tuning chose, and names what was forced.
func (r *Report) variantText() string {
	tuned, parts := 0, []string(nil)
	for _, v := range r.Variants {
		if v.Source == "tuned" {
			tuned++
		} else {
			parts = append(parts, v.Op+"="+v.Variant+" forced")
		}
	}
	if tuned > 0 {
		parts = append(parts, fmt.Sprintf("%d kernels as greta tune found them", tuned))
	}
	return strings.Join(parts, ", ")
}

func (p *Path) text() string {
	state := "off"
	if p.On {
		state = "on"
	}
	s := p.Path + " " + state + " (" + p.Health
	if p.Reason != "" {
		s += ": " + p.Reason
	}
	return s + ")"
}

func (r *Report) modelText() string {
	s := r.Model
	if r.Kind == "block" {
		s += " (one block)"
	}
	if r.Format == "synthetic" {
		s += fmt.Sprintf(", synthetic weights of seed %d", r.Seed)
	} else if r.Source != "" {
		s += ", " + r.Source
	}
	if r.DType != "" {
		s += ", " + r.DType
	}
	return s
}

func (r *Report) deviceText() string {
	parts := []string{r.Backend}
	for _, p := range []string{r.Device, r.Level} {
		if p != "" && p != r.Backend {
			parts = append(parts, p)
		}
	}
	if r.Threads > 0 {
		parts = append(parts, plural(r.Threads, "thread"))
	}
	if r.Context > 0 {
		parts = append(parts, fmt.Sprintf("context %d in %s", r.Context, r.KV))
	}
	return strings.Join(parts, ", ")
}

func (p *Phase) text() string {
	s := fmt.Sprintf("%-7s %9s tokens/s", p.Test, Number(*p.TokensPerSecond))
	if p.GBPerSecond != nil {
		s += fmt.Sprintf("  %s GB/s of weights", Number(*p.GBPerSecond))
	}
	if p.GFlops != nil {
		s += fmt.Sprintf("  %s GFLOP/s", Number(*p.GFlops))
	}
	if p.Roof != nil {
		s += fmt.Sprintf("  %.0f %% of the roof", 100**p.Roof)
	}
	if p.Limit != nil {
		s += "  " + p.Limit.text()
	}
	if p.Repeats > 1 {
		kind := "range"
		if p.Repeats >= 6 {
			kind = "95 %"
		}
		s += fmt.Sprintf("  median of %d, %s %s to %s", p.Repeats, kind, Number(*p.Low), Number(*p.High))
	}
	return s
}

// text gives the percentiles that there are samples enough for.
func (t *Times) text(unit string) string {
	var parts []string
	for _, p := range []struct {
		name  string
		value *float64
	}{{"p50", t.P50}, {"p95", t.P95}, {"p99", t.P99}} {
		if p.value != nil {
			parts = append(parts, fmt.Sprintf("%s %s%s", p.name, Number(*p.value), unit))
		}
	}
	return strings.Join(parts, ", ")
}

func (r *Report) latency() string {
	var parts []string
	if r.TTFTMS != nil {
		parts = append(parts, fmt.Sprintf("first token %s ms", Number(*r.TTFTMS)))
	}
	if t := r.InterToken; t.P50 != nil {
		parts = append(parts, fmt.Sprintf("between tokens %s (n = %d)", t.text(" ms"), t.N))
	}
	if r.HostUS != nil {
		parts = append(parts, fmt.Sprintf("host µs per token until submitted %s, in all but waiting %s",
			r.SubmitUS.text(""), r.HostUS.text("")))
	}
	return strings.Join(parts, "; ")
}

func (r *Report) outputText() string {
	s := r.OutputHash
	if len(r.GeneratedTokens) > 0 {
		s += ", " + plural(len(r.GeneratedTokens), "token")
	}
	if r.StopReason != "" {
		s += ", ended by " + r.StopReason
	}
	return s
}

func (c *Check) text() string {
	s := c.Name + ": "
	switch {
	case c.Skipped:
		s += "SKIPPED"
	case c.OK:
		s += "ok"
	default:
		s += "FAILED"
	}
	if c.RelL2 != nil {
		s += fmt.Sprintf(", relative L2 %.2e", *c.RelL2)
	}
	if c.MaxAbs != nil {
		s += fmt.Sprintf(", max abs %.2e", *c.MaxAbs)
	}
	if c.Note != "" {
		s += ", " + c.Note
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Number prints four significant digits or more, without an exponent.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Sprint(v)
	case a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	case a >= 1 || a == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

// Bytes prints a size in decimal units.
func Bytes(n float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.2f %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.0f bytes", n)
}
