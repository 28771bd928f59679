package environ

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/greta-project/greta/bench/record"
)

// machine writes what Linux shows of four processors.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestDisturbance: what others use beyond what is free, a quota below what is wanted, and a binding are told.
func TestDisturbance(t *testing.T) {
	const online, self = "sys/devices/system/cpu/online", "proc/self/cgroup"
	two := map[string]string{online: "0-1,4-5", self: "0::/a/b", "sys/fs/cgroup/a/cpu.max": "150000 100000",
		"sys/fs/cgroup/a/b/cpu.max": "max 100000"}
	one := map[string]string{online: "0-3", self: "5:memory:/x\n3:cpu,cpuacct:/x",
		"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us":  "50000",
		"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000"}
	free := map[string]string{online: "0-3", self: "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}
	for _, c := range []struct {
		name         string
		files        map[string]string
		need, others float64
		over         time.Duration
		may          float64
		want         map[string]float64
	}{
		{"nothing", free, 4, 0.1, time.Second, 4, nil},
		{"a neighbour where all are wanted", free, 4, 1, time.Second, 4, map[string]float64{record.OthersCPUs: 1}},
		{"a neighbour beside two threads", free, 2, 1.9, time.Second, 4, nil},
		{"three neighbours beside two threads", free, 2, 3, time.Second, 4, map[string]float64{record.OthersCPUs: 3}},
		{"too short to tell", free, 4, 4, window / 2, 4, nil},
		{"a quota of cgroup 2, of a group above", two, 2, 0, time.Second, 4, map[string]float64{record.QuotaCPUs: 1.5}},
		{"a quota that is enough", two, 1, 0, time.Second, 4, nil},
		{"a quota of cgroup 1", one, 4, 0, time.Second, 4, map[string]float64{record.QuotaCPUs: 0.5}},
		{"bound to one", free, 1, 0, time.Second, 1, map[string]float64{record.AffinityCPUs: 1}},
	} {
		w := newWatch(machine(t, c.files), c.need)
		w.may = c.may
		if w.cpus != 4 {
			t.Fatalf("%s: %g processors", c.name, w.cpus)
		}
		if got := w.flags(c.others, c.over); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
	root := machine(t, map[string]string{online: "0", "proc/stat": "cpu  100 200 300 4000 50 6 7 8 9 9\ncpu0 1 2"})
	if got := newWatch(root, 1).busySeconds(); got != 6.21 {
		t.Errorf("busy for %g s", got)
	}
	if got := record.Disturbance(map[string]float64{record.OthersCPUs: 1.25,
		record.QuotaCPUs: 0.5}); got != "other programs used 1.2 processors, a quota allows 0.5 processors" {
		t.Error(got)
	}
}
