package cpu

import "testing"

// Chunks of a mat-vec cover all panels in order, and each thread's range of chunks is its
// share of the panels, large chunks first, none of them small. One thread has all in one.
func TestCutTapered(t *testing.T) {
	const size = leastBytes / 4
	for _, panels := range []int{0, 1, 2001} {
		if c := cutTapered(panels, size, 8*size, 1); c.chunks() != min(panels, 1) || int(c[c.chunks()]) != panels {
			t.Fatalf("%d panels, one thread: %v", panels, c)
		}
	}
	for _, threads := range []int{2, 3, 64} {
		for _, panels := range []int{0, 1, 2, 7, 16, 128, 2001} {
			for _, most := range []int{0, 1, 8, 5000} {
				c := cutTapered(panels, size, most*size, threads)
				at := 0
				for i := range c.chunks() {
					p0, p1 := c.of(i)
					if p0 != at || p1 < p0 || p1-p0 > max(1, most) {
						t.Fatalf("%d panels, %d threads, at most %d: chunk %d is %d to %d", panels, threads, most, i, p0, p1)
					}
					at = p1
					per := c.chunks() / threads
					share := i / per
					begin, end := share*panels/threads, (share+1)*panels/threads
					if i%per == 0 && p0 != begin {
						t.Fatalf("%d panels, %d threads: a share begins at %d", panels, threads, p0)
					}
					if p1 > p0 && p1-p0 < min(2, most, end-begin) {
						t.Fatalf("%d panels, %d threads, at most %d: chunk %d has %d", panels, threads, most, i, p1-p0)
					}
				}
				if at != panels || c.chunks()%threads != 0 {
					t.Fatalf("%d panels, %d threads, at most %d: %d chunks end at %d", panels, threads, most, c.chunks(), at)
				}
			}
		}
	}
}
