//go:build unix

package main

import (
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// usable says whether a file may be read and written.
func usable(path string) bool { return unix.Access(path, unix.R_OK|unix.W_OK) == nil }

// freeSpace is what a user may still write on a folder's disk, bytes; false
// where the system does not say.
func freeSpace(dir string) (float64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, false
	}
	return float64(st.Bavail) * float64(st.Bsize), true
}

// groupOf names the group that a file belongs to, "" where that is unknown.
func groupOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	id := strconv.Itoa(int(st.Gid))
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}
