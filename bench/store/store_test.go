package store

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/greta-project/greta/bench/record"
)

// TestMain lets the test binary be a process that writes results: without end, or
// as many as it is told and then the run's end.
func TestMain(m *testing.M) {
	if path := os.Getenv("GRETA_TEST_STORE"); path != "" {
		if err := writeMany(path, os.Getenv("GRETA_TEST_RESULTS")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func writeMany(path, count string) error {
	n := 1 << 30
	if count != "" {
		fmt.Sscan(count, &n)
	}
	s, err := Open(path)
	if err != nil {
		return err
	}
	w, err := s.Begin(run("child"))
	if err != nil {
		return err
	}
	for i := range n {
		if err := w.Add(result(i)); err != nil {
			return err
		}
		fmt.Println(i)
	}
	return errors.Join(w.End(record.Complete), s.Close())
}

func run(label string) record.Run {
	now := time.Now().UTC()
	return record.Run{
		ID: record.NewID(now), Kind: "op", Command: []string{"bench", "op", "--m", "1"}, Profile: "smoke", Label: label,
		Started: now,
		Env: record.Env{Host: "box", Backend: "cpu", Device: "Some CPU @ 2 GHz", DeviceID: "0000:01:00.0", Driver: "1.2",
			Commit: "abcdef123+dirty", Cores: 2, Readings: map[string]string{"governor": "performance"}},
	}
}

func result(i int) *record.Result {
	return &record.Result{
		Bench: "op/linear", Params: map[string]string{"m": fmt.Sprint(i)}, Kernel: "linear.f16.avx512",
		Clock: record.DeviceClock, Cache: record.Warm,
		Samples: []float64{1e-3 + float64(i)*1e-9, 1.0 / 3, 2e-3}, Host: []float64{3e-3, 3e-3, 3e-3}, Bytes: 1e6, Flops: 2e6,
		WorkingSet: 4e6,
		Roofs:      record.Roofs{ReadGBs: 100, GFlops: 200, MeasuredGFlops: 7},
		Check: record.Check{Against: "float64", RelL2: 1e-6,
			MaxAbs: 1e-5, Limit: 1e-4},
		Metrics: map[string]float64{"cycles": 12.5},
	}
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestEverythingComesBack: what is read is what was added, to the last bit.
func TestEverythingComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder #1 %41?x", "bench.sqlite") // each has a meaning in a URL
	s := open(t, path)
	want := run("one")
	w, err := s.Begin(want)
	must(t, err)
	good, bad, gone := result(1), result(2), result(3)
	bad.Check.RelL2, bad.Metrics["cycles"], bad.Samples[0] = math.NaN(), math.Inf(1), math.NaN()
	gone.Backend = "ref"
	for _, r := range []*record.Result{good, bad, gone} {
		must(t, w.Add(r))
	}
	runs, err := s.Runs(Filter{})
	must(t, err)
	if want.Status = record.Incomplete; len(runs) != 1 || !reflect.DeepEqual(runs[0], want) {
		t.Fatalf("%+v\nexpected\n%+v", runs, want)
	}
	must(t, w.End(record.Complete))
	if err := w.Add(result(4)); err == nil {
		t.Error("a run that has ended took a result")
	}
	must(t, s.Close())
	s = open(t, path)
	runs, err = s.Runs(Filter{})
	must(t, err)
	if runs[0].Status != record.Complete || time.Since(runs[0].Ended) > time.Minute {
		t.Errorf("the run ended as %s at %v", runs[0].Status, runs[0].Ended)
	}
	got, err := s.Results(Filter{})
	must(t, err)
	if len(got) != 3 {
		t.Fatalf("%d results", len(got))
	}
	if !reflect.DeepEqual(&got[0].Result, good) || good.Verdict != record.OK {
		t.Errorf("%+v\nexpected\n%+v", got[0].Result, good)
	}
	if v := got[1]; v.Verdict != record.Failed || !strings.Contains(v.Reason, "not finite") ||
		!math.IsNaN(v.Check.RelL2) || len(v.Samples) != 2 {
		t.Errorf("a failed result came back as %+v", v.Result)
	}
	if v := got[2]; v.Verdict != record.Skipped || !strings.Contains(v.Reason, "ran on ref") {
		t.Errorf("a fallback came back as %s %q", v.Verdict, v.Reason)
	}
}

func TestFilters(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "bench.sqlite"))
	a, b := run("a"), run("b")
	a.Started = a.Started.Add(-48 * time.Hour)
	b.Env.Backend, b.Env.Device, b.Env.Commit, b.Kind = "vulkan", "Radeon 890M", "fedcba", "platform"
	for _, r := range []record.Run{a, b} {
		w, err := s.Begin(r)
		must(t, err)
		must(t, w.Add(result(1)))
		other := result(2)
		other.Bench, other.Check.RelL2 = "platform/stream/read", 1
		must(t, w.Add(other))
		must(t, w.End(record.Complete))
	}
	for _, c := range []struct {
		name          string
		f             Filter
		runs, results int
	}{
		{"all", Filter{}, 2, 4},
		{"identity", Filter{Run: a.ID}, 1, 2},
		{"its beginning", Filter{Run: b.ID[:len(b.ID)-2]}, 1, 2},
		{"kind", Filter{Kind: "platform"}, 1, 2},
		{"glob", Filter{Bench: "platform/*"}, 2, 2},
		{"glob on parameters", Filter{Bench: "*/m=1/*"}, 2, 2},
		{"part of the device", Filter{Device: "radeon"}, 1, 2},
		{"backend as device", Filter{Device: "CPU"}, 1, 2},
		{"bus", Filter{Device: "0000:01"}, 2, 4},
		{"backend", Filter{Backend: "vulkan"}, 1, 2},
		{"commit", Filter{Commit: "abc"}, 1, 2},
		{"label", Filter{Label: "b"}, 1, 2},
		{"since", Filter{Since: time.Now().Add(-time.Hour)}, 1, 2},
		{"until", Filter{Until: time.Now().Add(-time.Hour)}, 1, 2},
		{"verdict", Filter{Verdict: record.Failed}, 2, 2},
		{"both", Filter{Bench: "op/*", Device: "radeon"}, 1, 1},
		{"none", Filter{Bench: "op"}, 0, 0},
		{"quotes", Filter{Label: `'; DROP TABLE runs; --`}, 0, 0},
	} {
		runs, err := s.Runs(c.f)
		must(t, err)
		results, err := s.Results(c.f)
		must(t, err)
		if len(runs) != c.runs || len(results) != c.results {
			t.Errorf("%s: %d runs and %d results, expected %d and %d", c.name, len(runs), len(results), c.runs, c.results)
		}
	}
}

// TestAppendOnly: no statement changes or removes what was measured.
func TestAppendOnly(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "bench.sqlite"))
	w, err := s.Begin(run(""))
	must(t, err)
	must(t, w.Add(result(1)))
	must(t, w.End(record.Complete))
	for _, q := range []string{
		`DELETE FROM results`, `DELETE FROM runs`, `DELETE FROM ends`,
		`UPDATE results SET samples = '[1]'`, `UPDATE results SET verdict = 'ok'`, `UPDATE runs SET started = ''`,
		`UPDATE ends SET status = 'complete'`,
	} {
		if _, err := s.db.Exec(q); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", q, err)
		}
	}
	if _, err := s.Begin(run("")); err != nil {
		t.Error(err)
	}
	again := w.run
	if _, err := s.Begin(again); err == nil {
		t.Error("an identity was used twice")
	}
}

