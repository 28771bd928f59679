package house

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

var rewrite = flag.Bool("rewrite", false, "write backends/cpu/sums.txt anew")

// sumsFile has a line for each source of the CPU's kernels: what a device says of its code is a hash of it.
const sumsFile = "../../backends/cpu/sums.txt"

// TestSums: that file has the sum of each source, and of nothing else.
func TestSums(t *testing.T) {
	want, err := sumsOf(filepath.Dir(sumsFile), ".", "simd")
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(sumsFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	sums, err := os.ReadFile(sumsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sums, want) {
		t.Errorf("backends/cpu/sums.txt is not of the sources beside it: %s; run: "+
			"go test ./internal/house -run TestSums -rewrite", differing(sums, want))
	}
}

// TestSumsOf: other code, another name and one more file give other sums; tests and what only measures are in none.
func TestSumsOf(t *testing.T) {
	dir := t.TempDir()
	sum := func() string {
		s, err := sumsOf(dir, ".")
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

// sumsOf gives the lines of sums.txt for the sources in some folders below root, ordered by name. Tests, and
// what only measures (probe*, limits.go), are no part of a kernel.
func sumsOf(root string, folders ...string) ([]byte, error) {
	var b bytes.Buffer
	for _, dir := range folders {
		list, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			return nil, err
		}
		for _, f := range list {
			name := f.Name()
			if ext := filepath.Ext(name); ext != ".go" && ext != ".s" || strings.HasSuffix(name, "_test.go") ||
				strings.HasPrefix(name, "probe") || name == "limits.go" {
				continue
			}
			data, err := os.ReadFile(filepath.Join(root, dir, name))
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
