package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

// shelf is a store for tests, with runs at given times of a benchmark.
type shelf struct {
	t    *testing.T
	s    *store.Store
	path string
	at   time.Time
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bench.sqlite")
	s, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &shelf{t, s, path, time.Now().UTC().Add(-10 * 24 * time.Hour).Truncate(time.Second)}
}

// run adds a run a day after the one before: commit, device, and the time of each
// benchmark in seconds; below 0 it failed. It gives the run's identity.
func (h *shelf) run(commit, device string, times map[string]float64) string {
	h.t.Helper()
	h.at = h.at.Add(24 * time.Hour)
	r := record.Run{ID: record.NewID(h.at), Kind: "op", Label: "l-" + commit, Started: h.at,
		Env: record.Env{Host: "box", Backend: "cpu", Device: device, Commit: commit, Kernels: commit}}
	w, err := h.s.Begin(r)
	if err != nil {
		h.t.Fatal(err)
	}
	for bench, s := range times {
		res := &record.Result{Bench: bench, Clock: record.HostClock, Check: record.Check{Against: "float64", Limit: 0.01},
			Bytes: 1e6, Roofs: record.Roofs{ReadGBs: 100}}
		if s < 0 {
			res.Check.RelL2, s = 2, -s
		}
		for i := range 20 {
			res.Samples = append(res.Samples, s*(1+0.0001*float64(i)))
		}
		if err := w.Add(res); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := w.End(record.Complete); err != nil {
		h.t.Fatal(err)
	}
	return r.ID
}

// greta runs a verb on the store; code is the exit code that is expected.
func (h *shelf) greta(code int, args ...string) result {
	h.t.Helper()
	r := greta(h.t, append(args, "--store", h.path)...)
	if r.code != code {
		h.t.Fatalf("greta %s: exit code %d, expected %d\n%s%s", strings.Join(args, " "), r.code, code, r.out, r.err)
	}
	return r
}

func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in\n%s", p, text)
		}
	}
}

func hasNot(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if strings.Contains(text, p) {
			t.Errorf("%q is in\n%s", p, text)
		}
	}
}

func TestHistory(t *testing.T) {
	h := newShelf(t)
	a := h.run("aaaa1111", "CPU A", map[string]float64{"op/add": 1e-3, "op/mul": 1e-3})
	h.run("bbbb2222", "CPU B", map[string]float64{"op/add": 5e-4})
	c := h.run("cccc3333", "CPU A", map[string]float64{"op/add": 2.4e-3, "op/mul": 1e-3, "model/pp512": -1})
	all := h.greta(0, "history")
	has(t, all.out, "op/add  CPU A, cpu, host time", "op/add  CPU B", "op/mul", "+140.0 %", "1.00 ms", a, c,
		"FAILED: the result is wrong", "aaaa1111")
	has(t, h.greta(0, "history", "--bench", "op/a*").out, "op/add")
	hasNot(t, h.greta(0, "history", "--bench", "op/a*").out, "op/mul", "model/")
	hasNot(t, h.greta(0, "history", "--device", "cpu b").out, "CPU A")
	hasNot(t, h.greta(0, "history", "--since", "8d").out, a)
	hasNot(t, h.greta(0, "history", "--until", "8d").out, c)
	hasNot(t, h.greta(0, "history", "--last", "1").out, a)
	hasNot(t, h.greta(0, "history", "--run", a).out, c)
	hasNot(t, h.greta(0, "history", "--commit", "aaaa").out, c)
	hasNot(t, h.greta(0, "history", "--label", "l-aaaa1111").out, c)
	if r := h.greta(0, "history", "--host", "elsewhere"); r.out != "" || !strings.Contains(r.err, "no results match") {
		t.Errorf("%q %q", r.out, r.err)
	}
	has(t, h.greta(exitUsage, "history", "--bench", "op/[a").err, "--bench op/[a", "no ]")
	has(t, h.greta(0, "history", "--bench", "op/[a]*").out, "op/add")
	worse := h.greta(0, "history", "--regress")
	has(t, worse.out, "op/add", "+140.0 %", "SLOWER", "Holm", "3.0 %")
	hasNot(t, worse.out, "op/mul", "CPU B")
	banded := h.greta(0, "history", "--regress", "--band", "200")
	has(t, banded.out+banded.err, "of 2 last results nothing can be told", "nothing is known to have got slower")
	var lines []historyLine
	if err := json.Unmarshal([]byte(h.greta(0, "history", "--json", "--bench", "op/add").out), &lines); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || len(lines[0].Points) != 2 || lines[0].Points[1].Run != c ||
		*lines[0].Best != lines[0].Points[0].Time.Median || lines[0].Points[0].Time.N != 20 {
		t.Errorf("%+v", lines)
	}
	for _, args := range [][]string{{"--since", "yesterday"}, {"--last", "-1"}, {"--band", "-1"}, {"--alpha", "1"},
		{"extra"}} {
		h.greta(exitUsage, append([]string{"history"}, args...)...)
	}
	t.Setenv("GRETA_STORE", h.path)
	has(t, greta(t, "history").out, "op/add")
	r := greta(t, "history", "--store", filepath.Join(t.TempDir(), "absent"))
	if r.code != exitUsage || !strings.Contains(r.err, "nothing has been measured yet") {
		t.Errorf("%d %s", r.code, r.err)
	}
}

