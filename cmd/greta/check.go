package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/golden"
	"github.com/greta-project/greta/tensor"
)

// checkFlags are those of check beside the model's.
type checkFlags struct {
	modelFlags
	tokens, expected string
	against, python  string
	tolerance        float64
	all, json        bool
}

func (a *app) checkCmd() *cobra.Command {
	f := &checkFlags{}
	c := &cobra.Command{
		Use:   "check MODEL",
		Short: "Compare a model with the float64 reference, or with a golden file",
		Long: `check runs a prompt and one token behind it on the backend and on the float64
reference, operator by operator, each on the operands that the backend computed,
and names the first that diverges. It also checks that prefill gives what single
steps give, that replay gives what eager launches give, and that repeats are
bit-identical.

With --expected the logits and the greedy continuation are compared with those
of a safetensors file: input_ids [B, S], logits [B, S, V], greedy_prompt [P],
greedy [G]; or greedy continuations and the mean negative log-likelihood with
those of a JSON file: {"greedy": [{"prompt_tokens": [...], "greedy": [...]}],
"nll_tokens": [...], "nll": 4.1}. Of a folder its expected.safetensors or
expected.json is taken. Such results are exact, so caches are then f32 unless --kv
says otherwise, and activations are not rounded: on the processor unless
--exact=false, on a GPU unless --fp16 says so.

With --against torch the model is also run by transformers, where a Python has it,
in float64, and each value that both have is compared: what goes into the first
layer, what every layer gives, operands and results of every module with weights.
The first that differs is named with its equation, its place in the model file and
the equations that can be at fault.

The exit code is 4 on a mismatch.`,
		Args: exactly(1, "one model"),
		RunE: func(c *cobra.Command, args []string) error {
			if !(f.tolerance >= 0 && f.tolerance <= math.MaxFloat64) {
				return usagef("--tolerance %g: it must be positive and finite", f.tolerance)
			}
			if err := f.checkAgainst(c.Flags().Changed); err != nil {
				return err
			}
			if f.expected != "" {
				f.settleExact(c.Flags().Changed)
			}
			b, err := f.open(c.Context(), a.err, args[0])
			if err != nil {
				return err
			}
			switch {
			case f.against != "":
				err = a.checkTorch(c.Context(), f, b)
			case f.expected != "":
				err = a.checkExpected(c.Context(), f, b)
			default:
				err = a.checkReference(c.Context(), f, b)
			}
			if err == nil {
				err = usage(b.variants.Check())
			}
			return errlist.Join(err, b.close())
		},
	}
	s := c.Flags()
	s.SortFlags = false
	f.register(s)
	s.StringVar(&f.tokens, "tokens", "", "token ids to check on, 1,2,3 (default: ten made up ones)")
	s.StringVar(&f.expected, "expected", "", "compare with this safetensors or JSON file (.zst is unpacked), or with "+
		"the one in this folder")
	s.StringVar(&f.against, "against", "", "torch: compare with transformers, value by value")
	s.StringVar(&f.python, "python", "python3", "with --against, the Python that has torch and transformers")
	s.Float64Var(&f.tolerance, "tolerance", 0, "relative L2 error that counts as divergence (default: 1e-4 with --kv "+
		"f32, 2e-3 with f16, 6e-3 with bf16; 1e-4 with --against); with --expected that of all logits, "+
		"where none is off by less than this; or the error of the mean (default: 1e-4)")
	s.BoolVar(&f.all, "all", false, "print every operator, not only those that matter")
	s.BoolVar(&f.json, "json", false, "write JSON")
	return c
}

// checkAgainst refuses flags that do not go together.
func (f *checkFlags) checkAgainst(changed func(flag string) bool) error {
	switch {
	case f.against == "" && changed("python"):
		return usagef("--python is for --against torch")
	case f.against == "" && !changed("against"):
		return nil
	case f.against != "torch":
		return usagef("--against %q: there is torch", f.against)
	case f.expected != "":
		return usagef("--against and --expected: one of them is wanted")
	}
	return nil
}

// settleExact leaves out what rounds, where no flag asks for it.
func (f *checkFlags) settleExact(changed func(flag string) bool) {
	if !changed("kv") {
		f.kv = tensor.F32.String()
	}
	f.exact = f.exact || f.backend == "cpu" && !changed("exact")
	f.fp8 = f.fp8 && changed("fp8")
	if !changed("fp16") {
		f.fp16 = backends.Off.String()
	}
}

// mismatch is the error of a check that failed.
func mismatch(format string, args ...any) error {
	return &exitError{code: exitMismatch, err: fmt.Errorf(format, args...)}
}