// child starts a process that writes results, and gives what it says.
func child(t *testing.T, path, results string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "GRETA_TEST_STORE="+path, "GRETA_TEST_RESULTS="+results)
	out, err := c.StdoutPipe()
	must(t, err)
	c.Stderr = os.Stderr
	must(t, c.Start())
	t.Cleanup(func() { c.Process.Kill() })
	return c, bufio.NewScanner(out)
}

// TestTwoProcesses: three make the file at the same moment and write; nothing is lost.
func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.sqlite")
	const n = 40
	var all []*exec.Cmd
	for range 3 {
		c, out := child(t, path, fmt.Sprint(n))
		go func() {
			for out.Scan() {
			}
		}()
		all = append(all, c)
	}
	for _, c := range all {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	s := open(t, path)
	runs, err := s.Bundles(Filter{})
	must(t, err)
	if len(runs) != len(all) {
		t.Fatalf("%d runs of %d", len(runs), len(all))
	}
	for _, r := range runs {
		if len(r.Results) != n || r.Status != record.Complete {
			t.Errorf("run %s has %d results of %d and is %s", r.ID, len(r.Results), n, r.Status)
		}
		for i := range r.Results {
			if got := r.Results[i].Params["m"]; got != fmt.Sprint(i) {
				t.Errorf("result %d is %s", i, got)
			}
		}
	}
}

