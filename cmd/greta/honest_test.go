package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestCheckSaysWhatItComparedWith: without another implementation's results a check finds a model self-consistent,
// which is not to be right.
func TestCheckSaysWhatItComparedWith(t *testing.T) {
	small := []string{"check", "llama2_block", "--set", "D=64", "--set", "H=4", "--set", "F=96"}
	r := greta(t, small...)
	if r.code != 0 || !strings.Contains(r.out, "self-consistent: compared with greta's own float64 reference") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if strings.Contains(r.out, "right") {
		t.Errorf("it calls itself right:\n%s", r.out)
	}
	var x struct {
		Verdict string `json:"verdict"`
	}
	r = greta(t, append(small, "--json")...)
	if err := json.Unmarshal([]byte(r.out), &x); err != nil || x.Verdict != "self-consistent" {
		t.Errorf("verdict %q: %v", x.Verdict, err)
	}
}

// TestPeakMemoryCountsChecks: the peak is that of all that ran; the model's own stands apart.
func TestPeakMemoryCountsChecks(t *testing.T) {
	// In a process of its own: the mark is a process's.
	out, err := process(t.Context(), "run", "llama2_block", "--set", "D=512", "--set", "H=4", "--set", "F=2048",
		"--prefill", "4", "--gen", "2", "--json", "-").Output()
	if err != nil {
		t.Fatal(err)
	}
	var x struct {
		Peak  int `json:"peak_memory_bytes"`
		Model int `json:"model_peak_memory_bytes"`
	}
	if err := json.Unmarshal(out, &x); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The reference has weights of its own, 4.2 million.
	if x.Model <= 0 || x.Peak < x.Model+16_000_000 {
		t.Errorf("%d bytes at the peak, %d before the checks", x.Peak, x.Model)
	}
}
