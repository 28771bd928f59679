// Package health decides which of a device's fast paths are used: those that
// gave the right numbers on this device, with this driver and these kernels.
// The check runs in a child process, so that a crash or a hang of a driver is a
// failed check and nothing else; its result is kept in a small text file. The
// same package holds the smoke runs. docs/health.md describes both.
package health

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// Settings say how Apply decides.
type Settings struct {
	FP16 backends.Choice // of paths in half precision
	FP8  bool            // the user opts into the path of fp8 matrix instructions
	// File keeps the records; empty: DefaultFile. "off": none is read or written.
	File string
	// Child gives the command that runs the check of a path: it must open the same
	// device and call Serve. nil: the check runs in this process, which a crash
	// or a hang of the driver then takes along.
	Child func(path string) child.Command
	Limit time.Duration // of a check; 0: DefaultLimit
	Again bool          // check also what has a record
	// Passing says of an error of the check that it says nothing of the path, such
	// as memory that others hold: the path is off this time, and nothing is kept.
	// nil: none does.
	Passing func(error) bool
	// Notify is told of checks that are made and of paths that are not used for
	// want of one that passed.
	Notify func(text string)
}

// DefaultLimit is how long the check of a path may take, compilation included.
const DefaultLimit = 2 * time.Minute

// DefaultFile is in the user's folder of caches; "off" where there is none.
func DefaultFile() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return off
	}
	return filepath.Join(dir, "greta", "health.txt")
}

const off = "off"

// Decision is what was decided of a path, and why.
type Decision struct {
	Path  string `json:"path"`
	About string `json:"about"`
	On    bool   `json:"on"`
	// Health is "passed", "failed", or "unchecked" where nothing asked for a check
	// or it could not be made.
	Health string  `json:"health"`
	Fresh  bool    `json:"fresh,omitempty"` // checked by this start, not remembered
	Reason string  `json:"reason,omitempty"`
	TookMS float64 `json:"took_ms,omitempty"`
}

