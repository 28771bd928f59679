// Command greta runs networks that are described in YAML, and proves that they
// are right. One file a verb; this one holds what they share: streams, signals,
// exit codes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/mapped"
)

// Exit codes, the same for every verb.
const (
	exitFailed      = 1
	exitUsage       = 2 // usage or bad input
	exitNoDevice    = 3
	exitMismatch    = 4 // a golden or reference disagrees
	exitMemory      = 6
	exitInterrupted = 130
)

// patience is how long an interrupted verb may take to end by itself. One that is supervised leaves long work by
// itself, and then has a report to write: on a busy machine that must not be lost.
const patience, reportPatience = 900 * time.Millisecond, 10 * time.Second

func main() {
	signal.Ignore(syscall.SIGPIPE) // a closed pipe is an error of the write, handled there
	mapped.Handler = func(e *mapped.Shrunk) {
		atomicfile.DiscardAll()
		fmt.Fprintln(os.Stderr, "greta:", e)
		os.Exit(exitFailed)
	}
	mapped.Watch()
	defer mapped.Recover()
	boundHeap()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, func() {
		stop() // a second Ctrl-C ends at once
		if endsItself.Load() {
			return
		}
		// run reports and ends before this; a verb in the middle of long work is left.
		time.Sleep(patience)
		if supervised.Load() {
			time.Sleep(reportPatience)
		}
		atomicfile.DiscardAll()
		fmt.Fprintln(os.Stderr, "greta: interrupted")
		os.Exit(exitInterrupted)
	})
	os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// app is where verbs read and write.
type app struct {
	in       io.Reader
	out, err io.Writer
	args     []string // the command line
}

// execute runs one command line and gives its exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) int {
	err := command(ctx, args, in, out, errw)
	code := exitCode(err)
	if e := (*exitError)(nil); err != nil && !(errors.As(err, &e) && e.reported) && !closedPipe(err) {
		text := strings.TrimSpace(err.Error())
		if code == exitInterrupted {
			text = "interrupted"
		}
		fmt.Fprintf(errw, "greta: %s\n", text)
	}
	return code
}

// command runs one command line and gives its error.
func command(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) error {
	a := &app{in, out, errw, args}
	root := a.root()
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		completeValues(root)
	}
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)
	return root.ExecuteContext(ctx)
}

// exitError is an error with an exit code.
type exitError struct {
	code     int
	err      error
	reported bool // the user has been told already
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as the user's: usage or bad input.
func usage(err error) error {
	var e *exitError
	if err == nil || exitCode(err) != exitFailed || errors.As(err, &e) {
		return err
	}
	return &exitError{code: exitUsage, err: err}
}

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// noMemory says whether an error is a device's memory running out.
func noMemory(err error) bool {
	var memory *backends.OutOfMemory
	return errors.As(err, &memory)
}

// exitCode finds what an error means for the caller.
func exitCode(err error) int {
	var e *exitError
	var long *engine.TooLong
	var never *engine.NeverFits
	switch {
	case err == nil || closedPipe(err):
		return 0
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case noMemory(err) || errors.Is(err, syscall.ENOMEM):
		return exitMemory
	case errors.As(err, &long) || errors.As(err, &never):
		return exitUsage
	}
	return exitFailed
}

// closedPipe says whether the reader of an output went away, as `head` does.
func closedPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// loadError classifies what an engine says before it runs: mostly bad input, but
// not where the device lacks a kernel or memory.
func loadError(err error) error {
	var missing *backends.Unsupported
	if errors.As(err, &missing) {
		return err
	}
	return usage(err)
}

// nearFlag names the flag that an unknown one was meant to be.
func nearFlag(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := lang.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return "did you mean --" + near + "? "
	}
	return ""
}

// flagError says what a flag takes where its value is none, in words that are not those of Go's parsers.
func flagError(err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return err
	}
	takes := map[string]string{"bool": "true or false", "duration": "a time such as 500ms or 10s", "float64": "a number",
		"int": "a whole number", "int64": "a whole number", "uint64": "a whole number from 0 on"}
	f := wrong.GetFlag()
	want, ok := takes[f.Value.Type()]
	if !ok {
		return err
	}
	value := wrong.GetValue()
	if len(value) > 40 {
		value = value[:40] + "…"
	}
	if errors.Is(err, strconv.ErrRange) {
		want += " that is not as large"
	}
	return fmt.Errorf("--%s %s: %s is expected", f.Name, value, want)
}

// root builds the command with its verbs.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "greta",
		Short: "Run networks described in YAML, fast, and prove the numbers",
		Long: `greta runs networks that are described in YAML: it checks shapes, fuses,
selects kernels, plans memory, captures a step once and replays it per token.

Every flag can also be set by a variable (--top-k as GRETA_TOP_K) or in
greta/config.yaml in the user's configuration folder. A flag wins over a
variable, a variable over the file. Where a flag means something else than that of
other commands, the command's name comes before it: GRETA_BENCH_OP_CACHE,
smoke-profile, run-json. A flag that cannot do anything is an error; what a variable
or the file sets for all runs is left out there.

Exit codes: 0 ok, 1 failed, 2 usage or bad input, 3 no such device,
4 mismatch with a reference, 5 performance gate, 6 out of memory, 7 too noisy to tell, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			text := fmt.Sprintf("unknown command %q", args[0])
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				text += "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return usagef("%s", text)
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := applySettings(c); err != nil {
				return usage(err)
			}
			return refuseIdle(c)
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%v; %ssee %s --help", flagError(err), nearFlag(c, err), c.CommandPath())
	})
	root.AddCommand(a.runCmd(), a.checkCmd(), a.newCmd(), a.dumpCmd(), a.showCmd(), a.opsCmd(), a.devicesCmd(),
		a.quantizeCmd(), a.imatrixCmd(), a.tokenizeCmd(), a.schemaCmd(), a.versionCmd(), a.benchCmd(), a.historyCmd(),
		a.compareCmd(),
		a.gateCmd(), a.gapCmd(), a.reportCmd(), a.plotCmd(), a.exportCmd(), a.importCmd(), a.tuneCmd(), a.expCmd(),
		a.smokeCmd(), a.doctorCmd(), a.internalCmd(), a.serveCmd(), a.grammarCmd(), a.pipeCmd())
	root.AddCommand(a.chatCmds()...)
	root.AddCommand(a.hubCmds()...)
	root.AddCommand(a.embedCmds()...)
	root.AddCommand(a.gpuCmds()...)
	return root
}

// exactly checks the number of arguments.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s takes %s: %s; see %s --help", c.CommandPath(), what,
				strings.TrimSuffix(c.UseLine(), " [flags]"), c.CommandPath())
		}
		return nil
	}
}
