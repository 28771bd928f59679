//go:build unix

package hip

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/child"
)

// TestMain lets the test binary be a compiler's process: hip.test compiler
// HOW FILE. HOW is how it goes wrong, or real for AMD's compiler. hip.test custom tries a kernel of one's own.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "compiler" {
		if os.Args[2] == "real" {
			if err := ServeCompiler(os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
		f := newFake(amd)
		if err := serveCompiler(&driver{&fragile{f, os.Args[2], os.Args[3]}}, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "custom" {
		if err := serveCustom(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fragile is a provider whose compiler does not survive a file.
type fragile struct {
	*fake
	how, file string
}

func (f *fragile) invoke(n fn, a []uintptr) uintptr {
	if n == fnRtcCreate && goStringLong(a[2]) == f.file {
		switch f.how {
		case "abort":
			fmt.Fprintln(os.Stderr, "LLVM ERROR: Cannot select: intrinsic")
			syscall.Kill(os.Getpid(), syscall.SIGABRT)
			time.Sleep(time.Minute)
		case "segfault":
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Minute)
		case "hang":
			time.Sleep(time.Minute)
		case "babble":
			fmt.Println("warning: this is no answer", strings.Repeat("x", 100))
		case "refuse":
			f.failAt = len(f.calls) + 1
		}
	}
	return f.fake.invoke(n, a)
}

// A compiler that dies is an error of the program that it was compiling; others
// are compiled, and the process lives.
func TestCompilerDies(t *testing.T) {
	file := strings.Fields(string(pointFile))[0]
	for _, c := range []struct{ how, want string }{
		{"none", ""}, {"abort", "the run-time compiler: the child process crashed (exit status 2): LLVM ERROR: Cannot " +
			"select: intrinsic"}, {"segfault", "crashed (signal: killed)"},
		{"hang", "hung"}, {"babble", "point.hip: the run-time compiler"}, {"refuse", "oops"},
	} {
		t.Run(c.how, func(t *testing.T) {
			f := newFake(amd)
			dev, err := openDevice(&driver{f}, Found{Arch: "gfx942"},
				Options{Cache: &Cache{Dir: t.TempDir()}, Compiler: []string{os.Args[0], "compiler", c.how, file}})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			if c.how == "hang" {
				dev.c.worker.limit = 500 * time.Millisecond
			}
			before := len(f.calls)
			if err := dev.prepare([]program{routeFile}); err != nil {
				t.Fatal(err)
			}
			for _, call := range f.calls[before:] {
				if call.f == fnRtcCreate {
					t.Error("it was compiled in this process")
				}
			}
			err = dev.prepare([]program{pointFile, ropeFile})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), file)) {
				t.Errorf("error %v, wanted one with %q", err, c.want)
			}
			var d *child.Death
			if died := c.how != "none" && c.how != "refuse" && c.how != "babble"; died != errors.As(err, &d) {
				t.Errorf("%v: is a *Death: %v", err, !died)
			}
			if len(dev.c.worker.idle) > 0 {
				t.Errorf("%d compilers are left", len(dev.c.worker.idle))
			}
			if err := dev.prepare([]program{ropeFile, routeFile}); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}
