package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/versions"
)

// What is known to fail is said each time, what nobody tried once, and of what is tested nothing.
func TestFirstUseWarnsOfVersions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "folder", "versions.txt")
	said := func(driver string) string {
		var all []string
		warnVersions(backends.Info{Backend: "hip", Driver: driver}, file, func(s string) { all = append(all, s) })
		return strings.Join(all, "\n")
	}
	const old, odd = "CUDA 11.4 470.82.01, compiler nvidia 12.4", "CUDA 12.4 700.1, compiler nvidia 99.0"
	for range 2 {
		text := said(old)
		has(t, text, "CUDA, as the driver offers it 11.4: known not to work: ",
			"NVIDIA's driver 470.82.01: known not to work: ",
			"update the driver")
		hasNot(t, text, "NVRTC")
	}
	text := said(odd)
	has(t, text, "NVIDIA's driver 700.1: greta was not tried with it", "NVRTC 99.0", "greta smoke")
	if text := said(odd); text != "" {
		t.Errorf("said again: %s", text)
	}
	has(t, said("CUDA 12.4 701.0, compiler none"), "701.0")
	if text := said("CUDA 13.0 580.159.04, compiler nvidia 13.0 (libnvrtc.so.13)"); text != "" {
		t.Errorf("of what is tested: %s", text)
	}
}

func TestDoctorJudgesVersions(t *testing.T) {
	d := &doctor{}
	d.say("vulkan", fine, "", "a card")
	d.names(versions.Read("llvmpipe Mesa 22.3.6 (LLVM 15.0.6)", "1.1.0"))
	d.say("hip", fine, "", "nvidia")
	d.names(versions.Read("CUDA 15.0 580.159.04, compiler 12.8", ""))
	d.versions()
	text := doctorText(d.all, 0)
	for _, want := range []string{"ok       Mesa's llvmpipe 22.3.6: tested, ",
		"WARNING  Vulkan, as the driver offers it 1.1.0: known not to work",
		"-        CUDA, as the driver offers it 15.0: greta was not tried", "ok       NVIDIA's driver 580.159.04: tested",
		"ok       NVRTC 12.8: expected to work: "} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("doctor does not say %q:\n%s", want, text)
		}
	}
	if len(d.verdicts) != 5 || d.all[0].Parts != nil {
		t.Errorf("%+v", d.verdicts)
	}
}
