package cpu

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write sums.txt anew")

// TestCodeHash: the code is that of the sources, the same for every device and level of a build.
func TestCodeHash(t *testing.T) {
	one, err := NewLevel("go", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	if h := one.CodeHash(nil, ""); len(h) != 32 || h != two.CodeHash(nil, "x") {
		t.Errorf("%q and %q", h, two.CodeHash(nil, "x"))
	}
}

// TestSums: sums.txt has the sum of each source of the kernels, and of nothing else.
func TestSums(t *testing.T) {
	want, err := sumsOf(".", "simd")
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile("sums.txt", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(sums, want) {
		t.Errorf("sums.txt is not that of the sources: %s; run: go test ./backends/cpu -run TestSums -rewrite",
			differing(sums, want))
	}
}

// TestSumsOf: other code, another name and one more file give other sums; tests and what only measures are in none.
func TestSumsOf(t *testing.T) {
	dir := t.TempDir()
	sum := func() string {
		s, err := sumsOf(dir)
		if err != nil {
			t.Fatal(err)
		}
		return string(s)
	}
	seen := map[string]bool{sum(): true}
	for _, c := range []struct {
		name, text string
		other      bool
	}{
		{"a.go", "a", true}, {"a.go", "b", true}, {"a_amd64.s", "a", true}, {"b.go", "b", true}, {"a_test.go", "a", false},
		{"probe_amd64.s", "a", false}, {"probe.go", "a", false}, {"limits.go", "a", false}, {"sums.txt", "a", false},
	} {
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := sum()
		if seen[s] == c.other {
			t.Errorf("%q in %s: new sums %v, wanted %v", c.text, c.name, !seen[s], c.other)
		}
		seen[s] = true
	}
}

// sumsOf gives the lines of sums.txt for the sources in some folders, in the order of their names. Tests, and what only
// measures (probe*, limits.go), are no part of a kernel.
func sumsOf(folders ...string) ([]byte, error) {
	var b bytes.Buffer
	for _, dir := range folders {
		list, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range list {
			name := f.Name()
			if ext := filepath.Ext(name); ext != ".go" && ext != ".s" || strings.HasSuffix(name, "_test.go") ||
				strings.HasPrefix(name, "probe") || name == "limits.go" {
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "%s %x\n", filepath.ToSlash(filepath.Join(dir, name)), sha256.Sum256(data))
		}
	}
	return b.Bytes(), nil
}

// differing names the files whose lines are in one of two lists alone.
func differing(a, b []byte) string {
	in := map[string]int{}
	for i, text := range [][]byte{a, b} {
		for line := range strings.Lines(string(text)) {
			in[line] |= 1 << i
		}
	}
	names := map[string]bool{}
	for line, where := range in {
		if name, _, _ := strings.Cut(line, " "); where != 3 {
			names[name] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}
