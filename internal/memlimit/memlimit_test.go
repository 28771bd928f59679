package memlimit

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRead(t *testing.T) {
	const meminfo = "MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable:    8000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		bytes int64
		by    string
	}{
		"nothing is known": {nil, -1, ""},
		"no group":         {map[string]string{"proc/meminfo": meminfo}, 8000 << 10, "the system"},
		"version 2": {map[string]string{
			"proc/meminfo":                       meminfo,
			"proc/self/cgroup":                   "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max":       "5000000\n",
			"sys/fs/cgroup/a/b/memory.current":   "3000000\n",
			"sys/fs/cgroup/a/b/memory.stat":      "anon 1\nfile 2500000\ninactive_file 1000000\nactive_file 500000\n",
			"sys/fs/cgroup/a/memory.max":         "max\n",
			"sys/fs/cgroup/a/memory.current":     "3000000\n",
			"sys/fs/cgroup/not/mine/memory.max":  "1\n",
			"sys/fs/cgroup/not/mine/memory.stat": "",
		}, 3500000, "/sys/fs/cgroup/a/b/memory.max"},
		"version 2, a parent's": {map[string]string{
			"proc/meminfo":                     meminfo,
			"proc/self/cgroup":                 "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max":     "5000000\n",
			"sys/fs/cgroup/a/b/memory.current": "1000000\n",
			"sys/fs/cgroup/a/memory.max":       "6000000\n",
			"sys/fs/cgroup/a/memory.current":   "5500000\n",
		}, 500000, "/sys/fs/cgroup/a/memory.max"},
		"version 2, more is used than may be": {map[string]string{
			"proc/meminfo":                   meminfo,
			"proc/self/cgroup":               "0::/a\n",
			"sys/fs/cgroup/a/memory.max":     "5000000\n",
			"sys/fs/cgroup/a/memory.current": "6000000\n",
		}, 0, "/sys/fs/cgroup/a/memory.max"},
		"version 2, the host's path in a container": {map[string]string{
			"proc/meminfo":                 meminfo,
			"proc/self/cgroup":             "0::/docker/0123\n",
			"sys/fs/cgroup/memory.max":     "4000000\n",
			"sys/fs/cgroup/memory.current": "1000000\n",
		}, 3000000, "/sys/fs/cgroup/memory.max"},
		"version 1": {map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/box/inner\n0::/\n",
			"sys/fs/cgroup/memory/box/inner/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/box/inner/memory.usage_in_bytes": "1000\n",
			"sys/fs/cgroup/memory/box/memory.limit_in_bytes":       "2000000\n",
			"sys/fs/cgroup/memory/box/memory.usage_in_bytes":       "1500000\n",
			"sys/fs/cgroup/memory/box/memory.stat": "inactive_file 1\ntotal_inactive_file 200000\n" +
				"total_active_file 100000\n",
		}, 800000, "/sys/fs/cgroup/memory/box/memory.limit_in_bytes"},
		"version 1 in a container": {map[string]string{
			"proc/self/cgroup":                           "4:memory:/docker/0123\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "500000\n",
		}, 1500000, "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
		"a group with more than the system has": {map[string]string{
			"proc/meminfo":                 meminfo,
			"proc/self/cgroup":             "0::/\n",
			"sys/fs/cgroup/memory.max":     "99000000\n",
			"sys/fs/cgroup/memory.current": "1\n",
		}, 8000 << 10, "the system"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := Read(root); got != (Left{c.bytes, c.by}) {
				t.Errorf("%+v, want %d by %q", got, c.bytes, c.by)
			}
		})
	}
}
