package mapped_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/mapped"
	"github.com/greta-project/greta/weights/mmap"
)

// TestShrunk: a file that is cut short while it is mapped gives an error with its name.
func TestShrunk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("files are mapped so on Linux")
	}
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		defer func() { err, _ := recover().(error); got <- err }()
		mapped.Watch()
		defer mapped.Recover()
		sum := byte(0)
		for _, b := range f.Data {
			sum += b
		}
		t.Errorf("the file was read: %d", sum)
	}()
	var e *mapped.Shrunk
	if err := <-got; !errors.As(err, &e) || e.Was != 1<<20 || e.Is != 4096 || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

// TestOthersGoOn: a panic that is no fault of a mapped file is not met.
func TestOthersGoOn(t *testing.T) {
	defer func() {
		if p := recover(); p != "other" {
			t.Errorf("%v", p)
		}
	}()
	mapped.Watch()
	defer mapped.Recover()
	panic("other")
}
