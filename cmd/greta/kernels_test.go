//go:build !nogpu

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/internal/testfiles"
)

func TestKernelsBuild(t *testing.T) {
	testfiles.Clang(t)
	dir := filepath.Join(t.TempDir(), "built")
	args := []string{"kernels", "build", "--arch", "gfx1151", "-o", dir, "--with", "clang", "--model", "llama2_block",
		"--types", "q8_0", "--context", "64",
		"--set", "D=128", "--set", "H=2", "--set", "G=1", "--set", "F=256", "--json"}
	var first int
	for round := range 2 {
		r := greta(t, args...)
		var lines []builtLine
		if err := json.Unmarshal([]byte(r.out), &lines); r.code != 0 || err != nil || len(lines) != 1 {
			t.Fatalf("exit code %d, %v\n%s%s", r.code, err, r.out, r.err)
		}
		l := lines[0]
		if l.Arch != "gfx1151" || !strings.Contains(l.Compiler, "clang") || l.Programs < 8 ||
			l.Compiled+l.Kept != l.Programs || (l.Compiled == 0) != (round == 1) {
			t.Errorf("round %d: %+v", round, l)
		}
		first = l.Programs
	}
	r := greta(t, "kernels", "ls", dir, "--json")
	var files []kernelLine
	if err := json.Unmarshal([]byte(r.out), &files); err != nil || len(files) != first ||
		!strings.HasSuffix(files[0].What, "for gfx1151") {
		t.Errorf("%v: %d files, %d were built\n%s", err, len(files), first, r.err)
	}
	// What the check of the matrix cores needs is there too, other types of weights included.
	if !strings.Contains(r.out, "W_Q6_K") {
		t.Errorf("the health check's kernels are missing:\n%s", r.out)
	}
	// The compiler is asked about all architectures before it compiles for the first.
	none := filepath.Join(t.TempDir(), "none")
	if r := greta(t, "kernels", "build", "--arch", "gfx1151,gfx9999", "-o", none, "--with",
		"clang"); r.code != exitFailed || !strings.Contains(r.err, "greta: gfx9999: ") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
	if _, err := os.Stat(none); err == nil {
		t.Errorf("%s was made", none)
	}
}

// TestKernelsOfMixes: products of two types are programs of their own, which no single type asks for.
func TestKernelsOfMixes(t *testing.T) {
	f := &buildFlags{set: []string{"L=2", "D=256", "H=4", "G=4", "F=512", "V=500"}, context: 64}
	var programs [2]int
	for i, types := range [][]string{{"q4_K", "q6_K"}, {"q4_K", "q6_K", "q4_k_m"}} {
		b, err := hip.NewBuilder("sm_90", 0)
		if err != nil {
			t.Fatal(err)
		}
		f.types = types
		if err := f.rehearse(b, "llama2_7b"); err != nil {
			t.Fatal(err)
		}
		programs[i] = b.Programs()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if programs[1] <= programs[0] {
		t.Errorf("%d programs, with a mix of the types %d", programs[0], programs[1])
	}
}

func TestKernelsClear(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if r := greta(t, "kernels", "ls"); r.code != 0 || !strings.Contains(r.out, "0 files") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	dir := pipelineFolder()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vulkan-1-2.pipelines", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("12345"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r := greta(t, "kernels", "clear"); r.code != 0 || !strings.Contains(r.out, "1 files removed, 5 bytes") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "notes.txt" {
		t.Errorf("%v, %v are left", left, err)
	}
}

func TestKernelsRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"build", "-o", dir}, exitUsage, "--arch is missing"},
		{[]string{"build", "--arch", "gfx942"}, exitUsage, "-o is missing"},
		{[]string{"build", "--arch", "navi31", "-o", dir}, exitUsage, "no architecture"},
		{[]string{"build", "--arch", "gfx942", "-o", dir, "--with", "gcc"}, exitUsage, "rtc, clang and auto"},
		{[]string{"build", "--arch", "gfx942", "-o", dir, "--types", "f17"}, exitUsage, "f17"},
		{[]string{"ls", filepath.Join(dir, "none")}, exitUsage, "no folder"},
		{[]string{"tidy"}, exitUsage, "ls, clear, build and import-triton"},
	} {
		if r := greta(t, append([]string{"kernels"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.text) {
			t.Errorf("%v: exit code %d\n%s%s", c.args, r.code, r.out, r.err)
		}
	}
	t.Setenv("GRETA_CLANG", filepath.Join(dir, "clang"))
	if r := greta(t, "kernels", "build", "--arch", "gfx942", "-o", dir, "--with", "clang"); r.code != exitFailed ||
		!strings.Contains(r.err, "no clang was found") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
}

// An architecture that a card only claims to be is warned of, for AMD's cards.
func TestOverrideIsWarnedOf(t *testing.T) {
	t.Setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
	if w := deviceWarnings(backends.Info{Backend: "hip", Level: "gfx1103"}); len(w) != 1 ||
		!strings.Contains(w[0], "11.0.0") {
		t.Errorf("%q", w)
	}
	for _, i := range []backends.Info{{Backend: "hip", Level: "sm_90"}, {Backend: "cpu", Level: "avx2"}} {
		if w := deviceWarnings(i); len(w) > 0 {
			t.Errorf("%s %s: %q", i.Backend, i.Level, w)
		}
	}
}
