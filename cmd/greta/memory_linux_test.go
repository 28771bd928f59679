package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// group makes a control group whose processes may have so many bytes, of version 1 or 2, and gives the file that
// takes processes. It skips the test where that is not permitted.
func group(t *testing.T, bytes int) string {
	t.Helper()
	name := fmt.Sprintf("greta-test-%d", os.Getpid())
	for _, at := range []struct{ dir, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		if _, err := os.Stat(filepath.Join(at.dir, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(at.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, at.limit), []byte(strconv.Itoa(bytes)), 0o644) == nil {
			_ = os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o644) // where there is swap
			return filepath.Join(dir, "cgroup.procs")
		}
	}
	t.Skip("control groups with a limit of memory cannot be made here")
	return ""
}

// within runs greta in a control group.
func within(t *testing.T, procs string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", append([]string{"-c", `echo $$ > "$0" && exec "$@"`, procs, os.Args[0]},
		args...)...)
	c.Env = append(os.Environ(), "GRETA_TEST_MAIN=1")
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	_ = c.Run()
	return result{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

// A model that does not fit the limit of a control group is refused with what it needs, not killed; one that does
// runs, and a check that does not is left out.
func TestMemoryOfAControlGroup(t *testing.T) {
	run := []string{"run", "models/llama2_block.yaml", "--set", "D=1024", "--set", "H=8", "--set", "F=8192",
		"--dtype", "f32", "--prefill", "4", "--gen", "2", "--repeat", "1", "--no-limits"}
	for _, c := range []struct {
		mb, code int
		text     string
	}{
		{80, exitMemory, "out of memory"},             // 117 MB of weights
		{220, 0, "reference: SKIPPED, float64 needs"}, // the float64 reference wants 400
		{1500, 0, "decode = float64: ok"},
	} {
		t.Run(fmt.Sprintf("%d MB", c.mb), func(t *testing.T) {
			r := within(t, group(t, c.mb<<20), run...)
			if r.code != c.code || !strings.Contains(r.err, c.text) {
				t.Errorf("exit code %d, want %d and %q:\n%s%s", r.code, c.code, c.text, r.out, r.err)
			}
		})
	}
}
