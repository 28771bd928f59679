package environ

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/graph"
)

func TestGather(t *testing.T) {
	dev := ref.New()
	defer dev.Close()
	e := Gather("1.2.3", dev)
	if e.Version != "1.2.3" || e.Backend != "ref" || e.Go != runtime.Version() || e.OS != runtime.GOOS || e.Cores < 1 {
		t.Errorf("%+v", e)
	}
	if !strings.HasPrefix(e.Kernels, "program-") {
		t.Errorf("the kernels of a device without sources are %q, this program's are expected", e.Kernels)
	}
	// The tests run in the source.
	if git, err := exec.LookPath("git"); err == nil && exec.Command(git, "rev-parse", "HEAD").Run() == nil {
		if c := strings.TrimSuffix(e.Commit, "+dirty"); len(c) < 40 {
			t.Errorf("the commit is %q", e.Commit)
		}
	}
}

// card is a device that knows more of itself than ref does.
type card struct {
	backends.Device
	at string
}

func (c card) Info() backends.Info                 { return backends.Info{Backend: "vulkan", Name: "Card"} }
func (c card) Location() string                    { return c.at }
func (c card) CodeHash(*graph.Node, string) string { return "abc" }

func TestIdentity(t *testing.T) {
	c := card{ref.New(), "0000:c1:00.0"}
	if e := Gather("", c); e.DeviceID != "0000:c1:00.0" || e.Kernels != "abc" {
		t.Errorf("%+v", e)
	}
	for key, dev := range map[string]backends.Device{"gpu-0000:c1:00.0": c, "gpu": card{}, "cpu": ref.New()} {
		if got := LockKey(dev); got != key {
			t.Errorf("the lock is %q, expected %q", got, key)
		}
	}
}

func TestCommit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git")
	}
	dir := t.TempDir()
	do := func(args ...string) {
		t.Helper()
		c := exec.Command(git, append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
	}
	if c := gitCommit(dir); c != "" {
		t.Errorf("a folder without git is at %q", c)
	}
	file := filepath.Join(dir, "a")
	do("init", "-q")
	write(t, file, "1")
	do("add", "a")
	do("commit", "-q", "-m", "a")
	if c := gitCommit(dir); len(c) < 40 || strings.Contains(c, "dirty") {
		t.Errorf("a clean folder is at %q", c)
	}
	write(t, file, "2")
	if c := gitCommit(dir); !strings.HasSuffix(c, "+dirty") {
		t.Errorf("a changed folder is at %q", c)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree makes files below a folder that stands in for /sys.
func tree(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(root, name), text+"\n")
	}
	return root
}

func TestReadAMD(t *testing.T) {
	files := map[string]string{}
	for _, dir := range []string{"bus/pci/devices/0000:c1:00.0/", "class/drm/card1/device/"} {
		files[dir+"vendor"] = "0x1002"
		files[dir+"pp_dpm_sclk"] = "0: 600Mhz\n1: 1100Mhz *\n2: 2900Mhz"
		files[dir+"pp_dpm_mclk"] = "0: 1000Mhz\n1: 2800Mhz *"
		files[dir+"power_dpm_force_performance_level"] = "auto"
		files[dir+"hwmon/hwmon4/power1_average"] = "31500000"
		files[dir+"hwmon/hwmon4/power1_cap"] = "54000000"
		files[dir+"hwmon/hwmon4/temp1_input"] = "47000"
	}
	files["bus/pci/devices/0000:01:00.0/vendor"] = "0x10de"
	root := tree(t, files)
	want := map[string]string{"sm_mhz": "1100", "mem_mhz": "2800", "performance_level": "auto", "power_w": "31.5",
		"power_limit_w": "54", "temperature_c": "47"}
	for _, at := range []string{"0000:c1:00.0", ""} {
		got := map[string]string{}
		if readAMD(root, at, got); !maps.Equal(got, want) {
			t.Errorf("at %q: %v, expected %v", at, got, want)
		}
	}
	write(t, filepath.Join(root, "class/drm/card2/device/vendor"), "0x1002")
	for name, at := range map[string]string{"two cards, which is not known": "", "another maker's": "0000:01:00.0"} {
		got := map[string]string{}
		if readAMD(root, at, got); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestReadCPU(t *testing.T) {
	const cpu0 = "devices/system/cpu/cpu0/cpufreq/"
	for _, c := range []struct {
		name, cpuinfo string
		files         map[string]string
		want          map[string]string
	}{
		{"nothing", "", nil, map[string]string{}},
		{"a virtual machine", "processor : 0\ncpu MHz\t\t: 2100.500\n", nil, map[string]string{"cpu_mhz": "2100.5"}},
		{"AMD", "", map[string]string{cpu0 + "scaling_governor": "powersave", cpu0 + "scaling_cur_freq": "4100000",
			cpu0 + "cpuinfo_max_freq":          "5100000",
			"devices/system/cpu/cpufreq/boost": "1", "class/hwmon/hwmon0/name": "nvme",
			"class/hwmon/hwmon0/temp1_input": "30000",
			"class/hwmon/hwmon1/name":        "k10temp", "class/hwmon/hwmon1/temp1_input": "55125"},
			map[string]string{"governor": "powersave", "cpu_mhz": "4100", "cpu_max_mhz": "5100", "turbo": "on",
				"temperature_c": "55.125"}},
		{"Intel", "", map[string]string{"devices/system/cpu/intel_pstate/no_turbo": "1"}, map[string]string{"turbo": "off"}},
	} {
		got := map[string]string{}
		if readCPUIn(tree(t, c.files), c.cpuinfo, got); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
		}
	}
}

// TestStamp: a build that was told its commit has it, so that programs from a worktree or an archive
// say where they are from.
func TestStamp(t *testing.T) {
	if want := os.Getenv("GRETA_TEST_STAMP"); want != "" {
		if got := Commit(); got != want {
			t.Errorf("the commit is %q, the build was told %q", got, want)
		}
		return
	}
	tool, err := exec.LookPath("go")
	if err != nil || testing.Short() {
		t.Skip("a build of its own is needed")
	}
	c := exec.Command(tool, "test", "-run", "^TestStamp$", "-ldflags",
		"-X github.com/greta-project/greta/bench/environ.stamp=0123abc", ".")
	c.Env = append(os.Environ(), "GRETA_TEST_STAMP=0123abc")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
