package mapped_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/greta-project/greta/internal/mapped"
	"github.com/greta-project/greta/weights/mmap"
)

// TestCopy: as much is copied as both have, and nothing behind it, whatever the goroutines.
func TestCopy(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(7))
	rng := rand.New(rand.NewPCG(1, 2))
	src := make([]byte, 9<<20+5)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	for _, c := range [][2]int{{0, 5}, {5, 0}, {3, 100}, {1 << 20, 1 << 20}, {1<<20 + 1, 4 << 20}, {len(src), len(src)},
		{len(src), 6<<20 - 1}, {3<<20 - 4095, len(src)}} {
		dst := bytes.Repeat([]byte{0xa5}, c[0]+64)
		n := mapped.Copy(dst[:c[0]:c[0]], src[:c[1]])
		if n != min(c[0], c[1]) || !bytes.Equal(dst[:n], src[:n]) {
			t.Errorf("%d bytes of %d to %d are wrong, or were not copied", n, c[1], c[0])
		}
		if !bytes.Equal(dst[n:], bytes.Repeat([]byte{0xa5}, len(dst)-n)) {
			t.Errorf("%d bytes to %d: more was written", c[1], c[0])
		}
	}
}

// TestCopyOfShrunkFile: a fault in one of several goroutines reaches who called.
func TestCopyOfShrunkFile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("files are mapped so on Linux")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 3<<20); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		defer func() { err, _ := recover().(error); got <- err }()
		mapped.Watch()
		defer mapped.Recover()
		t.Errorf("%d bytes were copied", mapped.Copy(make([]byte, 4<<20), f.Data))
	}()
	var e *mapped.Shrunk
	if err := <-got; !errors.As(err, &e) || e.Path != path || e.Is != 3<<20 {
		t.Errorf("%v", err)
	}
}
