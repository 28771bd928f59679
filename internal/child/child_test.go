//go:build unix

package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be the child.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "child" {
		work(os.Args[2])
	}
	os.Exit(m.Run())
}

func work(how string) {
	switch how {
	case "echo":
		s := bufio.NewScanner(os.Stdin)
		for s.Scan() {
			fmt.Println("<" + s.Text() + ">")
		}
	case "abort":
		fmt.Fprintln(os.Stderr, "LLVM ERROR: no such target")
		syscall.Kill(os.Getpid(), syscall.SIGABRT)
		time.Sleep(time.Minute)
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Minute)
	case "panic":
		panic("boo")
	case "hang":
		time.Sleep(time.Minute)
	case "steps":
		for i := range 5 {
			fmt.Println(i)
			time.Sleep(500 * time.Millisecond)
		}
	case "code":
		fmt.Fprintln(os.Stderr, "no luck")
		os.Exit(7)
	}
	os.Exit(0)
}

func command(how string) Command { return Command{os.Args[0], "child", how} }

func TestRun(t *testing.T) {
	out, err := Run(context.Background(), command("echo"), []byte("a\nb\n"), time.Minute)
	if err != nil || string(out) != "<a>\n<b>\n" {
		t.Errorf("%q, %v", out, err)
	}
	for _, c := range []struct {
		how     string
		text    string
		crashed bool
	}{
		{"abort", "LLVM ERROR: no such target; SIGABRT", true}, {"kill", "killed", true}, {"panic", "panic: boo", true},
		{"code", "no luck", false},
	} {
		_, err := Run(context.Background(), command(c.how), nil, time.Minute)
		var d *Death
		if !errors.As(err, &d) || d.Late || d.Crashed() != c.crashed || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.how, err)
		}
	}
	if _, err := Run(context.Background(), Command{"/no/such/program"}, nil, time.Minute); err == nil {
		t.Error("a program that does not exist was started")
	}
	if _, err := Run(context.Background(), nil, nil, time.Minute); err == nil {
		t.Error("no command was started")
	}
}

func TestWatchdog(t *testing.T) {
	start := time.Now()
	_, err := Run(context.Background(), command("hang"), nil, 300*time.Millisecond)
	var d *Death
	if !errors.As(err, &d) || !d.Late || time.Since(start) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	// A child that shows signs of life may take longer than the limit in all.
	p, err := Start(command("steps"), 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for s := bufio.NewScanner(p.Out); s.Scan(); lines++ {
		p.Alive()
	}
	if err := p.Wait(); err != nil || lines != 5 {
		t.Errorf("%d lines, %v", lines, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, command("hang"), nil, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled child: %v", err)
	}
}

func TestEnds(t *testing.T) {
	e := &ends{}
	for i := range 10000 {
		fmt.Fprintf(e, "line %d\n", i)
	}
	s := e.text()
	if !strings.HasPrefix(s, "line 0\n") || !strings.HasSuffix(s, "line 9999\n") || len(s) > 3*endBytes {
		t.Errorf("%d bytes: %.20q", len(s), s)
	}
}
