package main

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// Of several that write one file at once, one writes it and the others say that it is there; with --force all may, and
// the file is whole.
func TestQuantizeAtOnce(t *testing.T) {
	in := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	out := filepath.Join(t.TempDir(), "out.gguf")
	const n = 4
	at := func(flags ...string) (ok int, said string) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range n {
			wg.Go(func() {
				c := process(t.Context(), append([]string{"quantize", in, out, "--type", "q8_0"}, flags...)...)
				text, err := c.CombinedOutput()
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					ok++
				} else {
					said += string(text)
				}
			})
		}
		wg.Wait()
		return ok, said
	}
	ok, said := at()
	if ok != 1 || strings.Count(said, "--force overwrites it") != n-1 {
		t.Errorf("%d of %d wrote the file:\n%s", ok, n, said)
	}
	if ok, said := at("--force"); ok != n {
		t.Errorf("with --force %d of %d wrote the file:\n%s", ok, n, said)
	}
	if r := greta(t, "check", out); r.code != 0 {
		t.Errorf("the file: %s", r.err)
	}
}
