package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/environ"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/golden"
	"github.com/greta-project/greta/internal/testfiles"
)

// TestMain lets the test binary be greta itself, for tests that need a process.
func TestMain(m *testing.M) {
	// Tests run beside others, and so do the processes that they start.
	newWatch = func(backends.Info) *environ.Watch { return nil }
	// What is measured is not what is tested.
	backends.MostLimits, profileBudget = 20*time.Millisecond, 300*time.Millisecond
	if os.Getenv("GRETA_TEST_MAIN") == "1" {
		main()
	}
	os.Setenv("GRETA_TEST_MAIN", "1") // for the processes that greta starts itself
	// What a software driver has compiled once serves again.
	if dir, err := os.UserCacheDir(); err == nil && os.Getenv("MESA_SHADER_CACHE_DIR") == "" {
		os.Setenv("MESA_SHADER_CACHE_DIR", dir)
	}
	// Tests must not depend on what the user has configured.
	dir, err := os.MkdirTemp("", "greta")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CONFIG_HOME", dir)
	os.Setenv("XDG_CACHE_HOME", dir)
	os.Setenv("GRETA_LOCKS", dir) // where the locks of devices lie: a benchmark elsewhere must not stop the tests
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// result is what a command line gave.
type result struct {
	code     int
	out, err string
}

// greta runs a command line in this process.
func greta(t *testing.T, args ...string) result {
	t.Helper()
	return gretaIn(t, "", args...)
}

func gretaIn(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := execute(context.Background(), args, strings.NewReader(stdin), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// report runs a command line that must succeed, with --json -, and gives its report.
func runReport(t *testing.T, args ...string) *report.Report {
	t.Helper()
	r := greta(t, append(append([]string{"run"}, args...), "--json", "-")...)
	if r.code != 0 {
		t.Fatalf("greta run %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	var rep report.Report
	if err := json.Unmarshal([]byte(r.out), &rep); err != nil {
		t.Fatalf("standard output is not JSON alone: %v\n%s", err, r.out)
	}
	return &rep
}

// family unpacks a golden model and gives its folder.
func family(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := golden.Unpack(testfiles.Repo(t, "testdata", "golden", name), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// families lists the golden models.
func families(t testing.TB) []string {
	t.Helper()
	dirs, err := os.ReadDir(testfiles.Repo(t, "testdata", "golden"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range dirs {
		names = append(names, d.Name())
	}
	if len(names) < 9 {
		t.Fatalf("%d golden models, one at least for each of nine families is expected", len(names))
	}
	return names
}

// write makes a file for a test.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