// TestKilledRun: what a killed process had said to be kept is kept.
func TestKilledRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.sqlite")
	c, out := child(t, path, "")
	seen := 0
	for seen < 10 && out.Scan() {
		seen++
	}
	if seen < 10 {
		t.Fatalf("the child wrote %d results", seen)
	}
	must(t, c.Process.Kill())
	c.Wait()
	s := open(t, path)
	runs, err := s.Bundles(Filter{})
	must(t, err)
	if len(runs) != 1 || runs[0].Status != record.Incomplete || !runs[0].Ended.IsZero() || len(runs[0].Results) < seen {
		t.Fatalf("%d runs, the first %s with %d results; one, incomplete, with %d at least is expected", len(runs),
			runs[0].Status, len(runs[0].Results), seen)
	}
}

// TestTroubles: what can be wrong with the file is said in a sentence that helps.
func TestTroubles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		must(t, os.WriteFile(p, []byte(text), 0o644))
		return p
	}
	plain := file("plain", strings.Repeat("these are no results\n", 100))
	made := func(name string, statements ...string) string {
		p := filepath.Join(dir, name)
		s, err := Open(p)
		must(t, err)
		for _, q := range statements {
			_, err := s.db.Exec(q)
			must(t, err)
		}
		must(t, s.Close())
		return p
	}
	damaged := made("damaged")
	data, err := os.ReadFile(damaged)
	must(t, err)
	copy(data[100:], strings.Repeat("\xff", 2000))
	must(t, os.WriteFile(damaged, data, 0o644))
	for _, c := range []struct{ name, path, want string }{
		{"no database", plain, "no store of results, or is damaged"},
		{"a damaged one", damaged, "damaged"},
		{"a newer one", made("newer", `PRAGMA user_version=99`), "newer greta: its schema is 99"},
		{"one before the first", made("negative", `PRAGMA user_version=-1`), "no greta writes the schema -1"},
		{"another program's", made("other", `PRAGMA application_id=7`), "another program"},
		{"a folder", dir, "is no file"},
		{"below a file", filepath.Join(plain, "x", "bench.sqlite"), "--store"},
	} {
		s, err := Open(c.path)
		if err == nil {
			s.Close()
			t.Errorf("%s: it was opened", c.name)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %q, expected the path and %q", c.name, err, c.want)
		}
	}
	if _, err := OpenExisting(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a store that is not there: %v", err)
	}
}

// TestFullDisk: SQLite's limit on pages stands in for a disk's end. What was kept
// before stays, and the error says what to do.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.sqlite")
	s := open(t, path)
	w, err := s.Begin(run(""))
	must(t, err)
	must(t, w.Add(result(1)))
	_, err = s.db.Exec(`PRAGMA max_page_count=1`) // the least it takes is what there is
	must(t, err)
	big := result(2)
	big.Samples = make([]float64, 100_000)
	for i := range big.Samples {
		big.Samples[i] = 1 / float64(i+3)
	}
	err = w.Add(big)
	if err == nil || !strings.Contains(err.Error(), "make room") || !strings.Contains(err.Error(), path) ||
		strings.Contains(err.Error(), "full") {
		t.Fatalf("a full disk: %v", err)
	}
	got, err := s.Results(Filter{})
	must(t, err)
	if len(got) != 1 || got[0].Params["m"] != "1" {
		t.Errorf("%d results are left", len(got))
	}
}

// TestReadOnly: results that may not be written can be read, and adding says why not.
func TestReadOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shelf")
	path := filepath.Join(dir, "bench.sqlite")
	s := open(t, path)
	w, err := s.Begin(run(""))
	must(t, err)
	must(t, w.Add(result(1)))
	must(t, s.Close())
	must(t, os.Chmod(path, 0o444))
	must(t, os.Chmod(dir, 0o555))
	defer os.Chmod(dir, 0o755)
	if f, err := os.Create(filepath.Join(dir, "probe")); err == nil {
		f.Close()
		// Rights do not bind this user; the connection for those who may only read does.
		s, err = connect(path, "mode=ro&immutable=1")
		must(t, err)
	} else {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "rights") {
			t.Errorf("a folder without the right to write: %v", err)
		}
		s, err = OpenExisting(path)
		must(t, err)
	}
	defer s.Close()
	got, err := s.Results(Filter{})
	must(t, err)
	if len(got) != 1 {
		t.Errorf("%d results", len(got))
	}
	if _, err := s.Begin(run("")); err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("a run began in a file that cannot be written: %v", err)
	}
}

