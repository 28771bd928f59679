// Package testfiles finds the files that tests read.
package testfiles

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// root is the repository's: the folder with go.mod at or above the one that the test began in. (The path of this
// source file would do, but for -trimpath.)
var root = func() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}()

// Repo gives a path below the repository's root.
func Repo(t testing.TB, elem ...string) string {
	t.Helper()
	if root == "" {
		t.Fatal("the test began outside the repository: no go.mod at or above its folder")
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// Shared gives a path below the folder of shared test data, which lies beside
// the repository or where $GRETA_SHARED says. Without it the test is skipped,
// or fails where $GRETA_REQUIRE_SHARED is set, as in CI.
func Shared(t testing.TB, elem ...string) string {
	t.Helper()
	dir := os.Getenv("GRETA_SHARED")
	if dir == "" {
		dir = Repo(t, "..", "shared")
	}
	path := filepath.Join(append([]string{dir}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("GRETA_REQUIRE_SHARED") != "" {
			t.Fatalf("shared test data is required: %v", err)
		}
		t.Skipf("no shared test data: %v", err)
	}
	return path
}

// Exhaustive says whether tests with many cases go through all of them, as $GRETA_EXHAUSTIVE has
// them do in CI. Else they take some of each kind, so that all tests of the repository take
// minutes; under -short they do in any case.
func Exhaustive() bool { return os.Getenv("GRETA_EXHAUSTIVE") != "" && !testing.Short() }

// Clang gives the path of clang-19, which compiles HIP's kernels for every target. What it compiles
// takes minutes: without $GRETA_HIP_TARGETS, which CI sets, the test is skipped; with it clang must
// be there.
func Clang(t testing.TB) string {
	t.Helper()
	if os.Getenv("GRETA_HIP_TARGETS") == "" {
		t.Skip("compiles with clang-19 where $GRETA_HIP_TARGETS is set, as in CI")
	}
	path, err := exec.LookPath("clang-19")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