// referenceReport compares a model with the reference in float64; without tokens, on ten made up ones.
func referenceReport(ctx context.Context, b *bundle, tokens []int32, tolerance float64) (*engine.CheckReport, error) {
	opt := engine.CheckOptions{Options: b.opt, Limit: tolerance, Tokens: tokens}
	if opt.Context == 0 {
		opt.Context = withinTable(opt.Options, max(64, len(opt.Tokens)))
	}
	if len(opt.Tokens) > opt.Context {
		return nil, usage(&engine.TooLong{Tokens: len(opt.Tokens), Context: opt.Context})
	}
	dev, err := openBackend("ref", deviceFlags{})
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	opt.Ref = dev
	r, err := engine.Check(ctx, opt)
	return r, loadError(err)
}

func (a *app) checkReference(ctx context.Context, f *checkFlags, b *bundle) error {
	var tokens []int32
	if f.tokens != "" {
		var err error
		if tokens, err = parseTokens("--tokens", f.tokens); err != nil {
			return usage(err)
		}
		if err := f.refuseSeed(b); err != nil {
			return err
		}
	}
	r, err := referenceReport(ctx, b, tokens, f.tolerance)
	if err != nil {
		return err
	}
	if f.json {
		err = writeJSON(a.out, r)
	} else {
		_, err = io.WriteString(a.out, checkText(r, f.all))
	}
	if err != nil || r.OK() {
		return err
	}
	switch d := r.Diverged; {
	case d != nil:
		return mismatch("%s: %s (%s, kernel %s) is the first that diverges: relative L2 %.2e, max abs %.2e, limit %.0e",
			d.Step, d.Name, d.Op, d.Kernel, d.RelL2, d.MaxAbs, r.Limit)
	case !r.PrefillOK:
		return mismatch("prefill and decode differ: relative L2 %.2e, max abs %.2e, limit %.0e", r.Prefill.RelL2,
			r.Prefill.MaxAbs, r.PrefillLimit)
	case !r.ReplayOK:
		return mismatch("replay and eager launches differ: %s is the first", r.ReplayAt)
	}
	return mismatch("repeats differ: %s is the first", r.RepeatAt)
}

// checkText prints a check: the worst result of each operator, or all.
func checkText(r *engine.CheckReport, all bool) string {
	t := report.NewTable("<step", "<operator", "<worst result", "results", "relative L2", "max abs", "<")
	row := func(e *engine.OpError, n int) {
		verdict := "ok"
		if !(e.RelL2 <= r.Limit) {
			verdict = "DIVERGED"
		}
		t.Row(e.Step, e.Op, e.Name, strconv.Itoa(n), fmt.Sprintf("%.2e", e.RelL2), fmt.Sprintf("%.2e", e.MaxAbs), verdict)
	}
	type group struct {
		worst *engine.OpError
		n     int
	}
	var groups []*group
	for i := range r.Ops {
		e := &r.Ops[i]
		if all {
			row(e, 1)
			continue
		}
		k := slices.IndexFunc(groups, func(g *group) bool { return g.worst.Step == e.Step && g.worst.Op == e.Op })
		if k < 0 {
			groups = append(groups, &group{e, 1})
			continue
		}
		groups[k].n++
		if !(e.RelL2 <= groups[k].worst.RelL2) {
			groups[k].worst = e
		}
	}
	for _, g := range groups {
		row(g.worst, g.n)
	}
	yes := map[bool]string{true: "ok", false: "FAILED"}
	at := func(step string) string {
		if step == "" {
			return ""
		}
		return ", first at " + step
	}
	s := t.String()
	s += fmt.Sprintf("\nlimit of relative L2           %.0e\n", r.Limit)
	s += fmt.Sprintf("prefill equals decode          %s, relative L2 %.2e, max abs %.2e\n", yes[r.PrefillOK],
		r.Prefill.RelL2, r.Prefill.MaxAbs)
	s += fmt.Sprintf("replay equals eager launches   %s%s\n", yes[r.ReplayOK], at(r.ReplayAt))
	s += fmt.Sprintf("repeats are bit-identical      %s%s\n", yes[r.RepeatOK], at(r.RepeatAt))
	s += fmt.Sprintf("verdict                        %s: compared with greta's own float64 reference of the same "+
		"model file; "+
		"--expected compares with another implementation's results\n", r.Verdict)
	return s
}

// goldenReport is what a comparison with a golden file found.
type goldenReport struct {
	Expected  string  `json:"expected"`
	Positions int     `json:"positions"`
	MaxAbs    float64 `json:"max_abs"`
	RelL2     float64 `json:"rel_l2"`
	Tolerance float64 `json:"tolerance"` // of rel_l2 or max_abs: logits of any size are met by one of them
	FirstRow  int     `json:"first_divergent_row"`
	FirstPos  int     `json:"first_divergent_position"` // -1: none
	Greedy    []int32 `json:"greedy,omitempty"`
	GreedyOK  bool    `json:"greedy_ok"`
	Status    string  `json:"status"`
}