// TestHistoryKeepsThreadsApart: a run on one thread is no regression of one on two.
func TestHistoryKeepsThreadsApart(t *testing.T) {
	r := record.Run{Env: record.Env{Backend: "cpu", Device: "CPU", Threads: 1}}
	two := r
	two.Env.Threads = 2
	at := func(run *record.Run, s float64) store.Entry {
		return store.Entry{Run: run, Result: record.Result{Bench: "op/add", Clock: record.HostClock, Verdict: record.OK,
			Samples: []float64{s}}}
	}
	lines := historyOf([]store.Entry{at(&two, 1), at(&r, 2), at(&two, 1.5)}, 0)
	if len(lines) != 2 || *lines[0].Best != 1 || len(lines[0].Points) != 2 || *lines[1].Best != 2 {
		t.Errorf("%+v", lines)
	}
	has(t, historyText(lines), "1 threads", "2 threads", "+50.0 %")
	hasNot(t, historyText(lines), "+100.0 %")
}

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 5, 20, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"": {}, "7d": now.AddDate(0, 0, -7), "2w": now.AddDate(0, 0, -14), "90m": now.Add(-90 * time.Minute),
		"0.5d":                 now.Add(-12 * time.Hour),
		"2026-03-01":           time.Date(2026, 3, 1, 0, 0, 0, 0, time.Local),
		"2026-03-01T12:00:00Z": time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	} {
		if got, err := parseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v %v, expected %v", text, got, err, want)
		}
	}
	for _, text := range []string{"d", "-1d", "x", "7", "1e9d", "2026-13-01"} {
		if got, err := parseTime(text, now); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestCompareVerb(t *testing.T) {
	h := newShelf(t)
	a := h.run("aaaa1111", "CPU A", map[string]float64{"op/add": 1e-3, "op/mul": 1e-3, "op/old": 1})
	b := h.run("bbbb2222", "CPU A", map[string]float64{"op/add": 2.5e-3, "op/mul": 1.01e-3, "op/new": 1})
	h.run("bbbb2222", "CPU B", map[string]float64{"op/add": 8e-3})
	text := h.greta(0, "compare", a, b).out
	has(t, text, "A  run "+a, "+150.0 %", "SLOWER", "cannot tell: 1 of 3 runs", "missing", "new", "Student's",
		"2 tests", "band")
	for _, way := range [][2]string{{"last~2", "last~1"}, {"commit:aaaa", "run:" + b}, {"aaaa1111", "commit:bbbb2222"},
		{"label:l-aaaa1111", "l-bbbb2222"}} {
		has(t, h.greta(0, "compare", way[0], way[1]).out, "op/add", "+150.0 %")
	}
	has(t, h.greta(0, "compare", "last~1", "device:CPU B", "--bench", "op/add").out, "+220.0 %", "SLOWER")
	hasNot(t, h.greta(0, "compare", a, b, "--bench", "op/mul").out, "op/add")
	has(t, h.greta(0, "compare", a, b, "--band", "0").out, "+1.0 %", "0.0 %")
	var c struct {
		A, B string
		compare.Comparison
	}
	if err := json.Unmarshal([]byte(h.greta(0, "compare", a, b, "--json").out), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Rows) != 4 || c.Rows[0].Outcome != compare.Slower || c.Tests != 2 || c.Band != 0.03 {
		t.Errorf("%+v", c)
	}
	has(t, h.greta(exitUsage, "compare", a, "nothing").err, "nothing: no results", "greta history")
	has(t, h.greta(exitUsage, "compare", a, "last~7").err, "3 runs")
	h.greta(exitUsage, "compare", a)
	for range 3 {
		h.run("cccc3333", "CPU A", map[string]float64{"op/mul": 1e-3})
		h.run("dddd4444", "CPU A", map[string]float64{"op/mul": 1.01e-3})
	}
	has(t, h.greta(0, "compare", "cccc3333", "dddd4444").out, "+1.0 %", "same: noise ", "between 3+3 runs")
}

// TestGateVerb: a run that is slower than the best code ends with code 5, also when
// the one before was as slow.
func TestGateVerb(t *testing.T) {
	h := newShelf(t)
	has(t, h.greta(exitUsage, "gate").err, "there are 0 runs")
	best := h.run("a", "CPU", map[string]float64{"op/add": 1e-3, "op/mul": 1e-3})
	if r := h.greta(0, "gate"); !strings.Contains(r.err, "nothing was compared") {
		t.Error(r.err)
	}
	h.run("b", "CPU", map[string]float64{"op/add": 1.05e-3, "op/mul": 1e-3})
	has(t, h.greta(0, "gate").err, "2 of 2 results cannot be told", "2 have less than 3 runs of one code before them")
	has(t, h.greta(exitNoisy, "gate", "--noisy", "fail").out, "noisy: cannot tell: 1 of 3 runs that are needed")
	for range 3 {
		h.run("a", "CPU", map[string]float64{"op/add": 1e-3, "op/mul": 1e-3})
	}
	h.run("b", "CPU", map[string]float64{"op/add": 1.1e-3, "op/mul": 1e-3})
	slow := h.run("c", "CPU", map[string]float64{"op/add": 1.1e-3, "op/mul": 1e-3})
	r := h.greta(exitGate, "gate")
	has(t, r.out, "run "+slow, "op/add", "+10.0 %", "SLOWER", "band", "3.0 %", "4+1 runs")
	has(t, r.err, "1 of 2 results are slower than the best code")
	h.greta(0, "gate", best)
	h.greta(exitGate, "gate", "last~1")
	h.greta(0, "gate", "--band", "15")
	h.greta(0, "gate", "--bench", "op/mul")
	if r := h.greta(exitUsage, "gate", "--host", "elsewhere"); !strings.Contains(r.err, "no results") {
		t.Error(r.err)
	}
	h.greta(exitUsage, "gate", "xyz")
	h.greta(exitUsage, "gate", slow[:2])
	h.run("d", "CPU", map[string]float64{"op/add": -1})
	has(t, h.greta(exitGate, "gate").out, "LOST: failed")
	h.run("e", "CPU", map[string]float64{"op/add": 0.9e-3})
	has(t, h.greta(0, "gate").out, "faster")
	for i := range 6 {
		h.run("n", "CPU", map[string]float64{"op/loud": 1e-3 * float64(10+i%3)})
	}
	has(t, h.greta(0, "gate").err, "warning: 1 of 1 results cannot be told from noise")
	has(t, h.greta(exitNoisy, "gate", "--noisy", "fail").out, "noisy: cannot tell: noise of ")
	h.greta(exitUsage, "gate", "--noisy", "maybe")
	var c struct {
		Run string
		compare.Comparison
	}
	if err := json.Unmarshal([]byte(h.greta(exitGate, "gate", slow, "--json").out), &c); err != nil || c.Run != slow ||
		c.Rows[0].Outcome != compare.Slower {
		t.Errorf("%v %+v", err, c)
	}
}

func TestExportImport(t *testing.T) {
	h := newShelf(t)
	h.run("aaaa1111", "CPU", map[string]float64{"op/add": 1e-3})
	h.run("bbbb2222", "CPU", map[string]float64{"op/add": 2e-3, "op/mul": -1})
	rows, err := csv.NewReader(strings.NewReader(h.greta(0, "export", "csv").out)).ReadAll()
	if err != nil || len(rows) != 4 || len(strings.Fields(rows[1][len(rows[1])-2])) != 20 {
		t.Errorf("%v: %d rows", err, len(rows))
	}
	if rows, _ = csv.NewReader(strings.NewReader(h.greta(0, "export", "csv", "--commit",
		"aaaa").out)).ReadAll(); len(rows) != 2 {
		t.Errorf("of one commit: %d rows", len(rows))
	}
	has(t, h.greta(0, "export", "sql").out, "CREATE TABLE runs", "INSERT INTO results")
	file := filepath.Join(t.TempDir(), "out.json")
	if r := h.greta(0, "export", "json", "--out", file); r.out != "" {
		t.Errorf("standard output holds %q", r.out)
	}
	home := &shelf{t: t, path: filepath.Join(t.TempDir(), "new", "bench.sqlite")}
	for _, from := range []string{file, h.path} {
		want := "2 runs added, 0 were known, 3 results added"
		if from == h.path {
			want = "0 runs added, 2 were known, 0 results added"
		}
		has(t, home.greta(0, "import", from).out, want)
	}
	if a, b := h.greta(0, "export", "json").out, home.greta(0, "export", "json").out; a != b {
		t.Errorf("%s\ncame home as\n%s", a, b)
	}
	var sum store.Absorbed
	if err := json.Unmarshal([]byte(home.greta(0, "import", file, "--json").out), &sum); err != nil || sum.Known != 2 {
		t.Errorf("%v %+v", err, sum)
	}
	other := write(t, "x.json", "{}")
	has(t, home.greta(exitUsage, "import", other).err, other)
	home.greta(exitUsage, "import", filepath.Join(t.TempDir(), "absent"))
	h.greta(exitUsage, "export", "xml")
	h.greta(exitUsage, "export", "json", "--out", filepath.Join(file, "below", "a file"))
	if err := os.Remove(file); err != nil {
		t.Error(err)
	}
}
