//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
)

// resources counts what this process holds: open files, and libraries of which a part
// is mapped.
func resources(t *testing.T) (files, libraries int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	maps, err2 := os.ReadFile("/proc/self/maps")
	if err = errors.Join(err, err2); err != nil {
		t.Skip(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(maps)) {
		if i := strings.IndexByte(line, '/'); i > 0 && strings.Contains(line, ".so") {
			seen[line[i:]] = true
		}
	}
	return len(fds), len(seen)
}

// TestReopen: a program may look for devices and open them as often as it likes.
func TestReopen(t *testing.T) {
	n := 150
	if testing.Short() {
		n = 20
	}
	if dev, err := vulkan.New(vulkan.Options{Software: true, Device: os.Getenv("GRETA_VULKAN_DEVICE")}); err != nil {
		open(t, vulkan.Options{}) // skips, or fails
	} else if err := dev.Close(); err != nil { // with one open its driver would stay
		t.Fatal(err)
	}
	var files, libraries int
	for i := range n {
		if _, err := vulkan.List(); err != nil {
			t.Fatalf("looking for the %d-th time: %v", i+1, err)
		}
		if i%10 == 0 {
			dev, err := vulkan.New(vulkan.Options{Software: true, Device: os.Getenv("GRETA_VULKAN_DEVICE")})
			if err != nil {
				t.Fatalf("opening after looking %d times: %v", i+1, err)
			}
			b, err := dev.Alloc(1<<20, backends.Arena)
			if err == nil {
				err = b.Free()
			}
			if err := errors.Join(err, dev.Close()); err != nil {
				t.Fatal(err)
			}
		}
		f, l := resources(t)
		if i == 10 {
			files, libraries = f, l
		}
		if i > 10 && (f > files || l > libraries) {
			t.Fatalf("after looking %d times %d files are open and %d libraries mapped, after 11 it was %d and %d", i+1, f, l,
				files, libraries)
		}
	}
}
