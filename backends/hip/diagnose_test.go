package hip

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// HIP_VISIBLE_DEVICES hides and orders devices on both platforms: AMD's runtime
// does so itself, NVIDIA's driver does not know it.
func TestVisibleDevices(t *testing.T) {
	for _, c := range []struct {
		hip, cuda string
		want      []uintptr // numbers that the driver is asked for
	}{
		{"unset", "unset", []uintptr{0, 1}}, {"1", "unset", []uintptr{1}}, {"1, 0", "unset", []uintptr{1, 0}},
		{"0,7,1", "unset", []uintptr{0}},
		{"", "unset", nil}, {"-1", "unset", nil}, {"1", "0,1", []uintptr{0, 1}},
	} {
		for name, v := range map[string]string{"HIP_VISIBLE_DEVICES": c.hip, "CUDA_VISIBLE_DEVICES": c.cuda} {
			t.Setenv(name, v) // so that it is restored
			if v == "unset" {
				os.Unsetenv(name)
			}
		}
		f := newFake(nvidia)
		found, err := (&driver{mask(f)}).devices()
		if len(found) != len(c.want) || (err != nil) != (len(c.want) == 0) {
			t.Errorf("HIP %q, CUDA %q: %d devices, %v", c.hip, c.cuda, len(found), err)
		}
		var asked []uintptr
		for _, call := range f.calls {
			if call.f == fnDevice {
				asked = append(asked, call.args[1])
			}
		}
		if !slices.Equal(asked, c.want) {
			t.Errorf("HIP %q, CUDA %q: the driver was asked for %v, want %v", c.hip, c.cuda, asked, c.want)
		}
	}
	if _, ok := mask(newFake(amd)).(*masked); ok {
		t.Error("AMD's devices are hidden twice")
	}
}

func TestOverrideIsWarnedOf(t *testing.T) {
	t.Setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
	found, err := (&driver{newFake(amd)}).devices()
	if err != nil || len(found[0].Warnings) != 1 || !strings.Contains(found[0].Warnings[0], "11.0.0") {
		t.Errorf("%+v, %v", found, err)
	}
}

// A library that is there and cannot be loaded is told from one that is not there.
func TestDiagnose(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GRETA_HIP_LIB", dir)
	if err := os.WriteFile(filepath.Join(dir, "libcuda.so.1"), []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range Diagnose() {
		if len(p.Libraries) == 0 {
			t.Fatalf("%+v", p)
		}
		if l := p.Libraries[0]; p.Name == "nvidia" && l.Error != "" &&
			(!l.Broken || l.Path != filepath.Join(dir, "libcuda.so.1")) {
			t.Errorf("%+v", l)
		}
	}
	var p Provider
	f := newFake(amd)
	f.isas = []string{"gfx942"}
	p.diagnose(&driver{f})
	if p.Driver != "HIP 6.2.41134, compiler 13.0" || len(p.Devices) != 2 || p.Error != "" || len(p.Missing) != 0 {
		t.Errorf("%+v", p)
	}
	f.lacks, p = map[fn]bool{fnGraphUpload: true, fnEventElapsed: true}, Provider{}
	p.diagnose(&driver{f})
	if !slices.Equal(p.Missing, []string{"hipEventElapsedTime"}) || len(p.Without) != 1 ||
		!strings.HasPrefix(p.Without[0], "hipGraphUpload: ") {
		t.Errorf("lacks %v, does without %v", p.Missing, p.Without)
	}
	f = newFake(amd)
	f.failAt = 0
	p = Provider{}
	if p.diagnose(&driver{f}); p.Error == "" || !p.Broken {
		t.Errorf("a driver that fails: %+v", p)
	}
	f.none, f.failAt, p = true, -1, Provider{}
	if p.diagnose(&driver{f}); p.Error == "" || p.Broken {
		t.Errorf("a driver without a card: %+v", p)
	}
}
