// Package memlimit says how much memory the process may still take: what the system has left, and what the control
// groups that it is in leave it, those above them too.
package memlimit

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Left is what may be taken yet.
type Left struct {
	Bytes int64  // 0: nothing, negative: unknown
	By    string // what bounds it: "the system", or a control group's file
}

// Now reads what is left at this moment. A process that takes more is killed, or the system swaps.
func Now() Left { return Read("/") }

// Read is Now of a system whose root is a folder.
func Read(root string) Left {
	left := Left{-1, ""}
	bound := func(bytes int64, by string) {
		if bytes = max(bytes, 0); left.Bytes < 0 || bytes < left.Bytes {
			left = Left{bytes, by}
		}
	}
	if kb, ok := field(text(root, "proc/meminfo"), "MemAvailable:"); ok {
		bound(kb<<10, "the system")
	}
	for line := range strings.Lines(text(root, "proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(parts) != 3 {
			continue
		}
		switch v2 := parts[1] == ""; {
		case v2:
			for _, mount := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
				groups(root, mount, parts[2], "memory.max", "memory.current", "", bound)
			}
		case strings.Contains(","+parts[1]+",", ",memory,"):
			for _, mount := range []string{"sys/fs/cgroup/" + parts[1], "sys/fs/cgroup/memory"} {
				groups(root, mount, parts[2], "memory.limit_in_bytes", "memory.usage_in_bytes", "total_", bound)
			}
		}
	}
	return left
}

// groups tells bound of the group at path and of those above it. In a container path may be the host's: then the
// folder that is mounted is the container's own group, which is met at the end.
func groups(root, mount, path, limit, usage, prefix string, bound func(int64, string)) {
	for dir := filepath.Clean("/" + path); ; dir = filepath.Dir(dir) {
		at := filepath.Join(mount, dir)
		most, err := strconv.ParseInt(text(root, at, limit), 10, 64) // "max" is none
		used, err2 := strconv.ParseInt(text(root, at, usage), 10, 64)
		if err == nil && err2 == nil && most < 1<<60 {
			// Pages of files are given back under pressure. Those of tmpfs are neither active nor inactive files'.
			stat := text(root, at, "memory.stat")
			for _, key := range []string{"active_file", "inactive_file"} {
				n, _ := field(stat, prefix+key)
				used -= n
			}
			bound(most-max(used, 0), "/"+filepath.Join(at, limit))
		}
		if dir == "/" {
			return
		}
	}
}

// field finds the number behind a key at the beginning of a line.
func field(lines, key string) (int64, bool) {
	for line := range strings.Lines(lines) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == key {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// text is a file's, without space around it; "" where there is none.
func text(parts ...string) string {
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
