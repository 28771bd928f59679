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

// TestTextIsUncheckedUnlessAsked: a text that nothing was compared with says so; --check compares it.
func TestTextIsUncheckedUnlessAsked(t *testing.T) {
	args := []string{"run", family(t, "llama2_gqa_tied"), "--tokens", "1,2,3", "--gen", "5", "--ignore-eos"}
	if r := greta(t, args...); r.code != 0 || !strings.Contains(r.err, "unchecked: nothing was compared") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
	r := greta(t, append(args, "--check")...)
	if r.code != 0 || strings.Contains(r.err, "unchecked") || !strings.Contains(r.err, "logits = float64: ok") ||
		!strings.Contains(r.err, "5 of 5 tokens are the most likely") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
	// Other weights than those that made the text have other logits.
	c := greedyCheck([]int32{1, 2, 3}, 1, []float32{0, 0, 5, 0, 9, 0, 0, 1, 0, 0, 0, 0}, 1)
	if c.OK || c.Note != "1 of 2 tokens are the most likely of the reference" {
		t.Errorf("%+v", c)
	}
}

// TestPercentilesNeedSamples: no percentile is given of fewer samples than lie on its side of one.
func TestPercentilesNeedSamples(t *testing.T) {
	r := greta(t, "run", family(t, "llama2_gqa_tied"), "--tokens", "1,2,3", "--gen", "3", "--ignore-eos")
	if !strings.Contains(r.err, "between tokens p50 ") || strings.Contains(r.err, "p95") ||
		!strings.Contains(r.err, "(n = 2)") {
		t.Error(r.err)
	}
}