func (d Decision) String() string {
	text := d.About + ": "
	if d.On {
		text += "on"
	} else {
		text += "off"
	}
	text += " (" + d.Health
	if d.Fresh {
		text += fmt.Sprintf(" just now in %.1f s", d.TookMS/1000)
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text + ")"
}

// What Decision.Health says.
const (
	Passed    = "passed"
	Failed    = "failed"
	Unchecked = "unchecked"
)

// Apply decides on every path of a device and turns it on or off. A device
// without paths has no decisions. Its error says that a path could not be set,
// that ctx ended, or that --fp16 on or --fp8 asks for what the device lacks or fails at.
func Apply(ctx context.Context, dev backends.Device, s Settings) ([]Decision, error) {
	p := backends.PathsOf(dev)
	if s.File == "" {
		s.File = DefaultFile()
	}
	if s.Notify == nil {
		s.Notify = func(string) {}
	}
	paths := p.Paths()
	var all []Decision
	var open []int
	for i, path := range paths {
		d, known := remembered(dev, path, s)
		if !known {
			open = append(open, i)
		}
		all = append(all, d)
	}
	for k, o := range checks(ctx, dev, paths, open, s) {
		i := open[k]
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		o.settle(&all[i], dev, paths[i], s)
	}
	halves, optIn := 0, 0
	for i, path := range paths {
		d := all[i]
		if path.OptIn {
			optIn++
			if s.FP8 && !d.On {
				return all, fmt.Errorf("--fp8: the check of %s failed on this device and driver: %s", path.About, d.Reason)
			}
		}
		if path.Half {
			halves++
			if s.FP16 == backends.On && !d.On {
				return all, fmt.Errorf("--fp16 on: the check of %s failed on this device and driver: %s", path.About, d.Reason)
			}
		}
	}
	for _, d := range all { // a check in this process has set them too
		if err := p.SetPath(d.Path, d.On); err != nil {
			return all, err
		}
	}
	if s.FP16 == backends.On && halves == 0 {
		return all, fmt.Errorf("--fp16 on: the %s backend has no path in half precision on %s", dev.Info().Backend,
			dev.Info().Name)
	}
	if s.FP8 && optIn == 0 {
		return all, fmt.Errorf("--fp8: the %s backend uses no fp8 matrix instructions on %s (%s)", dev.Info().Backend,
			dev.Info().Name, dev.Info().Level)
	}
	return all, nil
}

// remembered is the decision on a path that needs no check; false: it needs one.
func remembered(dev backends.Device, path backends.Path, s Settings) (Decision, bool) {
	d := Decision{Path: path.Name, About: path.About, Health: Unchecked}
	switch {
	case path.OptIn && !s.FP8:
		d.Reason = "only with --fp8"
		return d, true
	case path.OptIn:
	case path.Half && s.FP16 == backends.Off:
		d.Reason = "--fp16 off"
		return d, true
	case path.Half && s.FP16 == backends.Auto && !path.Auto:
		d.Reason = "only with --fp16 on"
		return d, true
	case !path.Half && !path.Auto:
		d.Reason = "not used by itself"
		return d, true
	}
	r, ok := find(s.File, keyOf(dev.Info(), path))
	if !ok || s.Again {
		return d, false
	}
	d.Health, d.On, d.Reason = r.verdict, r.verdict == Passed, r.reason
	if !d.On {
		s.Notify(fmt.Sprintf("%s is not used: its check failed on this device and driver: %s (recorded in %s; greta "+
			"smoke %s--recheck tries again)", path.About, d.Reason, s.File, map[bool]string{true: "--fp8 "}[path.OptIn]))
	}
	return d, true
}

// outcome is what the check of a path gave.
type outcome struct {
	start time.Time
	took  time.Duration
	err   error
}

// checks makes the checks of some paths. Children run beside each other, as each compiles kernels of its own. Where
// more than one of them fails, a fault of one may have cost the others the device: those are checked again, alone.
func checks(ctx context.Context, dev backends.Device, paths []backends.Path, open []int, s Settings) []outcome {
	all := make([]outcome, len(open))
	one := func(k int) {
		o := outcome{start: time.Now()}
		o.err = check(ctx, dev, paths[open[k]], s)
		o.took = time.Since(o.start)
		all[k] = o
	}
	if s.Child == nil || len(open) < 2 {
		for k := range open {
			one(k)
		}
		return all
	}
	var beside sync.WaitGroup
	for k := range open {
		beside.Go(func() { one(k) })
	}
	beside.Wait()
	var failed []int
	for k, o := range all {
		if o.err != nil {
			failed = append(failed, k)
		}
	}
	if len(failed) > 1 {
		for _, k := range failed {
			one(k)
		}
	}
	return all
}

// settle completes a decision by its check, and keeps it.
func (o outcome) settle(d *Decision, dev backends.Device, path backends.Path, s Settings) {
	if cannot := (*notMade)(nil); errors.As(o.err, &cannot) {
		d.Reason = "the check could not be made: " + cannot.Error()
		s.Notify(d.String())
		return
	}
	d.Fresh, d.TookMS = true, float64(o.took.Microseconds())/1000
	d.Health, d.On = Passed, o.err == nil
	if o.err != nil {
		d.Health, d.Reason = Failed, o.err.Error()
	}
	kept := record{key: keyOf(dev.Info(), path), verdict: d.Health, reason: d.Reason, at: o.start}
	if e := keep(s.File, kept); e != nil {
		s.Notify(fmt.Sprintf("the health check's result cannot be kept: %v", e))
	}
	s.Notify(d.String())
}

// notMade is the error of a check that says nothing of the path.
type notMade struct{ error }

// check runs the check of a path, in a child where there is a command for one.
func check(ctx context.Context, dev backends.Device, path backends.Path, s Settings) error {
	if s.Child == nil {
		s.Notify(fmt.Sprintf("checking %s in this process: no command for a child process was given", path.About))
		err := Check(dev, path.Name, func(string) {})
		if err != nil && s.Passing != nil && s.Passing(err) {
			return &notMade{err}
		}
		return err
	}
	limit := s.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	command := s.Child(path.Name)
	if _, err := exec.LookPath(command[0]); err != nil {
		return &notMade{err}
	}
	out, err := child.Run(ctx, command, nil, limit)
	stage := ""
	for line := range bytes.Lines(out) {
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		switch {
		case m.Stage != "":
			stage = m.Stage
		case err != nil:
		case m.Device != nil && *m.Device != identity(dev.Info()):
			return &notMade{fmt.Errorf("the child process opened another device: %+v instead of %+v", *m.Device,
				identity(dev.Info()))}
		case m.Done && m.Error != "" && m.Passing:
			return &notMade{errors.New(m.Error)}
		case m.Done && m.Error != "":
			return errors.New(m.Error)
		case m.Done:
			return nil
		}
	}
	if err == nil {
		err = fmt.Errorf("the child process said nothing of a result: %.200q", out)
	}
	if stage != "" {
		err = fmt.Errorf("while %s: %w", stage, err)
	}
	return err
}

// message is a line of what a checking child writes.
type message struct {
	Stage  string  `json:"stage,omitempty"`
	Device *device `json:"device,omitempty"`
	Done   bool    `json:"done,omitempty"`
	Error  string  `json:"error,omitempty"`
	// Passing says that the error says nothing of the path.
	Passing bool `json:"passing,omitempty"`
}

// device is what must be equal for two processes to have opened the same.
type device struct{ Backend, Name, Level, Driver string }

func identity(i backends.Info) device { return device{i.Backend, i.Name, i.Level, i.Driver} }

// Check tries one path of a device, all others off, in this process: every node
// of the trial that the path takes, launched in one captured program and
// replayed, between guard bands, against float64. Afterwards all paths are as
// Paths' defaults have them: exact ones on, half ones and those that users opt into off. stage is told what
// is under way. A path that takes no node of the trial fails: nothing was seen.
func Check(dev backends.Device, name string, stage func(string)) (err error) {
	p := backends.PathsOf(dev)
	paths := p.Paths()
	i := slices.IndexFunc(paths, func(p backends.Path) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("%s has no path %q", dev.Info().Name, name)
	}
	for _, other := range paths {
		if err := p.SetPath(other.Name, other.Name == name); err != nil {
			return err
		}
	}
	defer func() {
		for _, other := range paths {
			err = errlist.Join(err, p.SetPath(other.Name, other.Exact()))
		}
	}()
	if try := paths[i].Try; try != nil {
		stage(paths[i].About)
		return try()
	}
	cases, err := taken(dev, paths[i])
	if err != nil {
		return err
	}
	if len(cases) == 0 {
		return fmt.Errorf("%s takes none of the trial's nodes", paths[i].About)
	}
	return optest.Together(dev, cases, paths[i].Rel, stage)
}

// taken are the cases of the trial that a path computes.
func taken(dev backends.Device, p backends.Path) ([]optest.Case, error) {
	var cases []optest.Case
	trial := trial()
	if p.OptIn {
		trial = append(trial, trialF8()...)
	}
	for _, c := range trial {
		n, err := c.Bare(dev.Info().Float)
		if err != nil {
			return nil, err
		}
		if p.Takes == nil || p.Takes(n) {
			cases = append(cases, c)
		}
	}
	return cases, nil
}

// DryRun captures the checks of a device's paths and runs nothing: for
// devices that only note what they are asked for.
func DryRun(dev backends.Device) error {
	p := backends.PathsOf(dev)
	paths := p.Paths()
	for _, path := range paths {
		for _, other := range paths {
			if err := p.SetPath(other.Name, other.Name == path.Name); err != nil {
				return err
			}
		}
		if path.Try != nil { // which runs what it captures
			continue
		}
		cases, err := taken(dev, path)
		if err == nil {
			err = optest.DryRun(dev, cases)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// trialF8 is what paths that users opt into are tried on besides.
func trialF8() []optest.Case {
	var all []optest.Case
	for _, t := range []tensor.Type{tensor.F8E4M3, tensor.F8E5M2, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ} {
		for _, s := range [][3]int{{128, 256, 256}, {67, 768, 131}, {300, 1040, 517}} {
			all = append(all, optest.Case{Name: fmt.Sprintf("health/linear %s %v", t, s), Eq: "y: linear(x, w)",
				Args: fmt.Sprintf("x float[%d, %d]; w %s[%d, %d]", s[0], s[1], t, s[2], s[1]), Rel: 5e-6, Abs: 5e-5})
		}
	}
	return all
}

// trial is what paths are tried on: the products and attentions of prefill and
// decode, in sizes that fill tiles and sizes that do not, long sums, large and
// small values. Types of weights stand for their families.
func trial() []optest.Case {
	const rel, abs = 5e-6, 5e-5
	var all []optest.Case
	add := func(name, eq, args string, scale float64) {
		all = append(all, optest.Case{Name: "health/" + name, Eq: eq, Args: args, Rel: rel, Abs: abs * scale})
	}
	linear := func(name string, rows, k, n int, t tensor.Type, flags string, scale float64) {
		add(fmt.Sprintf("linear %s %s %dx%dx%d", name, t, rows, k, n), "y: linear(x, w)",
			fmt.Sprintf("x float[%d, %d]%s; w %s[%d, %d]", rows, k, flags, t, n, k), scale)
	}
	for _, t := range []tensor.Type{tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q5_K,
		tensor.Q6_K, tensor.MXFP4} {
		linear("decode", 1, 512, 259, t, "", 1)
		linear("tiles", 128, 256, 256, t, "", 1)
		linear("tails", 67, 768, 131, t, "", 1)
	}
	for _, t := range []tensor.Type{tensor.F16, tensor.BF16} {
		linear("rounds", 256, 64, 8576, t, "", 1) // 134 tiles of 128x128: large ones where there are others for many
	}
	linear("few", 5, 1024, 67, tensor.F16, "", 1)
	linear("long", 33, 4096, 64, tensor.F16, "", 1)
	linear("large", 33, 512, 64, tensor.F16, " *100", 100)
	linear("small", 33, 512, 64, tensor.F16, " *0.001", 1)
	linear("stride", 33, 512, 64, tensor.F16, " +24", 1)
	for _, t := range []tensor.Type{tensor.F16, tensor.BF16, tensor.MXFP4} {
		add(fmt.Sprint("experts ", t), "y: linear_id(x, w, e)",
			fmt.Sprintf("x float[19, 1, 256]; w %s[5, 67, 256]; e i32[19, 2] <5", t), 1)
	}
	for _, t := range []tensor.Type{tensor.Q4_K, tensor.MXFP4} {
		add(fmt.Sprint("experts decode ", t), "y: linear_id(x, w, e)",
			fmt.Sprintf("x float[1, 1, 256]; w %s[5, 67, 256]; e i32[1, 2] <5", t), 1)
	}
	attention := func(name string, rows, heads, groups, d, cache, from int, t tensor.Type) {
		add("attention "+name, "y: attention(q, k, v, pos)", fmt.Sprintf("q float[%d, %d, %d]; k %s[%d, %d, %d]; v %s[%d, "+
			"%d, %d]; pos i32[%d] =%d..",
			rows, heads, d, t, cache, groups, d, t, cache, groups, d, rows, from), 1)
	}
	attention("decode", 1, 8, 2, 128, 700, 650, tensor.F16)
	attention("prefill", 130, 4, 2, 128, 300, 0, tensor.F16)
	attention("chunk", 67, 4, 4, 64, 400, 300, tensor.F16)
	attention("f32", 33, 2, 1, 64, 100, 20, tensor.F32)
	add("attention sinks one token", "y: attention(q, k, v, pos, n)", "q float[1, 8, 64]; k f16[900, 1, 64]; "+
		"v f16[900, 1, 64]; pos i32[1] =803; n f32[8] *9", 1)
	add("attention sinks", "y: attention(q, k, v, pos, n)", "q float[67, 4, 64]; k f16[400, 2, 64]; v f16[400, 2, 64]; "+
		"pos i32[67] =300..; n f32[4] *4", 1)
	add("attention narrow values", "y: attention(q, k, v, pos)", "q float[130, 4, 192]; k f16[300, 2, 192]; v f16[300, "+
		"2, 128]; pos i32[130] =0..", 1)
	// Scores whose largest rises by far more than e^8 on the way; of queries that f16 holds.
	add("attention sharp", "y: attention(q, k, v, pos)", "q float[67, 2, 128] #4 *16; k f16[200, 1, 128]; v f16[200, "+
		"1, 128]; pos i32[67] =100..", 1)
	return all
}
