package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// tree makes a system's root of files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// has says whether a finding of a state has a text.
func (d *doctor) has(state, text string) bool {
	return slices.ContainsFunc(d.all, func(f finding) bool {
		return f.State == state && strings.Contains(f.Text+" → "+f.Remedy, text)
	})
}

func TestDoctor(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
	t.Setenv("HIP_VISIBLE_DEVICES", "-1")
	start := time.Now()
	r := greta(t, "doctor", "--json")
	var out struct {
		Findings []finding
		Broken   int
	}
	if err := json.Unmarshal([]byte(r.out), &out); err != nil {
		t.Fatalf("%v\n%s%s", err, r.out, r.err)
	}
	t.Logf("%d findings in %v", len(out.Findings), time.Since(start))
	if (r.code == exitFailed) != (out.Broken > 0) {
		t.Errorf("exit code %d, %d broken", r.code, out.Broken)
	}
	d := &doctor{all: out.Findings}
	areas := map[string]bool{}
	for _, f := range d.all {
		areas[f.Area] = true
	}
	for _, a := range append([]string{"program", "processor", "memory", "caches", "permissions", "environment", "health"},
		gpuAreas...) {
		if !areas[a] {
			t.Errorf("nothing is said of %s", a)
		}
	}
	if !d.has(warned, "HSA_OVERRIDE_GFX_VERSION=11.0.0") || !d.has(warned, "hides every device") {
		t.Errorf("the environment is not warned of: %+v", d.all)
	}
	if text := doctorText(d.all, out.Broken); !strings.Contains(text, "WARNING") || !strings.HasSuffix(text, "broken\n") {
		t.Errorf("text:\n%s", text)
	}
}

// A cache that cannot be written is broken.
func TestDoctorCaches(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", file)
	d := &doctor{}
	if d.caches(); !d.has(isFault, file) {
		t.Errorf("%+v", d.all)
	}
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	if err := os.MkdirAll(filepath.Join(dir, "greta", "kernels"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "greta", "kernels", "a.gk"), make([]byte, 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	d = &doctor{}
	if d.caches(); !d.has(fine, "kernels 1 files") {
		t.Errorf("%+v", d.all)
	}
}

// TestDoctorManifests: files that the environment names and that Vulkan's loader can do nothing with.
func TestDoctorManifests(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"good.json": `{"ICD": {"library_path": "libvulkan_lvp.so"}}`,
		"garbage.json": "garbage", "none.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	good := filepath.Join(dir, "good.json")
	for value, want := range map[string]string{good: "", dir: "",
		filepath.Join(dir, "missing.json"):              "missing.json: no such file",
		good + ":" + filepath.Join(dir, "garbage.json"): "garbage.json: invalid character",
		filepath.Join(dir, "none.json"):                 "none.json names no library"} {
		t.Setenv("VK_DRIVER_FILES", value)
		d := &doctor{}
		if d.environment(); want == "" && !d.has(noted, value) || want != "" && !d.has(warned, want) {
			t.Errorf("%s: %+v", value, d.all)
		}
	}
}

func TestDoctorMachine(t *testing.T) {
	amd := map[string]string{"sys/bus/pci/devices/0000:03:00.0/class": "0x030000\n",
		"sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002\n"}
	d := &doctor{root: tree(t, amd)}
	if d.permissions(); !d.has(warned, "no /dev/dri") {
		t.Errorf("%+v", d.all)
	}
	amd["dev/dri/renderD128"] = ""
	d = &doctor{root: tree(t, amd)}
	if d.permissions(); !d.has(fine, "/dev/dri/renderD128") || !d.has(warned, "no /dev/kfd") {
		t.Errorf("%+v", d.all)
	}
	if os.Getuid() != 0 { // root may use everything
		if err := os.Chmod(filepath.Join(d.root, "dev/dri/renderD128"), 0); err != nil {
			t.Fatal(err)
		}
		d.all = nil
		if d.permissions(); !d.has(isFault, "usermod") {
			t.Errorf("%+v", d.all)
		}
	}
	d = &doctor{root: tree(t, map[string]string{"proc/meminfo": "MemTotal: 1000000 kB\nMemAvailable: 500000 kB\n",
		"proc/self/cgroup":         "0::/\n",
		"sys/fs/cgroup/memory.max": "104857600\n", "sys/fs/cgroup/memory.current": "1000\n",
		"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n"})}
	if d.memory(); !d.has(fine, "1.02 GB") || !d.has(warned, "may use") || !d.has(noted, "huge pages are off") {
		t.Errorf("%+v", d.all)
	}
}
