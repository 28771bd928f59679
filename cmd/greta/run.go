package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/tokenizer"
)

// defaultGen is how many tokens a prompt is continued by, unless an end token comes.
const defaultGen = 256

// runFlags are those of run beside the model's.
type runFlags struct {
	modelFlags
	stepFlags
	manyFlags
	prompt    string
	tokens    string
	gen       int
	special   bool
	sampling  engine.Sampling
	logprobs  int
	bias      []string
	ignoreEOS bool
	stops     []string

	prefill, repeat int // of a measured run

	json, logits, trace   string
	nll, profile, verbose bool

	noLimits bool
	strict   bool
	compare  bool // a text with the reference

	hasPrompt, hasTokens, hasGen, hasPrefill bool // given by the user
}

// runCmd is the command with its flags and its help, in one piece.
func (a *app) runCmd() *cobra.Command {
	f := &runFlags{}
	c := &cobra.Command{
		Use:   "run MODEL",
		Short: "Continue a prompt, or measure a model",
		Long: `MODEL is a model file (.yaml, or the name of a built-in one), a Hugging Face
folder, a GGUF file, or a llama2.c .bin file. For weights the model file is
found by what they say they are.

With --prompt or --tokens the model continues the text: the continuation goes
to standard output as it comes. The default is greedy (temperature 0), so that
runs can be repeated; --temperature makes it draw by --seed.

Without a prompt, and for a single block, it is a measured run: prefill and
decode on random input, with warm-up and repeats, and the result is checked in
the same run. A model file without --weights gets synthetic weights.

With --prompts, or --choices above one, many answers are computed at once. They go to
standard output in the order of the prompts, and with --json as they come, an object a line.

What was measured is printed on standard error, with STATUS=OK or what failed
at the end. docs/json.md lists the keys that --json writes.`,
		Example: `  greta run models/llama2_block.yaml
  greta run tinyllama.gguf --prompt "Once upon a time" --gen 64
  greta run FOLDER --tokens 1,15,7 --gen 0 --logits out.npy --kv f32
  greta run FOLDER --prompts prompts.txt --parallel 16 --json answers.jsonl`,
		Args: exactly(1, "one model"),
		RunE: func(c *cobra.Command, args []string) error {
			changed := c.Flags().Changed
			f.hasPrompt, f.hasTokens = changed("prompt"), changed("tokens")
			f.hasGen, f.hasPrefill = changed("gen"), changed("prefill")
			if err := usage(f.check()); err != nil {
				return err
			}
			if f.many() {
				return a.runMany(c.Context(), f, args[0])
			}
			return a.run(c.Context(), f, args[0])
		},
	}
	s := c.Flags()
	s.SortFlags = false
	f.modelFlags.register(s)
	f.registerInvariant(s)
	s.BoolVar(&f.noCapture, "no-capture", false, "launch kernels one by one instead of replaying a captured step")
	s.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer: tokenizer.json, tokenizer.model, tokenizer.bin, a GGUF or a "+
		"folder (default: what lies with the weights)")
	s.StringVarP(&f.prompt, "prompt", "p", "", "text to continue; - reads standard input, without the newline at its end")
	s.StringVar(&f.prompts, "prompts", "",
		"file of prompts, answered at once: a text a line, or JSON lines with prompt, n, max_tokens, seed; "+
			"- is standard input")
	s.IntVar(&f.choices, "choices", 1, "answers to each prompt")
	s.IntVar(&f.bestOf, "best-of", 0, "compute so many answers to each prompt and give those --choices whose tokens "+
		"are the "+
		"most likely on average; needs --temperature")
	s.IntVar(&f.parallel, "parallel", 8, "with --prompts or --choices: sequences that run at once")
	s.StringVar(&f.kvMemory, "kv-memory", "",
		"with those: memory for all caches, such as 2GB (default: what they need, at most what is left on a device with "+
			"memory of its own, half of that of the host's)")
	s.IntVar(&f.kvTokens, "kv-tokens", 0, "with those: positions that all caches hold together, instead")
	s.StringVar(&f.tokens, "tokens", "", "token ids to continue, 1,2,3, as they are: nothing is put before them")
	s.IntVarP(&f.gen, "gen", "n", defaultGen, "most tokens to generate (measured run: 32; with --logits or --nll: 0)")
	s.BoolVar(&f.special, "special", false,
		"read control tokens such as <|im_start|> in the prompt as tokens, not as text")
	s.Float64Var(&f.sampling.Temperature, "temperature", 0, "0 takes the most likely token, more draws")
	s.IntVar(&f.sampling.TopK, "top-k", 0, "draw from the k most likely tokens; 0: from all")
	s.Float64Var(&f.sampling.TypicalP, "typical-p", 1,
		"draw from the fewest tokens, those of the most expected surprise first, whose probabilities "+
			"reach p; 0 or 1: from all")
	s.Float64Var(&f.sampling.TopP, "top-p", 1, "draw from the fewest tokens whose probabilities reach p; 0 or 1: from all")
	s.Float64Var(&f.sampling.MinP, "min-p", 0, "draw from tokens with at least this share of the best one's probability")
	s.Float64Var(&f.sampling.RepeatPenalty, "repeat-penalty", 1,
		"divide the logits of recent tokens by this; 0 or 1: do not")
	s.Float64Var(&f.sampling.FrequencyPenalty, "frequency-penalty", 0,
		"take this from a recent token's logit as often as the token came")
	s.Float64Var(&f.sampling.PresencePenalty, "presence-penalty", 0, "take this from a recent token's logit")
	s.IntVar(&f.sampling.RepeatLast, "repeat-last", 64, "how many tokens are recent, for the three penalties; 0: 64")
	s.StringSliceVar(&f.bias, "logit-bias", nil,
		"add to tokens' logits, as ID=VALUE, commas between them; -inf: never choose the token")
	s.IntVar(&f.logprobs, "logprobs", 0, "write each token's log-probability, and those of so many of the best, to --json")
	s.Uint64Var(&f.sampling.Seed, "seed", 0, "seed of the draws")
	f.stepFlags.register(s)
	s.BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on behind an end token")
	s.StringArrayVar(&f.stops, "stop", nil, "end where this text appears (may be repeated)")
	s.IntVar(&f.prefill, "prefill", 0, "tokens of prefill in a measured run, 0 for none (default 128)")
	s.IntVar(&f.repeat, "repeat", 0, "repeats of a measured run (default: up to 5 in about 10 s)")
	s.StringVar(&f.json, "json", "", "write the report to this file; - is standard output, which then holds nothing else")
	s.StringVar(&f.logits, "logits", "", "write the logits of every prompt position to this .npy file, float32 "+
		"[positions, vocabulary]")
	s.BoolVar(&f.nll, "nll", false, "report the prompt's mean negative log-likelihood a token")
	s.BoolVar(&f.profile, "profile", false, "print where the time of a step goes: time, bytes, flops and share of the "+
		"roof per kernel and per block")
	s.BoolVar(&f.noLimits, "no-limits", false, "measured run: do not measure a read loop and the arithmetic's peak "+
		"beside it (a quarter of a second)")
	s.BoolVar(&f.strict, "strict", false, "measured run: fail where other programs, a quota or a binding to some "+
		"processors disturb it")
	s.BoolVar(&f.compare, "check", false, "compare the text's logits and tokens with the reference in float64 (a "+
		"measured run always does)")
	s.StringVar(&f.trace, "trace", "", "write a Chrome trace of a step of prefill and one of decode")
	s.BoolVarP(&f.verbose, "verbose", "v", false, "say what is done")
	return c
}

