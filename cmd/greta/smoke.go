package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/health"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/internal/errlist"
)

// smokeFlags are those of smoke, and of its child.
type smokeFlags struct {
	modelFlags        // of which backend, device, fp16 and kernels are flags here
	profile, validate string
	repeat            int
	recheck           bool
}

func (f *smokeFlags) register(c *cobra.Command) {
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.backend, "backend", "cpu", "device: "+strings.Join(backendNames(), ", "))
	s.StringVar(&f.device, "device", "", "which of a backend's devices (default: the best)")
	s.StringVar(&f.profile, "profile", string(health.Default), "what is run: ultrasafe (small padded products, one by "+
		"one), fill (patterns in memory), default (every operator, captured programs)")
	s.IntVar(&f.repeat, "repeat", 10, "how often a device is opened, used and closed")
	s.StringVar(&f.fp16, "fp16", "auto", "vulkan, hip: arithmetic in half precision: on, off or auto; of the profile "+
		"default")
	f.registerFP8(s, "hip: fp8 matrix instructions too; of the profile default")
	s.StringVar(&f.kernels, "kernels", "", "hip: folder of kernels compiled ahead of time")
	s.StringVar(&f.validate, "validate", "auto", "vulkan: count the validation layer's messages: on, off, or auto, "+
		"where the layer is found")
	s.BoolVar(&f.recheck, "recheck", false, "check the fast paths anew, also where a result is kept; of the profile "+
		"default")
}

// parse reads the flags that are names.
func (f *smokeFlags) parse() (health.Profile, backends.Choice, error) {
	p, err := health.ParseProfile(f.profile)
	if err != nil {
		return p, 0, usagef("--profile %v", err)
	}
	v, err := backends.ParseChoice(f.validate)
	if err != nil {
		return p, v, usagef("--validate %v", err)
	}
	if _, err := backends.ParseChoice(f.fp16); err != nil {
		return p, v, usagef("--fp16 %v", err)
	}
	if v == backends.On && f.backend != "vulkan" {
		return p, v, usagef("--validate on: there is a validation layer for the vulkan backend only")
	}
	if f.repeat < 1 || f.repeat > 100000 {
		return p, v, usagef("--repeat %d: it must be between 1 and 100000", f.repeat)
	}
	return p, v, nil
}

func (a *app) smokeCmd() *cobra.Command {
	f := &smokeFlags{}
	var asJSON bool
	var limit time.Duration
	c := &cobra.Command{
		Use:   "smoke",
		Short: "Try a device carefully, in a process of its own",
		Long: `smoke opens a device, uses it as a profile says, checks every byte and number,
closes it, and does so again. All happens in a child process under a watchdog:
a driver that crashes or hangs is reported, and takes nothing along.

  ultrasafe  small products of padded sizes, one by one, with waits between;
             no fast path, nothing captured
  fill       patterns in memory of every use, read back between guard bands, and
             the kernels that only move data
  default    every operator, launched and replayed, then products and attentions
             as one captured program, with the fast paths that passed their check

For a device that makes trouble start with ultrasafe. The last line is
STATUS=OK only where every run was made and clean, without a message of the
validation layer. Exit codes: 1 where it was not, 3 where there is no device.`,
		Example: "  greta smoke --backend vulkan --profile fill --repeat 3",
		Args:    exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			if _, _, err := f.parse(); err != nil {
				return err
			}
			if limit <= 0 {
				return usagef("--limit %v: it must be positive", limit)
			}
			return a.smoke(c.Context(), f, limit, asJSON)
		},
	}
	f.register(c)
	c.Flags().DurationVar(&limit, "limit", 3*time.Minute, "the watchdog's: how long a step may take")
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// smoke runs the child and reports.
func (a *app) smoke(ctx context.Context, f *smokeFlags, limit time.Duration, asJSON bool) error {
	if !knownBackend(f.backend) {
		return &exitError{code: exitNoDevice, err: fmt.Errorf("no backend %q; there are %s", f.backend,
			strings.Join(backendNames(), ", "))}
	}
	command := self("smoke", "--backend", f.backend, "--device", f.device, "--profile", f.profile, "--repeat",
		strconv.Itoa(f.repeat),
		"--fp16", f.fp16, "--kernels", f.kernels, "--validate", f.validate, "--recheck="+strconv.FormatBool(f.recheck),
		"--fp8="+strconv.FormatBool(f.fp8))
	if command == nil {
		return errors.New("the program does not know where it lies, so it cannot start a child process")
	}
	text := func(format string, args ...any) {
		if !asJSON {
			fmt.Fprintf(a.out, format, args...)
		}
	}
	text("smoke of %s, profile %s, %d runs\n", f.backend, f.profile, f.repeat)
	r, err := health.Watch(ctx, command, f.backend, health.Profile(f.profile), f.repeat, limit, func(r health.Run) {
		verdict := "ok"
		if !r.OK() {
			verdict = "FAILED"
		}
		text("run %-3d %-6s  %d checks, %.0f ms\n", r.Run, verdict, r.Checks, r.MS)
		for _, p := range r.Problems {
			text("        %s\n", p)
		}
	})
	none := (*health.NoDevice)(nil)
	switch {
	case errors.As(err, &none):
		if asJSON {
			err = errlist.Join(err, writeJSON(a.out, r))
		}
		return &exitError{code: exitNoDevice, err: err}
	case err != nil:
		return err
	}
	if asJSON {
		err = writeJSON(a.out, r)
	} else {
		err = smokeText(a.out, r)
	}
	if err == nil && r.Status != "OK" {
		err = &exitError{code: exitFailed, err: errors.New(r.Reason), reported: true}
	}
	return err
}

