package simd

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bigMemory gives n bytes on huge pages, as mapped weights mostly are; on
// small ones, address translation is what a benchmark would time.
func bigMemory(b *testing.B, n int) []byte {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Munmap(m) })
	if err := unix.Madvise(m, unix.MADV_HUGEPAGE); err != nil {
		b.Log("no huge pages: ", err)
	}
	return m
}

// threadTime is the time that this thread has run: other programs do not add to it.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
