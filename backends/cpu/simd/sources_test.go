package simd

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestSums: the sums of the generated assembler are those of its files, each of them.
func TestSums(t *testing.T) {
	files, err := filepath.Glob("*.s")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		want, generated := assembler[f]
		if !generated { // by hand
			continue
		}
		seen++
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != want {
			t.Errorf("%s: its sum is %s, sums.go has %s; run: go run ./tools/c2goasm -all", f, got, want)
		}
	}
	if seen != len(assembler) || seen == 0 {
		t.Errorf("%d of the %d files in sums.go are there", seen, len(assembler))
	}
}

// TestHashSources: the hash does not change by itself, and changes with what it is of.
func TestHashSources(t *testing.T) {
	sum := func() string {
		h := sha256.New()
		HashSources(h)
		return fmt.Sprintf("%x", h.Sum(nil))
	}
	first := sum()
	if sum() != first {
		t.Error("two hashes of the same sources differ")
	}
	for name, old := range assembler {
		assembler[name] = "other"
		if sum() == first {
			t.Errorf("other code in %s does not change the hash", name)
		}
		assembler[name] = old
		break
	}
	if sum() != first {
		t.Error("the hash did not come back")
	}
}