// check refuses flags that make no sense together.
func (f *runFlags) check() error {
	switch {
	case f.hasPrompt && f.hasTokens:
		return fmt.Errorf("--prompt and --tokens exclude each other")
	case f.gen < 0:
		return fmt.Errorf("--gen %d: it must be 0 or more", f.gen)
	case f.gen > math.MaxInt32:
		return fmt.Errorf("--gen %d: it must be below 2^31", f.gen)
	case f.prefill > math.MaxInt32:
		return fmt.Errorf("--prefill %d: it must be below 2^31", f.prefill)
	case f.logprobs < 0:
		return fmt.Errorf("--logprobs %d: it must be 0 or more", f.logprobs)
	case f.prefill < 0:
		return fmt.Errorf("--prefill %d: it must be 0 or more", f.prefill)
	case f.repeat < 0:
		return fmt.Errorf("--repeat %d: it must be positive", f.repeat)
	case f.noCapture && (f.profile || f.trace != ""):
		return fmt.Errorf("--profile and --trace time a captured step: leave --no-capture out")
	}
	for _, s := range f.stops {
		if s == "" {
			return fmt.Errorf("--stop is empty")
		}
	}
	if f.many() {
		if err := f.checkMany(); err != nil {
			return err
		}
	} else if f.measured() {
		if !f.hasGen {
			f.gen = defaultDecode
		}
		if !f.hasPrefill {
			f.prefill = defaultPrefill
		}
	} else if !f.hasGen && (f.logits != "" || f.nll) {
		f.gen = 0
	}
	var err error
	if f.sampling.LogitBias, err = parseBias(f.bias); err != nil {
		return err
	}
	return f.sampling.Validate()
}

