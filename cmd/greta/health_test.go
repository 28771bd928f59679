package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/greta-project/greta/engine/report"
)

// lavapipe gives the name of a software device, or skips.
func lavapipe(t *testing.T) string {
	t.Helper()
	d, err := openBackend("vulkan", deviceFlags{device: "llvmpipe"})
	if err != nil {
		t.Skip(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return "llvmpipe"
}

// --fp16 asks for what a device may lack.
func TestFP16(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--fp16", "perhaps"}, exitUsage, "auto, on or off is expected"},
		{[]string{"--fp16", "on"}, exitUsage, "the cpu backend has no path in half precision"},
		{[]string{"--fp16", "off"}, 0, "STATUS=OK"},
		{nil, 0, "STATUS=OK"},
	} {
		r := greta(t, append([]string{"run", "models/llama2_block.yaml", "--prefill", "3", "--gen", "1", "--repeat", "1",
			"--set", "D=64", "--set", "H=4", "--set", "G=2", "--set", "F=96"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.text) {
			t.Errorf("%v: exit code %d\n%s", c.args, r.code, r.err)
		}
	}
}

// A run on a GPU says what was decided of each of its fast paths, and decides
// the same the second time without a check.
func TestPathsAreReported(t *testing.T) {
	device := lavapipe(t)
	var first *report.Report
	for i := range 2 {
		r := greta(t, "run", "models/llama2_block.yaml", "--prefill", "3", "--gen", "1", "--repeat", "1", "--set", "D=64",
			"--set", "H=4", "--set", "G=2", "--set", "F=96", "--context", "32",
			"--no-limits", "--backend", "vulkan", "--device", device, "--json", "-")
		var rep report.Report
		if err := json.Unmarshal([]byte(r.out), &rep); r.code != 0 || err != nil {
			t.Fatalf("exit code %d, %v\n%s", r.code, err, r.err)
		}
		if i == 0 {
			first = &rep
			continue
		}
		if len(rep.Paths) != len(first.Paths) {
			t.Fatalf("%v, then %v", first.Paths, rep.Paths)
		}
		for j := range rep.Paths {
			if rep.Paths[j] != first.Paths[j] {
				t.Errorf("%v, then %v", first.Paths[j], rep.Paths[j])
			}
		}
		if strings.Contains(r.err, "just now") {
			t.Errorf("the second run checked again:\n%s", r.err)
		}
	}
}
