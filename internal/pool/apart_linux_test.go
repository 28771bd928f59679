package pool

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLeave: a thread leaves the CPU that it is told to, and may run afterwards where it might before.
func TestLeave(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil || before.Count() < 2 {
		t.Skipf("%d CPUs, %v", before.Count(), err)
	}
	for range 100 {
		cpu := currentCPU()
		if cpu < 0 || !before.IsSet(cpu) {
			t.Fatalf("on CPU %d, may run on %v", cpu, before)
		}
		leave(cpu)
		if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
			t.Fatalf("may run on %v, might before on %v, %v", after, before, err)
		}
	}
	// The system may take it back at once, but not always.
	for range 100 {
		cpu := currentCPU()
		if leave(cpu); currentCPU() != cpu {
			return
		}
	}
	t.Error("a hundred times on the CPU that was left")
}