// TestMigration: a file of the first schema is brought up to date with what it holds.
func TestMigration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.sqlite")
	s, err := connect(path, "mode=rwc")
	must(t, err)
	for _, q := range []string{
		migrations[0],
		fmt.Sprintf(`PRAGMA application_id=%d`, applicationID), `PRAGMA user_version=1`,
		`INSERT INTO runs (id, kind, command, profile, label, started, host, backend, device, device_id, level, driver,
			kernels, version, commit_id, env)
		 VALUES ('old', 'op', '[]', '', '', '2026-01-02T03:04:05.000000000Z', 'h', 'cpu', 'd', '', '', '', '',
			'', '', '{"device":"d"}')`,
		`INSERT INTO results (run, bench, name, params, config, kernel, clock, cache, n, median_s, lo_s, hi_s, samples,
			host, bytes, flops, roofs, against, rel_l2, max_abs, rel_limit, metrics, verdict, reason)
		 VALUES ('old', 'op/add', 'op/add', 'null', '', 'k', 'host', '', 1, 1, 1, 1, '[1]', 'null', 0,
			0, '{}', 'float64', 0, 0, 1, 'null', 'ok', '')`,
	} {
		_, err := s.db.Exec(q)
		must(t, err)
	}
	must(t, s.Close())
	for range 2 { // the second finds it up to date
		s := open(t, path)
		version, err := s.version()
		must(t, err)
		if version != len(migrations) {
			t.Errorf("the schema is %d, expected %d", version, len(migrations))
		}
		got, err := s.Results(Filter{})
		must(t, err)
		if len(got) != 1 || got[0].Bench != "op/add" || got[0].Samples[0] != 1 || got[0].WorkingSet != 0 {
			t.Fatalf("%+v", got)
		}
		if got[0].Run.Started.Year() != 2026 {
			t.Error(got[0].Run.Started)
		}
		must(t, s.Close())
	}
}

// TestExchange: a store of a rented machine comes home as one file, of either kind,
// and the second time changes nothing.
func TestExchange(t *testing.T) {
	dir := t.TempDir()
	away := open(t, filepath.Join(dir, "away.sqlite"))
	w, err := away.Begin(run("rented"))
	must(t, err)
	must(t, w.Add(result(1)))
	bad := result(2)
	bad.Check.RelL2 = math.NaN()
	must(t, w.Add(bad))
	exported := func() string {
		b, err := away.Bundles(Filter{})
		must(t, err)
		f, err := os.Create(filepath.Join(dir, "away.json"))
		must(t, err)
		must(t, errors.Join(WriteExchange(f, b), f.Close()))
		return f.Name()
	}
	home := open(t, filepath.Join(dir, "home.sqlite"))
	take := func(path string, want Absorbed) {
		t.Helper()
		b, err := ReadExchange(path)
		must(t, err)
		got, err := home.Absorb(b)
		must(t, err)
		if got != want {
			t.Errorf("%+v, expected %+v", got, want)
		}
	}
	take(exported(), Absorbed{Runs: 1, Results: 2})
	take(exported(), Absorbed{Known: 1})
	take(away.Path(), Absorbed{Known: 1}) // still open there, its rows in the -wal file
	must(t, w.Add(result(3)))
	must(t, w.End(record.Broken))
	take(away.Path(), Absorbed{Known: 1, Results: 1})
	take(exported(), Absorbed{Known: 1})
	mine, err := home.Bundles(Filter{})
	must(t, err)
	theirs, err := away.Bundles(Filter{})
	must(t, err)
	// NaN differs from itself.
	mine[0].Results[1].Check.RelL2, theirs[0].Results[1].Check.RelL2 = 0, 0
	if !reflect.DeepEqual(mine, theirs) {
		t.Errorf("%+v\nexpected\n%+v", mine, theirs)
	}
	forged := theirs
	forged[0].Results[0].Samples = []float64{1e-9, 1e-9}
	if _, err := home.Absorb(forged); err == nil || !strings.Contains(err.Error(), "result 1") {
		t.Errorf("other results under a known identity: %v", err)
	}
	one := func(status, result string) string {
		return `{"format": "greta-bench/1", "runs": [{"id": "a", "started": "2026-01-01T00:00:00Z", "status": "` + status +
			`", "results": [` + result + `]}]}`
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":       {"", "neither a store"},
		"text":        {"hello", "neither a store"},
		"other":       {`{"format": "x/1", "runs": []}`, `its format is "x/1"`},
		"newer":       {`{"format": "greta-bench/2", "cars": []}`, `its format is "greta-bench/2"`},
		"strange":     {`{"format": "greta-bench/1", "cars": []}`, `unknown field "cars"`},
		"behind":      {one("complete", "") + "x", "neither a store"},
		"nameless":    {`{"format": "greta-bench/1", "runs": [{"results": []}]}`, "no identity"},
		"status":      {one("glorious", ""), `status is "glorious"`},
		"no bench":    {one("complete", `{"verdict": "ok", "samples": [1]}`), "names no benchmark"},
		"verdict":     {one("complete", `{"bench": "b", "verdict": "splendid", "samples": [1]}`), `verdict is "splendid"`},
		"no sample":   {one("complete", `{"bench": "b", "verdict": "ok"}`), "without a sample"},
		"no time":     {one("complete", `{"bench": "b", "verdict": "ok", "samples": [1, 0]}`), "times are positive"},
		"before time": {one("complete", `{"bench": "b", "verdict": "ok", "samples": [-1, 1]}`), "a sample of -1 s"},
	} {
		p := filepath.Join(dir, name)
		must(t, os.WriteFile(p, []byte(c.text), 0o644))
		if _, err := ReadExchange(p); err == nil || !strings.Contains(err.Error(), p) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
	}
}

