package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/greta-project/greta/engine/health"
	"github.com/greta-project/greta/internal/testfiles"
)

func smokeReport(t *testing.T, r result) *health.SmokeReport {
	t.Helper()
	var rep health.SmokeReport
	if err := json.Unmarshal([]byte(r.out), &rep); err != nil {
		t.Fatalf("%v\n%s%s", err, r.out, r.err)
	}
	return &rep
}

// The profiles are clean on the processor.
func TestSmoke(t *testing.T) {
	for _, p := range health.Profiles() {
		if p != health.Profiles()[0] && !testfiles.Exhaustive() {
			continue
		}
		r := greta(t, "smoke", "--backend", "cpu", "--profile", string(p), "--repeat", "2", "--json")
		rep := smokeReport(t, r)
		if r.code != 0 || rep.Status != "OK" || len(rep.Runs) != 2 || rep.Runs[0].Checks < 20 || rep.Device == "" {
			t.Errorf("%s: exit code %d, %+v\n%s", p, r.code, rep, r.err)
		}
	}
	r := greta(t, "smoke", "--profile", "fill", "--repeat", "1")
	if r.code != 0 || !strings.HasSuffix(r.out, "\nSTATUS=OK\n") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

func TestSmokeOnLavapipe(t *testing.T) {
	device, times := lavapipe(t), "1"
	if testfiles.Exhaustive() {
		times = "2"
	}
	r := greta(t, "smoke", "--backend", "vulkan", "--device", device, "--profile", "fill", "--repeat", times, "--json")
	rep := smokeReport(t, r)
	if r.code != 0 || rep.Status != "OK" || rep.Validation == "" || rep.Messages != 0 {
		t.Errorf("exit code %d, %+v\n%s", r.code, rep, r.err)
	}
}

func TestSmokeRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--profile", "wild"}, exitUsage, "ultrasafe, fill or default"},
		{[]string{"--repeat", "0"}, exitUsage, "--repeat 0"},
		{[]string{"--limit", "0s"}, exitUsage, "--limit"},
		{[]string{"--validate", "on"}, exitUsage, "vulkan backend only"},
		{[]string{"--backend", "abacus"}, exitNoDevice, "abacus"},
		{[]string{"--backend", "cpu", "--device", "7"}, exitNoDevice, "has one device"},
		// The watchdog ends what takes longer than it may.
		{[]string{"--profile", "default", "--limit", "1ms"}, exitFailed, "the child process hung"},
	} {
		r := greta(t, append([]string{"smoke", "--repeat", "1"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err+r.out, c.text) ||
			c.code == exitFailed && !strings.Contains(r.out, "STATUS=FAILED") {
			t.Errorf("%v: exit code %d\n%s%s", c.args, r.code, r.out, r.err)
		}
	}
}
