package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/sorting"
)

// historyLine is what was measured of one benchmark on one device over time.
type historyLine struct {
	Name    string         `json:"name"`
	Clock   string         `json:"clock"`
	Backend string         `json:"backend"`
	Device  string         `json:"device"`
	Level   string         `json:"level,omitempty"`
	Driver  string         `json:"driver,omitempty"`
	Threads int            `json:"threads,omitempty"`
	Best    *float64       `json:"best_seconds"` // the least median that is OK
	Points  []historyPoint `json:"points"`       // oldest first
}

// historyPoint is one result.
type historyPoint struct {
	Run     string         `json:"run"`
	Started time.Time      `json:"started"`
	Host    string         `json:"host"`
	Status  record.Status  `json:"status"` // of the run
	Commit  string         `json:"commit,omitempty"`
	Kernel  string         `json:"kernel,omitempty"`
	Time    stats.Summary  `json:"seconds"`
	Verdict record.Verdict `json:"verdict"`
	Reason  string         `json:"reason,omitempty"`
}

// historyCmd is the command with its flags and its help, in one piece.
func (a *app) historyCmd() *cobra.Command {
	var f struct {
		filterFlags
		noiseFlags
		last          int
		regress, json bool
	}
	c := &cobra.Command{
		Use:   "history",
		Short: "Show what was measured over time",
		Long: `history lists results by benchmark, device, driver and number of threads, oldest
first, each against the best of those that match, also where --last hides it.
With --regress it lists only what got worse: benchmarks whose last result is
slower than the best ever on the same device and driver by more than noise (as
greta gate judges it, but of every benchmark's last run).`,
		Example: `  greta history --bench "op/linear/*" --device H200 --since 30d
  greta history --regress`,
		Args: exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			opt, err := f.options()
			if err != nil {
				return err
			}
			if f.last < 0 {
				return usagef("--last %d: it must not be negative", f.last)
			}
			filter, err := f.filter()
			if err != nil {
				return err
			}
			s, err := f.existing()
			if err != nil {
				return err
			}
			defer s.Close()
			entries, err := s.Results(filter)
			if err != nil {
				return err
			}
			if f.regress {
				c := compare.Regressions(entries, opt)
				if f.json {
					return writeJSON(a.out, c)
				}
				if c.Unjudged > 0 {
					fmt.Fprintf(a.err, "greta: %d last results have too few samples to show a difference: measure with more (-r)\n",
						c.Unjudged)
				}
				if c.Noisy > 0 {
					fmt.Fprintf(a.err, "greta: of %d last results nothing can be told: too much noise between runs, or too few "+
						"runs to know it; see greta gate\n", c.Noisy)
				}
				if len(c.Rows) == 0 && c.Unjudged+c.Noisy > 0 {
					_, err = fmt.Fprintln(a.out, "nothing is known to have got slower")
					return err
				}
				if len(c.Rows) == 0 {
					_, err = fmt.Fprintf(a.out, "nothing got slower: the last results of %d benchmarks that were measured before "+
						"are as good as the best\n", c.Tests)
					return err
				}
				_, err = io.WriteString(a.out, comparisonText(c, "best", "last"))
				return err
			}
			lines := historyOf(entries, f.last)
			if f.json {
				return writeJSON(a.out, lines)
			}
			if len(lines) == 0 {
				fmt.Fprintf(a.err, "greta: no results match in %s\n", s.Path())
			}
			_, err = io.WriteString(a.out, historyText(lines))
			return err
		},
	}
	s := c.Flags()
	s.SortFlags = false
	f.filterFlags.register(s)
	s.IntVar(&f.last, "last", 10, "results of each benchmark, the last ones; 0: all")
	s.BoolVar(&f.regress, "regress", false, "only what got slower than the best ever, or is no longer OK")
	f.noiseFlags.register(s, compare.DefaultAlpha)
	s.BoolVar(&f.json, "json", false, "write JSON")
	return c
}

// historyOf groups results by benchmark and by what the gate compares: device, level, driver
// and number of threads.
func historyOf(entries []store.Entry, last int) []historyLine {
	lines := []historyLine{}
	at := map[string]int{}
	for i := range entries {
		e := &entries[i]
		env := &e.Run.Env
		key := strings.Join([]string{e.Name(), e.Clock, env.Backend, env.Device, env.Level, env.Driver,
			fmt.Sprint(env.Threads)}, "\x00")
		k, known := at[key]
		if !known {
			k = len(lines)
			at[key] = k
			lines = append(lines, historyLine{Name: e.Name(), Clock: e.Clock, Backend: env.Backend, Device: env.Device,
				Level: env.Level, Driver: env.Driver, Threads: env.Threads})
		}
		l := &lines[k]
		p := historyPoint{e.Run.ID, e.Run.Started, env.Host, e.Run.Status, env.Commit, e.Kernel, stats.Summarize(e.Samples),
			e.Verdict, e.Reason}
		if m := p.Time.Median; p.Verdict == record.OK && (l.Best == nil || m < *l.Best) {
			l.Best = &m
		}
		l.Points = append(l.Points, p)
	}
	for i := range lines {
		if l := &lines[i]; last > 0 && len(l.Points) > last {
			l.Points = l.Points[len(l.Points)-last:]
		}
	}
	sorting.Sort(lines, func(a, b historyLine) int {
		return strings.Compare(a.Name+"\x00"+a.Device, b.Name+"\x00"+b.Device)
	})
	return lines
}

func historyText(lines []historyLine) string {
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s  %s, %s", l.Name, l.Device, l.Backend)
		if l.Driver != "" {
			fmt.Fprintf(&b, ", %s", l.Driver)
		}
		if l.Threads > 0 {
			fmt.Fprintf(&b, ", %d threads", l.Threads)
		}
		if l.Clock != "" {
			fmt.Fprintf(&b, ", %s time", l.Clock)
		}
		b.WriteByte('\n')
		t := report.NewTable("<  when", "<run", "<commit", "median", "95 %", "n", "against best", "<")
		for _, p := range l.Points {
			median, interval, against := "", "", ""
			if p.Time.N > 0 {
				median = format.Seconds(p.Time.Median)
				interval = format.Seconds(p.Time.Lo) + " – " + format.Seconds(p.Time.Hi)
				if !p.Time.Sure {
					interval += " (range)"
				}
			}
			if p.Verdict == record.OK && l.Best != nil {
				against = fmt.Sprintf("%+.1f %%", 100*(p.Time.Median / *l.Best - 1))
			}
			verdict := string(p.Verdict)
			if p.Verdict != record.OK {
				verdict = strings.ToUpper(verdict) + ": " + p.Reason
			}
			if p.Status != record.Complete {
				verdict += " (run " + string(p.Status) + ")"
			}
			t.Row("  "+p.Started.Local().Format("2006-01-02 15:04"), p.Run, shortCommit(p.Commit), median, interval,
				fmt.Sprint(p.Time.N), against, verdict)
		}
		b.WriteString(t.String())
	}
	return b.String()
}

// shortCommit is enough of a commit to know it by.
func shortCommit(c string) string {
	id, dirty, _ := strings.Cut(c, "+")
	if id = id[:min(len(id), 10)]; dirty != "" {
		id += "+"
	}
	return id
}
