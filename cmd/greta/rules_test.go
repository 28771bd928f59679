package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

// TestSecondBenchWaits: a run that finds its device taken says by whom, waits, and
// then measures; interrupted, it says who was in the way.
func TestSecondBenchWaits(t *testing.T) {
	t.Setenv("GRETA_LOCKS", t.TempDir())
	held, err := guard.Lock(t.Context(), "cpu", nil)
	if err != nil {
		t.Fatal(err)
	}
	bench := []string{"bench", "op", "silu", "--m", "2", "--n", "64", "--no-store", "--cache", "warm", "--min-time", "1ms"}
	done := make(chan result, 1)
	go func() { done <- greta(t, bench...) }()
	select {
	case r := <-done:
		t.Fatalf("it did not wait: %d %s", r.code, r.err)
	case <-time.After(700 * time.Millisecond):
	}
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.code != 0 || !strings.Contains(r.err, "is measuring on this device; waiting") ||
		!strings.Contains(r.out, "silu") {
		t.Errorf("%d\n%s\n%s", r.code, r.out, r.err)
	}
}

// TestSamplesAreOfOneOperation: all samples together take no longer than the command
// did, so that none is of more than one operation.
func TestSamplesAreOfOneOperation(t *testing.T) {
	t.Setenv("GRETA_LOCKS", t.TempDir())
	path := filepath.Join(t.TempDir(), "bench.sqlite")
	start := time.Now()
	if r := greta(t, "bench", "op", "linear", "--m", "1", "--k", "512", "--n", "512", "--cache", "warm", "--min-time",
		"100ms", "--store", path); r.code != 0 {
		t.Fatal(r.err)
	}
	took := time.Since(start).Seconds()
	s, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	entries, err := s.Results(store.Filter{})
	if err != nil || len(entries) != 1 || entries[0].Verdict != record.OK {
		t.Fatalf("%v %+v", err, entries)
	}
	sum := 0.0
	for _, x := range entries[0].Samples {
		sum += x
	}
	if sum > took || len(entries[0].Samples) < 10 {
		t.Errorf("%d samples of %g s together in a command of %g s", len(entries[0].Samples), sum, took)
	}
}

// elsewhere are flags whose effect tests of other packages show, by the test's file and name.
var elsewhere = map[string]string{
	"--kernels":   "../../backends/hip/aot_test.go TestAOT",
	"--units":     "../../backends/hip/aot_test.go TestAOT",
	"--recheck":   "../../engine/health/health_test.go TestChecks",
	"--no-warmup": "../../bench/model/model_test.go TestWarmUp",
}

// TestEveryFlagIsTested: a flag must change something, so that a test must use it.
func TestEveryFlagIsTested(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(data)
	}
	used := text.String()
	a := &app{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "version" || f.Hidden || c.Hidden || sizeFlag(c, f.Name) {
				return
			}
			ways := `--` + regexp.QuoteMeta(f.Name) + `["= ,]`
			if f.Shorthand != "" {
				ways += `|"-` + f.Shorthand + `["= ]`
			}
			if at, ok := elsewhere["--"+f.Name]; ok {
				file, name, _ := strings.Cut(at, " ")
				if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), "func "+name+"(") {
					t.Errorf("--%s: %s is not there (%v)", f.Name, at, err)
				}
				return
			}
			if !regexp.MustCompile(ways).MatchString(used) {
				t.Errorf("%s --%s: no test uses it", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "completion" {
				walk(sub)
			}
		}
	}
	walk(a.root())
}

// sizeFlag says whether a flag is one of the sizes that operators' signatures
// name; TestSizeFlags has them all.
func sizeFlag(c *cobra.Command, name string) bool {
	for _, n := range sizeNames() {
		if n == name && (c.Name() == "op" || c.Name() == "tune") {
			return true
		}
	}
	return false
}

// TestEnvironmentIsKept: a result says where it comes from.
func TestEnvironmentIsKept(t *testing.T) {
	t.Setenv("GRETA_LOCKS", t.TempDir())
	path := filepath.Join(t.TempDir(), "bench.sqlite")
	for range 2 { // the second overwrites nothing
		if r := greta(t, "bench", "op", "silu", "--m", "2", "--n", "64", "--cache", "warm", "--min-time", "1ms", "--store",
			path); r.code != 0 {
			t.Fatal(r.err)
		}
	}
	var x store.Exchange
	if err := json.Unmarshal([]byte(greta(t, "export", "json", "--store", path).out), &x); err != nil || len(x.Runs) != 2 {
		t.Fatalf("%v, %d runs", err, len(x.Runs))
	}
	for _, r := range x.Runs {
		e := r.Env
		if e.Host == "" || e.Device == "" || e.Backend != "cpu" || e.Level == "" || e.Kernels == "" || e.Version == "" ||
			e.Go == "" || e.Cores < 1 || len(r.Results) != 1 || len(r.Results[0].Samples) < 10 || r.Status != record.Complete {
			t.Errorf("%+v", r)
		}
	}
}