// parseBias reads ID=VALUE.
func parseBias(texts []string) (map[int32]float32, error) {
	var bias map[int32]float32
	for _, text := range texts {
		id, value, ok := strings.Cut(text, "=")
		t, err := strconv.ParseInt(id, 10, 32)
		v, err2 := strconv.ParseFloat(value, 32)
		if !ok || err != nil || err2 != nil {
			return nil, fmt.Errorf("--logit-bias %q: it must be a token id, =, and a number, as in 17=-2.5", text)
		}
		if bias == nil {
			bias = map[int32]float32{}
		}
		bias[int32(t)] = float32(v)
	}
	return bias, nil
}

// measured says whether the run has no prompt.
func (f *runFlags) measured() bool { return !f.hasPrompt && !f.hasTokens && f.prompts == "" }

// run opens everything and runs under supervision: however it ends, what is
// known is reported.
func (a *app) run(ctx context.Context, f *runFlags, arg string) error {
	files, err := openOutputs(f, arg)
	if err != nil {
		return usage(err)
	}
	r := newRunner(a, f, files)
	return r.supervise(ctx, func(ctx context.Context) error { return r.all(ctx, arg) })
}

// all is the whole run.
func (r *runner) all(ctx context.Context, arg string) (err error) {
	r.flags.text = r.flags.hasPrompt
	b, err := r.flags.open(ctx, r.app.err, arg)
	if err != nil {
		return err
	}
	defer func() {
		if e := b.close(); err == nil {
			err = e
		}
	}()
	r.bundle = b
	r.describe()
	if err := r.prepare(); err != nil {
		return err
	}
	b.times.mark("prompt")
	e, err := r.load(ctx)
	if err != nil {
		return err
	}
	r.engine = e
	defer func() {
		if e := r.engine.Close(); err == nil {
			err = e
		}
	}()
	r.describeLoaded()
	r.noteUnread()
	if err := r.checkRange(); err != nil {
		return err
	}
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	r.session = s
	defer func() {
		if r.session == nil {
			return
		}
		if e := r.session.Close(); err == nil {
			err = e
		}
	}()
	if err := r.sayMore(); err != nil {
		return err
	}
	// Steps of prefill choose their kernels when they come, so that only now all are chosen.
	if r.flags.measured() {
		err = r.measure(ctx)
	} else {
		if err = r.continueText(ctx); err == nil && r.report.Status == report.OK {
			err = r.checkOrSay(ctx)
		}
	}
	r.noteVariants()
	if err == nil {
		err = usage(b.variants.Check())
	}
	return err
}