// smokeText ends the report for people.
func smokeText(w io.Writer, r *health.SmokeReport) error {
	var b strings.Builder
	if r.Device != "" {
		fmt.Fprintf(&b, "device  %s\n", strings.Join(slices.DeleteFunc([]string{r.Device, r.Level, r.Driver},
			func(s string) bool {
				return s == ""
			}), ", "))
	}
	if r.Validation != "" {
		fmt.Fprintf(&b, "validation layer %s, %d messages\n", r.Validation, r.Messages)
	}
	for _, d := range r.Paths {
		fmt.Fprintf(&b, "path    %s\n", d)
	}
	b.WriteString("STATUS=" + r.Status)
	if r.Reason != "" {
		b.WriteString(": " + strings.ReplaceAll(r.Reason, "\n", "; "))
	}
	_, err := io.WriteString(w, b.String()+"\n")
	return err
}

// internalSmokeCmd is the child's side.
func (a *app) internalSmokeCmd() *cobra.Command {
	f := &smokeFlags{}
	c := &cobra.Command{Use: "smoke", Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			profile, validate, err := f.parse()
			if err != nil {
				return err
			}
			out, err := child.Stdout()
			if err != nil {
				return err
			}
			return health.ServeSmoke(out, profile, f.repeat, func() (*health.Opened, error) {
				return f.openToSmoke(c.Context(), profile, validate)
			})
		}}
	f.register(c)
	return c
}

// openToSmoke opens the device, with the validation layer where it is asked
// for and there, and settles its paths.
func (f *smokeFlags) openToSmoke(ctx context.Context, profile health.Profile, validate backends.Choice) (*health.Opened,
	error) {
	o := &health.Opened{}
	flags := f.deviceFlags()
	var err error
	if f.backend == "vulkan" && validate != backends.Off {
		var m messages
		flags.validate = m.add
		if o.Device, err = openBackend(f.backend, flags); err == nil {
			o.Validation, o.Messages, o.First = "on", m.count, m.first
		} else if validate == backends.On {
			return nil, err
		} else {
			o.Validation = "off (" + err.Error() + ")"
		}
		flags.validate = nil
	}
	if o.Device == nil {
		if o.Device, err = openBackend(f.backend, flags); err != nil {
			return nil, err
		}
	}
	if profile == health.Default {
		o.Paths, err = f.settle(ctx, o.Device, func(text string) { fmt.Fprintln(os.Stderr, text) }, f.recheck)
		f.recheck = false // once is enough
		if err != nil {
			return nil, errlist.Join(err, o.Device.Close())
		}
	}
	return o, nil
}

// messages counts what a validation layer says and keeps the first few.
type messages struct {
	mu   sync.Mutex
	n    int
	kept []string
}

func (m *messages) add(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.n++; len(m.kept) < 5 {
		m.kept = append(m.kept, text)
	}
}

func (m *messages) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n
}

func (m *messages) first() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept
}

func knownBackend(name string) bool {
	for _, b := range backendTable {
		if b.name == name {
			return true
		}
	}
	return false
}
