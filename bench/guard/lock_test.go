package guard

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary hold a lock as another process: until its
// standard input ends.
func TestMain(m *testing.M) {
	if dir := os.Getenv("GRETA_TEST_LOCK"); dir != "" {
		held, err := lockIn(context.Background(), dir, "card 0", nil)
		if err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("held\n")
		io.Copy(io.Discard, os.Stdin)
		held.Unlock()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// holdElsewhere starts a process that has the lock, and gives what ends it.
func holdElsewhere(t *testing.T, dir string) (pid int, release func(kill bool)) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "GRETA_TEST_LOCK="+dir)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "held\n" {
		t.Fatalf("the other process says %q", line)
	}
	done := false
	release = func(kill bool) {
		if done {
			return
		}
		done = true
		if kill {
			c.Process.Kill()
		}
		in.Close()
		c.Wait()
	}
	t.Cleanup(func() { release(true) })
	return c.Process.Pid, release
}

// TestSecondRunWaits: the second waits, says for whom, and goes on when the first
// ends, also when it was killed.
func TestSecondRunWaits(t *testing.T) {
	for _, kill := range []bool{false, true} {
		dir := t.TempDir()
		pid, release := holdElsewhere(t, dir)
		told := make(chan Holder, 8)
		got := make(chan error, 1)
		go func() {
			held, err := lockIn(context.Background(), dir, "card 0", func(h Holder) { told <- h })
			got <- errors.Join(err, held.Unlock())
		}()
		h := <-told
		if h.PID != pid || !strings.Contains(h.Command, "guard.test") || time.Since(h.Since) > time.Minute {
			t.Errorf("the lock is said to be held by %v, expected process %d", h, pid)
		}
		select {
		case err := <-got:
			t.Fatalf("the second did not wait: %v", err)
		case <-time.After(3 * poll):
		}
		release(kill)
		select {
		case err := <-got:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the second still waits after the first has ended")
		}
		if len(told) != 0 {
			t.Error("it was told more than once")
		}
	}
}

// TestWaitingEnds: an interrupted wait says who is in the way, and leaves the lock alone.
func TestWaitingEnds(t *testing.T) {
	dir := t.TempDir()
	held, err := lockIn(context.Background(), dir, "card 0", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*poll)
	defer cancel()
	_, err = lockIn(ctx, dir, "card 0", nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("the wait ended with %v", err)
	}
	other, err := lockIn(context.Background(), dir, "card 1", nil)
	if err != nil {
		t.Errorf("another device: %v", err)
	}
	for _, h := range []*Held{held, other, other} {
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	}
	again, err := lockIn(ctx, dir, "card 0", func(Holder) { t.Error("the lock was not given back") })
	if err == nil {
		err = again.Unlock()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestLockDir: two users with temporary folders of their own see each other's locks; another
// place must be asked for.
func TestLockDir(t *testing.T) {
	t.Setenv(LockVariable, "")
	first := LockDir()
	if !filepath.IsAbs(first) {
		t.Errorf("%s depends on the working folder", first)
	}
	t.Setenv("TMPDIR", t.TempDir())
	if got := LockDir(); got != first {
		t.Errorf("with another TMPDIR locks lie in %s instead of %s", got, first)
	}
	t.Setenv(LockVariable, "/elsewhere")
	if got := LockDir(); got != "/elsewhere" {
		t.Errorf("locks lie in %s", got)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(LockVariable, filepath.Join(file, "below"))
	if _, err := Lock(t.Context(), "card 0", nil); err == nil || !strings.Contains(err.Error(), LockVariable) {
		t.Errorf("a folder that cannot be: %v", err)
	}
}