// prepare finds the prompt's tokens and the context that the run needs.
func (r *runner) prepare() error {
	f, b := r.flags, r.bundle
	if f.measured() {
		// One more position, so that a profile can decode behind the last token.
		b.fitContext(f.prefill + f.gen + 1)
		if need := f.prefill + f.gen; need > b.opt.Context {
			return usagef("--prefill %d and --gen %d do not fit --context %d", f.prefill, f.gen, b.opt.Context)
		}
		return nil
	}
	if b.file.IsBlock() {
		return usagef("%s is a block: it takes activations, not --prompt or --tokens", b.file.Path())
	}
	if err := f.refuseSeed(b); err != nil {
		return err
	}
	var err error
	if b.tokenizer, err = b.text(); err != nil {
		return usage(err)
	}
	if f.hasTokens {
		r.prompt, err = parseTokens("--tokens", f.tokens)
	} else {
		r.prompt, err = r.encodePrompt()
	}
	if err != nil {
		return usage(err)
	}
	r.update(func() { r.report.PromptTokens = r.prompt })
	if b.tokenizer == nil && len(f.stops) > 0 {
		return usagef("--stop %q needs a tokenizer, and none lies with %s: name one by --tokenizer", f.stops[0],
			r.report.Source)
	}
	if t := b.trained(); t > 0 && len(r.prompt) > t && b.opt.Context == 0 {
		return usagef("the prompt's %d tokens are more than the %d that the model was trained for; --context %d computes "+
			"them all the same",
			len(r.prompt), t, len(r.prompt)+f.gen)
	}
	need := len(r.prompt) + f.gen
	if t := b.trained(); t > 0 && !f.hasGen {
		need = min(need, max(t, len(r.prompt)+1)) // nobody asked for more than the model was trained for
	}
	b.fitContext(need)
	if t := b.trained(); t > 0 && b.opt.Context > t {
		fmt.Fprintf(r.app.err, "greta: a context of %d is more than the %d that the model was trained for\n", b.opt.Context,
			t)
	}
	if len(r.prompt) > b.opt.Context {
		return usagef("the prompt's %d tokens do not fit --context %d", len(r.prompt), b.opt.Context)
	}
	return nil
}

// encodePrompt turns the prompt into tokens, with a begin token where the
// model was trained with one.
func (r *runner) encodePrompt() ([]int32, error) {
	t := r.bundle.tokenizer
	if t == nil {
		return nil, fmt.Errorf("no tokenizer lies with %s: name one by --tokenizer, or give --tokens", r.report.Source)
	}
	text, err := r.app.readPrompt(r.flags.prompt)
	if err != nil {
		return nil, err
	}
	ids, err := t.Encode(text, tokenizer.Options{AddBOS: t.AddBOS(), ParseSpecial: r.flags.special})
	if err == nil && t.AddBOS() && len(ids) > 1 && ids[1] == t.BOS() {
		fmt.Fprintf(r.app.err,
			"greta: the begin token %s stands twice before the text: the model's tokenizer puts it there, "+
				"leave it out of the prompt\n", t.Token(t.BOS()))
	}
	if err == nil && len(ids) == 0 {
		err = fmt.Errorf("the prompt has no tokens, and the model no begin token")
	}
	return ids, err
}

