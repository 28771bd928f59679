package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/engine/report"
)

// What the verbs share that read what was measured: history, export, import,
// compare, gate.

// storeFlag is where results are kept.
type storeFlag struct{ path string }

func (f *storeFlag) register(s *pflag.FlagSet) {
	s.StringVar(&f.path, "store", "", "file of results (default: greta/bench.sqlite in the user's data folder)")
}

func (f *storeFlag) file() (string, error) {
	if f.path != "" {
		return f.path, nil
	}
	return store.DefaultPath()
}

// open opens the file to write, and makes it where there is none.
func (f *storeFlag) open() (*store.Store, error) {
	path, err := f.file()
	if err != nil {
		return nil, err
	}
	return store.Open(path)
}

// existing opens a file that must be there.
func (f *storeFlag) existing() (*store.Store, error) {
	path, err := f.file()
	if err != nil {
		return nil, err
	}
	s, err := store.OpenExisting(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage(err)
	}
	return s, err
}

// filterFlags choose results.
type filterFlags struct {
	storeFlag
	bench, device, run, host, commit, label, since, until string
}

func (f *filterFlags) register(s *pflag.FlagSet) {
	s.StringVar(&f.bench, "bench", "",
		`benchmarks that match, such as "op/linear*" or "*/m=1/*": * stands for anything, slashes too`)
	s.StringVar(&f.device, "device", "", "devices with this in their name or address, or a backend")
	s.StringVar(&f.run, "run", "", "the run of this identity, or those whose identities begin so")
	s.StringVar(&f.host, "host", "", "runs on this host")
	s.StringVar(&f.commit, "commit", "", "runs of this commit of greta, or of those that begin so")
	s.StringVar(&f.label, "label", "", "runs with this label; * matches anything")
	s.StringVar(&f.since, "since", "", "runs since then: 2026-03-01, 2026-03-01T12:00:00Z, or 12h, 7d, 4w ago")
	s.StringVar(&f.until, "until", "", "runs until then")
	f.storeFlag.register(s)
}

func (f *filterFlags) filter() (store.Filter, error) {
	out := store.Filter{Run: f.run, Bench: f.bench, Device: f.device, Host: f.host, Commit: f.commit, Label: f.label}
	if i := strings.LastIndexByte(f.bench, '['); i >= 0 && !strings.Contains(f.bench[i:], "]") {
		return out, usagef("--bench %s: the last [ has no ]; [[] matches a bracket", f.bench)
	}
	var err error
	if out.Since, err = parseTime(f.since, time.Now()); err != nil {
		return out, usagef("--since %s: %v", f.since, err)
	}
	if out.Until, err = parseTime(f.until, time.Now()); err != nil {
		return out, usagef("--until %s: %v", f.until, err)
	}
	return out, nil
}

// parseTime reads a moment, or how long ago it was. "" is the zero time.
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, time.DateTime, "2006-01-02T15:04", time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	unit := map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[text[len(text)-1]]
	if n, err := strconv.ParseFloat(text[:len(text)-1], 64); unit > 0 && err == nil && n >= 0 && n < 1e5 {
		return now.Add(-time.Duration(n * float64(unit))), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("a date (2026-03-01), a moment (2026-03-01T12:00:00Z) or a time ago (12h, 7d, 4w) " +
		"is expected")
}

// noiseFlags say what counts as a difference.
type noiseFlags struct {
	alpha, band float64
	disturbed   bool
}

func (f *noiseFlags) register(s *pflag.FlagSet, alpha float64) {
	s.Float64Var(&f.alpha, "alpha", alpha, "chance that any difference is reported where there is none")
	s.Float64Var(&f.band, "band", 100*compare.DefaultBand, "noise band in percent: medians that are nearer count as equal")
	s.BoolVar(&f.disturbed, "disturbed", false,
		"compare what was measured beside other programs, under a quota or bound to some processors with what was not, too")
}

func (f *noiseFlags) options() (compare.Options, error) {
	switch {
	case !(f.alpha > 0 && f.alpha < 1):
		return compare.Options{}, usagef("--alpha %g: it must lie between 0 and 1", f.alpha)
	case !(f.band >= 0 && f.band < 1000):
		return compare.Options{}, usagef("--band %g: it must lie between 0 and 1000 %%", f.band)
	case f.band == 0:
		return compare.Options{Alpha: f.alpha, Band: -1, Disturbed: f.disturbed}, nil
	}
	return compare.Options{Alpha: f.alpha, Band: f.band / 100, Disturbed: f.disturbed}, nil
}

