package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// bench model --parallel gives a line for each number of sequences, checked, in tables and as JSON.
func TestBenchParallel(t *testing.T) {
	args := []string{"bench", "model", trained(t), "--parallel", "1,3", "-p", "40", "-n", "5", "-d", "0,33", "-r", "1",
		"--no-store", "--shared-prefix", "32"}
	r := greta(t, append(args, "-o", "json")...)
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	var rows []struct {
		PL      int     `json:"pl"`
		PP      int     `json:"pp"`
		TG      int     `json:"tg"`
		KV      int     `json:"n_kv"`
		Depth   int     `json:"n_depth"`
		TPP     float64 `json:"t_pp"`
		SpeedTG float64 `json:"speed_tg"`
		TTG     float64 `json:"t_tg"`
		Rows    float64 `json:"rows_a_step"`
		Host    float64 `json:"host_ns"`
		Write   float64 `json:"write_ns"`
		Submit  float64 `json:"submit_ns"`
		Wait    float64 `json:"wait_ns"`
		Read    float64 `json:"read_ns"`
		Against string  `json:"check_against"`
		Verdict string  `json:"verdict"`
	}
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil {
		t.Fatalf("%v\n%s", err, r.out)
	}
	if len(rows) != 4 {
		t.Fatalf("%d lines, 4 are wanted\n%s", len(rows), r.out)
	}
	for i, x := range rows {
		b, d := []int{1, 3, 1, 3}[i], []int{0, 0, 33, 33}[i]
		rate := float64(5*b) / x.TTG
		if x.PL != b || x.Depth != d || x.KV != b*(d+45) || x.PP != 40 || x.TG != 5 || !(x.TPP > 0) ||
			x.Verdict != "ok" || x.Against != "float64" || !(x.Rows > float64(b)/2 && x.Rows <= float64(b)) ||
			x.SpeedTG/rate > 1.001 || x.SpeedTG/rate < .999 {
			t.Errorf("line %d: %+v", i, x)
		}
		if !(x.Host > 0 && x.Write > 0 && x.Submit > 0 && x.Wait > 0 && x.Read > 0) {
			t.Errorf("line %d: a step's time has a part without length: %+v", i, x)
		}
	}
	r = greta(t, "bench", "model", trained(t), "--parallel", "2", "-p", "8", "-n", "3", "-r", "1", "--no-store")
	if r.code != 0 || !strings.Contains(r.out, "S_TG t/s") || strings.Count(r.out, "| ok") != 1 {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	for _, bad := range [][]string{
		{"--parallel", "0"}, {"--parallel", "x"}, {"--parallel", "2", "-p", "0"}, {"--parallel", "2", "-n", "0"},
		{"--shared-prefix", "3"}, {"--rows", "3"}, {"--parallel", "2", "--rows", "0"},
	} {
		r := greta(t, append([]string{"bench", "model", trained(t), "--no-store"}, bad...)...)
		if r.code != exitUsage {
			t.Errorf("%v: exit code %d\n%s", bad, r.code, r.err)
		}
	}
	if r := greta(t, append(with(smallBlock), "--parallel", "2", "-p", "4", "-n", "2", "--progress")...); r.code == 0 ||
		!strings.Contains(r.err, "is a block") || strings.Contains(r.err, "in float64") {
		t.Errorf("a block: exit code %d\n%s", r.code, r.err)
	}
}

// A load is simulated; the cost of --invariant is printed.
func TestBenchLoad(t *testing.T) {
	args := []string{"bench", "model", trained(t), "--parallel", "3", "-p", "8", "-n", "4", "-r", "1", "--no-store", "-o",
		"json"}
	r := greta(t, append(args, "--arrivals", "500", "--capture", "1,2,3")...)
	var loads []struct {
		PL       int     `json:"pl"`
		Requests int     `json:"requests"`
		Speed    float64 `json:"speed"`
		First    float64 `json:"ttft_p95"`
		Between  float64 `json:"itl_p50"`
		Verdict  string  `json:"verdict"`
	}
	if err := json.Unmarshal([]byte(r.out), &loads); err != nil || r.code != 0 || len(loads) != 1 {
		t.Fatalf("exit code %d, %v\n%s%s", r.code, err, r.out, r.err)
	}
	if x := loads[0]; x.PL != 3 || x.Requests != 20 || !(x.Speed > 0) || !(x.First > 0) || !(x.Between > 0) ||
		x.Verdict != "ok" {
		t.Errorf("%+v", x)
	}
	r = greta(t, append(args, "--invariant")...)
	if r.code != 0 || !strings.Contains(r.err, "times what it takes without: prompts ") ||
		strings.Count(r.out, `"ok"`) != 2 {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	for _, bad := range [][]string{{"--arrivals", "-1"}, {"--capture", "x"}, {"--capture", "999"}} {
		if r := greta(t, append(args, bad...)...); r.code == 0 {
			t.Errorf("%v: exit code %d\n%s", bad, r.code, r.err)
		}
	}
}

// Models with recurrences are measured too, one sequence and several, and generate by a smaller model's guesses.
func TestBenchRecurrence(t *testing.T) {
	model := testfiles.Repo(t, "testdata", "families", "recurrent_gemma")
	for _, args := range [][]string{{"-d", "0,5"}, {"--parallel", "1,3"}} {
		r := greta(t, append([]string{"bench", "model", model, "-p", "12", "-n", "4", "-r", "2", "--no-store", "--exact",
			"--kv", "f32", "-o", "json"}, args...)...)
		if r.code != 0 || !strings.Contains(r.out, `"ok"`) || strings.Contains(r.out, `"failed"`) {
			t.Errorf("%v: exit code %d\n%s%s", args, r.code, r.out, r.err)
		}
	}
	base := []string{testfiles.Repo(t, "testdata", "families", "falcon_h1"), "--tokens", "3,1,4,1,5", "--gen", "20",
		"--ignore-eos", "--exact"}
	if r := greta(t, append([]string{"run", "--draft", "ngram"}, base...)...); r.code != exitUsage ||
		!strings.Contains(r.err, "cannot go back") {
		t.Errorf("guesses for a recurrence: exit code %d\n%s", r.code, r.err)
	}
}
