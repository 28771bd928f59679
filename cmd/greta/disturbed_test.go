package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/environ"
	"github.com/greta-project/greta/bench/record"
)

// beside lets measurements find that others used so many processors; 0: none did.
func beside(t *testing.T, others float64) {
	t.Helper()
	before := newWatch
	t.Cleanup(func() { newWatch = before })
	newWatch = func(backends.Info) *environ.Watch {
		if others == 0 {
			return nil
		}
		return environ.FixedWatch(map[string]float64{record.OthersCPUs: others})
	}
}

// TestDisturbedIsFlagged: what was measured beside other programs says so, in the line and in the
// store, is not compared with what was not, and --strict refuses it.
func TestDisturbedIsFlagged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.sqlite")
	bench := []string{"bench", "op", "silu", "--m", "2", "--n", "64", "--cache", "warm", "-r", "20", "--min-time", "1ms"}
	kept := append(bench, "--store", path)
	if r := greta(t, kept...); r.code != 0 || strings.Contains(r.out, "DISTURBED") {
		t.Fatalf("undisturbed: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	beside(t, 1.5)
	if r := greta(t, kept...); r.code != 0 || !strings.Contains(r.out, "DISTURBED op/silu") ||
		!strings.Contains(r.out, "other programs used 1.5 processors") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	r := greta(t, "compare", "last~1", "last", "--store", path)
	if r.code != 0 || !strings.Contains(r.out, "disturbed: before: nothing; now: other programs used 1.5 processors") {
		t.Errorf("compare: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if r := greta(t, "compare", "last~1", "last", "--store", path, "--disturbed"); strings.Contains(r.out, "disturbed") ||
		!strings.Contains(r.out, "(A: quiet; B: other programs used 1.5 processors)") {
		t.Errorf("compare --disturbed: %s", r.out)
	}
	if r := greta(t, "gate", "--store", path); r.code != 0 || !strings.Contains(r.err, "nothing was compared") {
		t.Errorf("gate: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if r := greta(t, append(bench, "--no-store", "--strict")...); r.code != exitFailed ||
		!strings.Contains(r.err, "--strict: 1 of 1 results were disturbed") {
		t.Errorf("bench op --strict: exit code %d\n%s", r.code, r.err)
	}
	run := []string{"run", "llama2_block", "--set", "D=64", "--set", "H=4", "--set", "F=96", "--prefill", "4", "--gen",
		"2", "--repeat", "1"}
	if r := greta(t, run...); r.code != 0 || !strings.Contains(r.err, "disturbed other programs used 1.5 processors") {
		t.Errorf("run: exit code %d\n%s", r.code, r.err)
	}
	if r := greta(t, append(run, "--strict")...); r.code != exitFailed ||
		!strings.Contains(r.err, "STATUS=FAILED: --strict: other programs") {
		t.Errorf("run --strict: exit code %d\n%s", r.code, r.err)
	}
	beside(t, 0)
	if r := greta(t, append(run, "--strict")...); r.code != 0 {
		t.Errorf("run --strict, undisturbed: exit code %d\n%s", r.code, r.err)
	}
}