// select finds the runs that an argument of compare means, and says in what sense.
func selectRuns(s *store.Store, arg string, base store.Filter) ([]store.Entry, string, error) {
	runs, err := s.Runs(store.Filter{})
	if err != nil {
		return nil, "", err
	}
	if n, ok := lastRun(arg); ok {
		if n >= len(runs) {
			return nil, "", usagef("%s: there are %d runs", arg, len(runs))
		}
		base.Run = runs[len(runs)-1-n].ID
		entries, err := s.Results(base)
		return entries, "run " + base.Run, err
	}
	kind, value, named := strings.Cut(arg, ":")
	for _, way := range []struct {
		name string
		set  func(f *store.Filter, v string)
		ok   func(v string) bool
	}{
		{"run", func(f *store.Filter, v string) { f.Run = v }, func(string) bool { return true }},
		{"commit", func(f *store.Filter, v string) { f.Commit = v }, func(v string) bool { return len(v) >= 4 }},
		{"label", func(f *store.Filter, v string) { f.Label = v }, func(string) bool { return true }},
		{"device", func(f *store.Filter, v string) { f.Device = v }, func(string) bool { return true }},
	} {
		v := arg
		if named && kind == way.name {
			v = value
		} else if named && strings.Contains(" run commit label device ", " "+kind+" ") || !way.ok(arg) {
			continue
		}
		f := base
		way.set(&f, v)
		entries, err := s.Results(f)
		if err != nil {
			return nil, "", err
		}
		if len(entries) > 0 {
			return entries, sense(way.name, v, entries), nil
		}
	}
	return nil, "", usagef("%s: no results of a run, commit, label or device of this name (also last, last~1, …); "+
		"see greta history", arg)
}

// lastRun reads last and last~N.
func lastRun(arg string) (int, bool) {
	rest, ok := strings.CutPrefix(arg, "last")
	if !ok || rest == "" {
		return 0, ok
	}
	n, err := strconv.Atoi(strings.TrimPrefix(rest, "~"))
	return n, err == nil && strings.HasPrefix(rest, "~") && n >= 0
}

// sense says what a selection is.
func sense(kind, value string, entries []store.Entry) string {
	runs := map[string]bool{}
	for i := range entries {
		runs[entries[i].Run.ID] = true
	}
	if len(runs) == 1 {
		return fmt.Sprintf("%s %s, run %s", kind, value, entries[0].Run.ID)
	}
	return fmt.Sprintf("%s %s, the last result of each benchmark in %d runs", kind, value, len(runs))
}

// outcomeText prints an outcome so that a bad one is seen.
func outcomeText(o compare.Outcome) string {
	if o == compare.Slower || o == compare.Lost {
		return strings.ToUpper(string(o))
	}
	return string(o)
}

// comparisonText prints a comparison with the rules that it follows.
func comparisonText(c *compare.Comparison, old, new string) string {
	t := report.NewTable("<benchmark", "<clock", old, new, "change", "p", "band", "<")
	for i := range c.Rows {
		r := &c.Rows[i]
		name := r.Name
		if r.Device != "" {
			name += "  (" + r.Device + ")"
		}
		side := func(p *compare.Point) string {
			switch {
			case p == nil:
				return "–"
			case p.Time.N == 0 || p.Verdict != "ok":
				return strings.ToUpper(string(p.Verdict))
			}
			return timeText(p)
		}
		change, p := "", ""
		if r.Ratio > 0 {
			change = fmt.Sprintf("%+.1f %%", 100*(r.Ratio-1))
		}
		switch o := r.Outcome; {
		case o != compare.Same && o != compare.Slower && o != compare.Faster && o != compare.Noisy:
		case r.P < 1e-99:
			p = "<1e-99"
		default:
			p = fmt.Sprintf("%.2g", r.P)
		}
		band := fmt.Sprintf("%.1f %%", 100*r.Band)
		if r.BandFrom != "" {
			band += " by " + r.BandFrom
		}
		verdict := outcomeText(r.Outcome)
		if n := r.Runs; n != nil && !n.Assumed && r.Outcome != compare.Noisy {
			verdict += fmt.Sprintf(": noise %.2g %% between %d+%d runs, finds 10 %% %.0f of 100 times",
				100*n.Noise, n.Before, n.Now, 100*n.Power)
		}
		if why := r.Why(); why != "" {
			verdict += ": " + why
		}
		if r.Runs != nil && r.Old.Disturbed+r.New.Disturbed != "" { // alike, or it was asked for
			verdict += fmt.Sprintf(" (%s: %s; %s: %s)", old, cmp.Or(r.Old.Disturbed, "quiet"), new,
				cmp.Or(r.New.Disturbed, "quiet"))
		}
		t.Row(name, r.Clock, side(r.Old), side(r.New), change, p, band, verdict)
	}
	return t.String() + comparisonRules(c)
}

// comparisonRules says how a comparison judges.
func comparisonRules(c *compare.Comparison) string {
	return fmt.Sprintf(`
change   of typical runs; slower where p is at most %g and the change is more than %.1f %%
p        of Student's test on logarithms of runs' medians, adjusted by Holm's method for %d tests; with less than three
         runs of a code with noise that is assumed, and at least that of Mann and Whitney on samples
band     the least change that the noise between runs lets be seen, by Bonferroni's bound
noisy    a slowdown of 10 %% would be missed more than 1 of 10 times
`, c.Alpha, 100*c.Band, c.Tests)
}

// timeText is a median with its interval and number of samples.
func timeText(p *compare.Point) string {
	s := p.Time
	half := max(s.Hi-s.Median, s.Median-s.Lo) / s.Median
	mark := "±"
	if !s.Sure {
		mark = "range ±"
	}
	return fmt.Sprintf("%s %s%.1f %% n=%d", format.Seconds(s.Median), mark, 100*half, s.N)
}