// TestTwoImports takes the same file in several times at once: each run is there once, and nobody fails.
func TestTwoImports(t *testing.T) {
	away := open(t, filepath.Join(t.TempDir(), "away.sqlite"))
	for i := range 20 {
		w, err := away.Begin(run(fmt.Sprint("run", i)))
		must(t, err)
		must(t, w.Add(result(1)))
		must(t, w.Add(result(2)))
		must(t, w.End(record.Complete))
	}
	all, err := away.Bundles(Filter{})
	must(t, err)
	cut := slices.Clone(all)
	for i := range cut { // half of the runs were here before they ended
		cut[i].Results, cut[i].Ended = cut[i].Results[:1], time.Time{}
	}
	path := filepath.Join(t.TempDir(), "home.sqlite")
	home := open(t, path)
	_, err = home.Absorb(cut[:10])
	must(t, err)
	stores := []*Store{home, open(t, path), open(t, path), open(t, path)}
	sums, errs := make([]Absorbed, len(stores)), make([]error, len(stores))
	var group sync.WaitGroup
	for i, s := range stores {
		group.Go(func() { sums[i], errs[i] = s.Absorb(all) })
	}
	group.Wait()
	var sum Absorbed
	for i := range sums {
		must(t, errs[i])
		sum.Runs, sum.Results = sum.Runs+sums[i].Runs, sum.Results+sums[i].Results
	}
	if sum.Runs != 10 || sum.Results != 30 {
		t.Errorf("%d runs and %d results were added, expected 10 and 30", sum.Runs, sum.Results)
	}
	if have, err := home.Bundles(Filter{}); err != nil || !reflect.DeepEqual(have, all) {
		t.Errorf("%d runs, %v; expected what was sent", len(have), err)
	}
}

// TestDump: the SQL text makes the same store.
func TestDump(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "a.sqlite"))
	r := run("it's \"quoted\"\n")
	w, err := s.Begin(r)
	must(t, err)
	must(t, w.Add(result(1)))
	must(t, w.Add(result(2)))
	must(t, w.End(record.Complete))
	var text strings.Builder
	must(t, s.Dump(&text, Filter{}))
	again, err := connect(filepath.Join(dir, "b.sqlite"), "mode=rwc")
	must(t, err)
	_, err = again.db.Exec(text.String())
	must(t, err)
	must(t, again.Close())
	a, err := s.Bundles(Filter{})
	must(t, err)
	b, err := open(t, again.Path()).Bundles(Filter{})
	must(t, err)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\nexpected\n%+v", b, a)
	}
	text.Reset()
	must(t, s.Dump(&text, Filter{Bench: "*/m=2/*"}))
	if n := strings.Count(text.String(), "INSERT INTO results"); n != 1 {
		t.Errorf("%d results were chosen", n)
	}
}

func TestDefaultPath(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/data")
	if p, err := DefaultPath(); err != nil || p != "/data/greta/bench.sqlite" {
		t.Error(p, err)
	}
	t.Setenv("XDG_DATA_HOME", "not absolute")
	t.Setenv("HOME", "/home/u")
	if p, err := DefaultPath(); err != nil || !strings.HasPrefix(p, "/home/u/") {
		t.Error(p, err)
	}
}