// parseTokens reads ids divided by commas or spaces, which what gave.
func parseTokens(what, text string) ([]int32, error) {
	var ids []int32
	for part := range strings.SplitSeq(text, ",") {
		fields := strings.Fields(part)
		if len(fields) == 0 && strings.TrimSpace(text) != "" {
			return nil, fmt.Errorf("%s: an id is missing beside a comma in %q", what, text)
		}
		for _, f := range fields {
			n, err := strconv.ParseInt(f, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is no token id", what, f)
			}
			ids = append(ids, int32(n))
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s is empty", what)
	}
	return ids, nil
}

// checkRange refuses tokens that the model does not have.
func (r *runner) checkRange() error {
	v := r.engine.Vocabulary()
	for i, t := range r.prompt {
		if t < 0 || int(t) >= v {
			return usagef("token %d of the prompt is %d, the model's vocabulary has %d", i, t, v)
		}
	}
	for t := range r.flags.sampling.LogitBias {
		if int(t) >= v {
			return usagef("--logit-bias: token %d, the model's vocabulary has %d", t, v)
		}
	}
	return nil
}

// outputs are the files that a run writes; nil where not asked for.
type outputs struct {
	json          io.Writer
	logits, trace *os.File
}

// reportFile gets its name when it is closed.
type reportFile struct{ *atomicfile.File }

func (f *reportFile) Close() error { return f.Commit() }

// modelFiles are the names of what is read from a folder of weights.
var modelFiles = []string{
	"*.safetensors", "*.safetensors.index.json", "*config.json", "tokenizer*", "vocab.json", "merges.txt", "*.model",
	"*.gguf", "*.bin", "*.jinja", "special_tokens_map.json", "added_tokens.json",
}

// filesOf gives what is read of a path: itself, or of a folder its files with such names.
func filesOf(at string) []string {
	st, err := os.Stat(at)
	if err != nil || !st.IsDir() {
		return []string{at}
	}
	entries, _ := os.ReadDir(at)
	var all []string
	for _, e := range entries {
		if slices.ContainsFunc(modelFiles, func(pattern string) bool { ok, _ := path.Match(pattern, e.Name()); return ok }) {
			all = append(all, filepath.Join(at, e.Name()))
		}
	}
	return all
}

// openOutputs creates the files before any work is done. None may be a file that the run reads, of which
// arg names the model, or that another flag names.
func openOutputs(f *runFlags, arg string) (*outputs, error) {
	o := &outputs{}
	var err error
	type taken struct {
		st   os.FileInfo
		what string
	}
	var files []taken // that must not be overwritten
	take := func(what, path string) {
		if st, e := os.Stat(path); e == nil && st.Mode().IsRegular() {
			files = append(files, taken{st, what})
		}
	}
	for _, in := range []struct{ what, path string }{
		{"the model", arg}, {"--model", f.model}, {"--weights", f.weights}, {"--tokenizer", f.tokenizer},
		{"--tuned", f.tuned},
	} {
		for _, path := range filesOf(in.path) {
			take(in.what, path)
		}
	}
	named := map[string]string{} // what each of our files is for, by its path
	create := func(flag, path string) *os.File {
		if path == "" || err != nil {
			return nil
		}
		if path == "-" { // only --json writes there
			err = fmt.Errorf("%s -: a file is expected (./- for one of this name)", flag)
			return nil
		}
		if st, e := os.Stat(path); e == nil {
			for _, have := range files {
				if os.SameFile(st, have.st) {
					err = fmt.Errorf("%s: %s is the file of %s too, which would be lost; name another file", flag, path, have.what)
					return nil
				}
			}
		}
		st, e := os.Stat(path)
		if at, abs := filepath.Abs(path); abs == nil && (e != nil || st.Mode().IsRegular()) {
			if other, ok := named[at]; ok {
				err = fmt.Errorf("%s: %s is the file of %s too, which would be lost; name another file", flag, path, other)
				return nil
			}
			named[at] = flag
		}
		if flag == "--json" { // what is there stays until the report is whole
			file, e := atomicfile.Create(path, 0o644)
			if e != nil {
				err = fmt.Errorf("%s: %w", flag, e)
				return nil
			}
			o.json = &reportFile{file}
			return nil
		}
		plain, e := plainfile.Create(path)
		take(flag, path)
		if e != nil {
			err = fmt.Errorf("%s: %w", flag, e)
		}
		return plain
	}
	if f.json != "-" {
		create("--json", f.json)
	}
	o.logits, o.trace = create("--logits", f.logits), create("--trace", f.trace)
	return o, err
}