// expectedFile finds what --expected names: a file, or one of the usual names in a folder.
func expectedFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, err
	}
	names := []string{"expected.safetensors", "expected.safetensors.zst", "expected.json"}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			return filepath.Join(path, name), nil
		}
	}
	return "", fmt.Errorf("%s holds none of %s", path, strings.Join(names, ", "))
}

func (a *app) checkExpected(ctx context.Context, f *checkFlags, b *bundle) error {
	path, err := expectedFile(f.expected)
	if err != nil {
		return usage(fmt.Errorf("--expected: %w", err))
	}
	f.expected = path
	if strings.HasSuffix(path, ".json") {
		return a.checkTexts(ctx, f, b)
	}
	return a.checkGolden(ctx, f, b)
}

func (a *app) checkGolden(ctx context.Context, f *checkFlags, b *bundle) error {
	g, err := golden.Open(f.expected)
	if err != nil {
		return usage(err)
	}
	longest := max(g.Seq, len(g.Prompt)+len(g.Greedy))
	if b.opt.Context == 0 { // what a context changes, such as frequencies, is then that of these sequences
		b.opt.Context = longest
	}
	if b.opt.Context < longest {
		return usage(&engine.TooLong{Tokens: longest, Context: b.opt.Context})
	}
	e, err := a.load(ctx, b)
	if err != nil {
		return err
	}
	defer e.Close()
	r, err := compareGolden(ctx, e, g, f.tolerance)
	if err != nil {
		return err
	}
	r.Expected = f.expected
	if f.json {
		err = writeJSON(a.out, r)
	} else {
		_, err = fmt.Fprintf(a.out, "logits   %d positions, relative L2 %.2e, max abs %.2e (one of them at most %.0e)\n"+
			"greedy   %d tokens, equal: %v\nSTATUS=%s\n",
			r.Positions, r.RelL2, r.MaxAbs, r.Tolerance, len(g.Greedy), r.GreedyOK, r.Status)
	}
	switch {
	case err != nil:
		return err
	case r.FirstPos >= 0:
		hint := ""
		if kv := b.opt.KV; kv != tensor.F32 {
			hint = fmt.Sprintf("; the caches are of %s, --kv f32 compares without their rounding", kv)
		}
		return mismatch("%s: logits diverge first at row %d, position %d: relative L2 %.2e and max abs %.2e in all, one of "+
			"them may be at most %.0e%s", f.expected, r.FirstRow, r.FirstPos, r.RelL2, r.MaxAbs, r.Tolerance, hint)
	case !r.GreedyOK:
		i := 0
		for i < len(r.Greedy) && i < len(g.Greedy) && r.Greedy[i] == g.Greedy[i] {
			i++
		}
		return mismatch("%s: the greedy continuation differs first at token %d: %v, expected %v", f.expected, i, r.Greedy,
			g.Greedy)
	}
	return nil
}

// compareGolden runs a golden file's inputs. tolerance 0 is 1e-4.
func compareGolden(ctx context.Context, e *engine.Engine, g *golden.File, tolerance float64) (*goldenReport, error) {
	if tolerance == 0 {
		tolerance = 1e-4
	}
	r := &goldenReport{Tolerance: tolerance, FirstRow: -1, FirstPos: -1, Status: "OK"}
	s, err := e.NewSession()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	got := make([]float32, 0, len(g.Logits))
	for row, ids := range g.Input {
		s.Reset()
		err := s.PrefillAll(ctx, ids, func(i int, logits []float32) error {
			if len(logits) != g.Vocab {
				return usagef("the golden file has %d logits a position, the model %d", g.Vocab, len(logits))
			}
			at := (row*g.Seq + i) * g.Vocab
			if rel, _ := report.Compare(logits, g.Logits[at:at+g.Vocab]); !(rel <= tolerance) && r.FirstPos < 0 {
				r.FirstRow, r.FirstPos = row, i
			}
			got = append(got, logits...)
			return nil
		})
		if err != nil {
			return nil, err
		}
		r.Positions += len(ids)
	}
	if r.RelL2, r.MaxAbs = report.Compare(got, g.Logits); min(r.RelL2, r.MaxAbs) <= tolerance {
		r.FirstRow, r.FirstPos = -1, -1
	}
	if len(g.Greedy) > 0 {
		s.Reset()
		out, err := s.Generate(ctx, g.Prompt, engine.Generation{Max: len(g.Greedy)})
		if err != nil {
			return nil, err
		}
		r.Greedy = out.Tokens
	}
	r.GreedyOK = slices.Equal(r.Greedy, g.Greedy)
	if r.FirstPos >= 0 || !r.GreedyOK {
		r.Status = "FAILED"
	}
	return r, nil
}