// TestImportJudges: a file that calls wrong or impossible results ok comes in with these refused, each with its
// reason; the second time changes nothing, and an honest result beside them stays.
func TestImportJudges(t *testing.T) {
	away := open(t, filepath.Join(t.TempDir(), "away.sqlite"))
	w, err := away.Begin(run("lies"))
	must(t, err)
	for i := range 12 {
		must(t, w.Add(result(i+1)))
	}
	must(t, w.End(record.Complete))
	all, err := away.Bundles(Filter{})
	must(t, err)
	r := all[0].Results
	for i := range r {
		if r[i].Verdict != record.OK {
			t.Fatalf("%d: %s %s", i, r[i].Verdict, r[i].Reason)
		}
	}
	r[1].Check.RelL2 = 0.9 + r[1].Check.Limit
	r[2].Roofs.GFlops, r[2].Flops = 100, 22e18*r[2].Samples[0]
	r[3].Roofs.ReadGBs, r[3].Bytes = 100, 110e9*slices.Max(r[3].Samples)
	r[4].Check.Against = ""
	r[5].Backend = "elsewhere"
	r[6].Roofs = record.Roofs{}                       // nothing to be held against
	r[7].Roofs.GFlops, r[7].Flops = 0, 1e9            // of arithmetic
	r[8].Roofs.ReadGBs = 1e9                          // what no processor has
	r[9].Roofs.GFlops, r[9].Flops = 1e12, 1e15        //
	r[10].Check.Limit, r[10].Check.RelL2 = 1, 0.9     // a limit that lets everything through
	r[11].Check.Limit, r[11].Check.RelL2 = 0.04, 0.03 // or more than products of this type need
	path := filepath.Join(t.TempDir(), "lie.json")
	f, err := os.Create(path)
	must(t, err)
	must(t, errors.Join(WriteExchange(f, all), f.Close()))
	home := open(t, filepath.Join(t.TempDir(), "home.sqlite"))
	for _, want := range []Absorbed{{Runs: 1, Results: 12, Refused: 11}, {Known: 1}} {
		b, err := ReadExchange(path)
		must(t, err)
		got, err := home.Absorb(b)
		must(t, err)
		if got != want {
			t.Errorf("%+v, expected %+v", got, want)
		}
	}
	have, err := home.Results(Filter{})
	must(t, err)
	for i, why := range []string{"", "result is wrong", "arithmetic", "memory", "compared with nothing",
		"no kernel for this", "does not say", "does not say", "no processor", "no processor", "limit of 1", "limit of 0.04"} {
		e := &have[i]
		if why == "" && e.Verdict != record.OK || why != "" && (e.Verdict != record.Refused ||
			!strings.Contains(e.Reason, why)) {
			t.Errorf("%d: %s %q, expected a reason with %q", i, e.Verdict, e.Reason, why)
		}
		if !slices.Equal(e.Samples, r[i].Samples) {
			t.Errorf("%d: the samples did not stay", i)
		}
	}
	ok, err := home.Results(Filter{Verdict: record.OK})
	must(t, err)
	if len(ok) != 1 {
		t.Errorf("%d results are ok, expected the honest one", len(ok))
	}
}

// TestImportHonest: the records of a card that lie in the tree come in as they are.
func TestImportHonest(t *testing.T) {
	b, err := ReadExchange("../../docs/measured/h200.json")
	must(t, err)
	got, err := open(t, filepath.Join(t.TempDir(), "home.sqlite")).Absorb(b)
	must(t, err)
	if want := (Absorbed{Runs: 13, Results: 620}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
}

// TestImportTomorrow: a run whose time is not yet here is refused, and nothing of its file kept.
func TestImportTomorrow(t *testing.T) {
	now, later := run("now"), run("later")
	later.Started = later.Started.AddDate(5, 0, 0)
	now.Status, later.Status = record.Complete, record.Complete
	s := open(t, filepath.Join(t.TempDir(), "home.sqlite"))
	_, err := s.Absorb([]Bundle{{Run: now}, {Run: later}})
	if err == nil || !strings.Contains(err.Error(), "is a clock wrong?") {
		t.Errorf("a run of the future: %v", err)
	}
	if runs, err := s.Runs(Filter{}); err != nil || len(runs) != 0 {
		t.Errorf("%d runs were kept, %v", len(runs), err)
	}
}
