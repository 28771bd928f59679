// Package testfiles finds the files that tests read.
package testfiles

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Repo gives a path below the repository's root.
func Repo(t testing.TB, elem ...string) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("the place of this source file is unknown")
	}
	return filepath.Join(append([]string{filepath.Dir(file), "..", ".."}, elem...)...)
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
