package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/mapped"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/tokenizer"
)

// run with --prompts or --choices: many answers at once, by engine.Scheduler.

// manyFlags are those of run for many answers.
type manyFlags struct {
	prompts           string
	choices, parallel int
	bestOf            int // answers of which the choices are the best; 0: as many as choices
	kvMemory          string
	kvTokens          int
}

// many says whether a run is one of many answers.
func (f *runFlags) many() bool { return f.prompts != "" || f.choices > 1 || f.bestOf > 0 }

// checkMany refuses flags that make no sense for many answers.
func (f *runFlags) checkMany() error {
	switch {
	case f.prompts != "" && (f.hasPrompt || f.hasTokens):
		return fmt.Errorf("--prompts and --prompt or --tokens exclude each other")
	case f.measured():
		return fmt.Errorf("--choices %d needs a prompt: give --prompt, --tokens or --prompts", f.choices)
	case f.logits != "" || f.nll || f.profile || f.trace != "" || f.hasPrefill || f.repeat != 0:
		return fmt.Errorf("--logits, --nll, --profile, --trace, --prefill and --repeat are for one sequence: " +
			"leave them or --prompts and --choices out")
	case f.choices < 1 || f.parallel < 1 || f.kvTokens < 0:
		return fmt.Errorf("--choices %d, --parallel %d, --kv-tokens %d: the first two must be positive, the last 0 or more",
			f.choices, f.parallel, f.kvTokens)
	case f.bestOf < 0 || f.bestOf > 0 && f.bestOf < f.choices:
		return fmt.Errorf("--best-of %d: it must be at least --choices %d", f.bestOf, f.choices)
	case f.bestOf > 1 && f.sampling.Temperature == 0:
		return fmt.Errorf("--best-of %d: without --temperature all answers are the same", f.bestOf)
	case f.hasGen && f.gen == 0:
		return fmt.Errorf("--gen 0 leaves nothing to answer")
	}
	return nil
}

// promptLine is a line of a file of prompts.
type promptLine struct {
	Prompt  string  `json:"prompt"`
	Tokens  []int32 `json:"tokens"`
	Choices int     `json:"n"`
	Max     int     `json:"max_tokens"`
	Seed    *uint64 `json:"seed"`
	Adapter string  `json:"adapter"` // the name of one of --adapter
	ids     []int32
}

// promptAnswer is an answer as --json writes it.
type promptAnswer struct {
	Index        int             `json:"index"`  // of the prompt, from 0
	Choice       int             `json:"choice"` // of the prompt's answers, from 0
	Text         string          `json:"text"`
	Tokens       []int32         `json:"tokens"`
	Logprobs     []engine.Chosen `json:"logprobs,omitempty"`
	Mean         *float64        `json:"mean_logprob,omitempty"` // of its tokens, with --best-of
	Stop         string          `json:"stop_reason"`
	PromptTokens int             `json:"prompt_tokens"`
	Cached       int             `json:"cached_tokens"`
	QueueMS      float64         `json:"queue_ms"`
	PrefillMS    float64         `json:"prefill_ms"`
	DecodeMS     float64         `json:"decode_ms"`
	Error        string          `json:"error,omitempty"`
	err          error
	sum          float64 // of the log-probabilities
}

// readPrompts reads a file of prompts: a text a line, or with .jsonl, or where the first line begins with {, an
// object a line.
func (a *app) readPrompts(path string) ([]promptLine, error) {
	in := a.in
	if path != "-" {
		file, err := plainfile.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--prompts: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := readText(in, mostText)
	if err != nil {
		return nil, fmt.Errorf("--prompts %s: %w", path, err)
	}
	var all []promptLine
	objects := strings.HasSuffix(path, ".jsonl") || strings.HasPrefix(strings.TrimSpace(text), "{")
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" {
			continue
		}
		p := promptLine{Prompt: line}
		if objects {
			p = promptLine{}
			d := json.NewDecoder(strings.NewReader(line))
			d.DisallowUnknownFields()
			if err := d.Decode(&p); err != nil {
				return nil, fmt.Errorf(`--prompts %s, line %d: an object is expected, {"prompt": "…"} with n, max_tokens, `+
					`seed, adapter or tokens: %w`, path, i+1, err)
			}
			if (p.Prompt == "") == (len(p.Tokens) == 0) {
				return nil, fmt.Errorf("--prompts %s, line %d: prompt or tokens is expected, one of both", path, i+1)
			}
			if p.Choices < 0 || p.Max < 0 {
				return nil, fmt.Errorf("--prompts %s, line %d: n %d and max_tokens %d must be 0 or more",
					path, i+1, p.Choices, p.Max)
			}
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("--prompts %s: there is no prompt in it", path)
	}
	return all, nil
}

// manyRun is a run of many answers.
type manyRun struct {
	app   *app
	flags *runFlags
	text  *tokenizer.Tokenizer
	json  *bufio.Writer // nil: none
	mu    sync.Mutex    // of json
	sched *engine.Scheduler
}

// runMany answers all prompts.
func (a *app) runMany(ctx context.Context, f *runFlags, arg string) (err error) {
	files, err := openOutputs(f, arg)
	if err != nil {
		return usage(err)
	}
	m := &manyRun{app: a, flags: f}
	switch {
	case f.json == "-":
		m.json = bufio.NewWriter(a.out)
	case files.json != nil:
		m.json = bufio.NewWriter(files.json)
		if c, ok := files.json.(io.Closer); ok {
			defer func() { err = errlist.Join(err, c.Close()) }()
		}
	}
	f.text = true
	b, err := f.open(ctx, a.err, arg)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, b.close()) }()
	if b.opt.Adapters, err = f.namedAdapters(b.source); err != nil {
		return usage(err)
	}
	lines, err := m.tokens(b)
	if err != nil {
		return usage(err)
	}
	need := 0
	for i := range lines {
		need = max(need, len(lines[i].ids)+lines[i].Max)
	}
	b.fitContext(need)
	e, err := a.load(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, e.Close()) }()
	for i := range lines {
		one := &runner{flags: f, engine: e, prompt: lines[i].ids}
		if err := one.checkRange(); err != nil {
			return usagef("prompt %d: %v", i, err)
		}
		known := func(a engine.Adapter) bool { return a.Name == lines[i].Adapter }
		if lines[i].Adapter != "" && !slices.ContainsFunc(b.opt.Adapters, known) {
			return usagef("prompt %d: the adapter %q is not loaded: name it by --adapter %s=PATH", i, lines[i].Adapter,
				lines[i].Adapter)
		}
	}
	opt := engine.SchedulerOptions{Tokens: f.kvTokens, Sequences: f.parallel, Queue: 1 << 20}
	if f.kvMemory != "" {
		if opt.Memory, err = packcache.ParseBytes(f.kvMemory); err != nil {
			return usagef("--kv-memory: %v", err)
		}
	}
	if err := f.prefixes(&opt); err != nil {
		return err
	}
	free, err := f.drafts(ctx, a, f.draft, b, e, f.parallel, &opt)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, free()) }()
	if m.sched, err = engine.NewScheduler(e, opt); err != nil {
		return usage(err)
	}
	defer func() { err = errlist.Join(err, m.sched.Close()) }()
	return m.answer(ctx, lines)
}

// tokens reads the prompts and makes tokens of them.
func (m *manyRun) tokens(b *bundle) (lines []promptLine, err error) {
	f := m.flags
	r := &runner{app: m.app, flags: f, bundle: b}
	r.report.Source, _ = b.sourceName()
	if b.file.IsBlock() {
		return nil, fmt.Errorf("%s is a block: it takes activations, not prompts", b.file.Path())
	}
	if err := f.refuseSeed(b); err != nil {
		return nil, err
	}
	if b.tokenizer, err = b.text(); err != nil {
		return nil, err
	}
	m.text = b.tokenizer
	if f.prompts == "" {
		lines = []promptLine{{}}
		if f.hasTokens {
			lines[0].ids, err = parseTokens("--tokens", f.tokens)
		} else {
			lines[0].ids, err = r.encodePrompt()
		}
	} else {
		lines, err = m.app.readPrompts(f.prompts)
	}
	if err != nil {
		return nil, err
	}
	if m.text == nil && len(f.stops) > 0 {
		return nil, fmt.Errorf("--stop %q needs a tokenizer: name one by --tokenizer", f.stops[0])
	}
	for i := range lines {
		p := &lines[i]
		if p.Max == 0 {
			p.Max = f.gen
		}
		if p.Choices == 0 {
			p.Choices = f.choices
		}
		if p.ids != nil {
			continue
		}
		if p.ids = p.Tokens; p.ids != nil {
			continue
		}
		if m.text == nil {
			return nil, fmt.Errorf("no tokenizer lies with the weights: name one by --tokenizer, or give tokens")
		}
		options := tokenizer.Options{AddBOS: m.text.AddBOS(), ParseSpecial: f.special}
		if p.ids, err = m.text.Encode(p.Prompt, options); err != nil {
			return nil, err
		}
		if len(p.ids) == 0 {
			return nil, fmt.Errorf("prompt %d has no tokens, and the model no begin token", i)
		}
	}
	return lines, nil
}

// answer gives all prompts to the scheduler, and writes what comes.
func (m *manyRun) answer(ctx context.Context, lines []promptLine) error {
	start := time.Now()
	results := make([]chan []promptAnswer, len(lines))
	for i := range results {
		results[i] = make(chan []promptAnswer, 1)
	}
	room := make(chan struct{}, 4*m.flags.parallel+64) // prompts that wait in the scheduler
	go func() {
		for i := range lines {
			room <- struct{}{}
			go func() {
				mapped.Watch()
				defer mapped.Recover()
				results[i] <- m.one(ctx, i, &lines[i])
				<-room
			}()
		}
	}()
	failed, total := error(nil), 0
	for i := range results {
		for _, r := range <-results[i] {
			total += len(r.Tokens)
			if r.err != nil && failed == nil {
				failed = fmt.Errorf("prompt %d: %w", i, r.err)
			}
			if m.flags.json != "-" && (len(lines) > 1 || m.flags.choices > 1) {
				fmt.Fprintf(m.app.out, "==> %d.%d <==\n", r.Index, r.Choice)
			}
			if m.flags.json != "-" {
				if _, err := fmt.Fprintln(m.app.out, r.Text); err != nil {
					return err
				}
			}
		}
	}
	if m.json != nil {
		if err := m.json.Flush(); err != nil {
			return err
		}
	}
	took := time.Since(start).Seconds()
	st := m.sched.Stats()
	if m.flags.draft != "" {
		fmt.Fprintf(m.app.err, "%d of %d guesses were right\n", st.Accepted, st.Drafted)
	}
	fmt.Fprintf(m.app.err, "%d prompts, %d tokens in %.2f s, %.1f tokens/s; %d steps of %.1f rows; "+
		"%d of %d prompt tokens were known; %d preemptions\n", len(lines), total, took, float64(total)/took, st.Steps,
		float64(st.Rows)/float64(max(1, st.Steps)), st.PrefixHits, st.PrefixQueries, st.Preemptions)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return failed
}

// one answers one prompt.
func (m *manyRun) one(ctx context.Context, index int, p *promptLine) []promptAnswer {
	f := m.flags
	req := engine.Request{Adapter: p.Adapter, Prompt: p.ids, Max: p.Max, Choices: p.Choices, Sampling: f.sampling,
		Logprobs: f.logprobs}
	choices := p.Choices
	if f.bestOf > 0 {
		req.Choices, req.Logprobs = max(f.bestOf, choices), max(1, f.logprobs)
		choices = req.Choices
	}
	if p.Seed != nil {
		req.Sampling.Seed = *p.Seed
	}
	if m.text != nil && !f.ignoreEOS {
		req.End = m.text.IsEnd
	}
	answers := make([]promptAnswer, choices)
	texts := make([]*textWriter, choices)
	for i := range answers {
		answers[i] = promptAnswer{Index: index, Choice: i, PromptTokens: len(p.ids), Tokens: []int32{}}
		texts[i] = newTextWriter(io.Discard, m.text, p.ids, f.stops)
	}
	h, err := m.sched.Add(ctx, req)
	if err == nil {
		for t, failed := range h.Tokens() {
			if failed != nil {
				err = failed
				break
			}
			a, w := &answers[t.Choice], texts[t.Choice]
			if w.ended {
				continue
			}
			shown, goOn := w.token(t.ID)
			a.Text += shown
			a.Tokens = append(a.Tokens, t.ID)
			a.sum += float64(t.Logprob)
			if f.logprobs > 0 {
				own := engine.TokenLogprob{ID: t.ID, Logprob: t.Logprob}
				a.Logprobs = append(a.Logprobs, engine.Chosen{TokenLogprob: own, Top: t.Top})
			}
			if !goOn {
				h.Stop(t.Choice)
			}
		}
	}
	for i := range answers {
		a := &answers[i]
		if a.Text += strings.TrimSuffix(texts[i].end(), "\n"); m.text == nil {
			a.Text = strings.Trim(fmt.Sprint(a.Tokens), "[]")
		}
		if err != nil {
			a.Error, a.err = err.Error(), err
		}
		if h != nil {
			r := h.Result()
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
			a.Stop, a.Cached = string(r.Choices[i].Stop), r.Cached
			a.QueueMS, a.PrefillMS, a.DecodeMS = ms(r.Queue), ms(r.Prefill), ms(r.Decode)
		}
	}
	if f.bestOf > 0 {
		answers = best(answers, p.Choices)
	}
	for i := range answers {
		m.write(&answers[i])
	}
	return answers
}

// best gives the n answers whose tokens are the most likely on average, the best first, and numbers them anew.
func best(answers []promptAnswer, n int) []promptAnswer {
	for i := range answers {
		mean := answers[i].sum / float64(max(1, len(answers[i].Tokens)))
		answers[i].Mean = &mean
	}
	sorting.Sort(answers, func(a, b promptAnswer) int { return cmp.Compare(*b.Mean, *a.Mean) })
	answers = answers[:n]
	for i := range answers {
		answers[i].Choice = i
	}
	return answers
}

// write writes an answer as a line of JSON.
func (m *manyRun) write(a *promptAnswer) {
	if m.json == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if data, err := json.Marshal(a); err == nil {
		m.json.Write(append(data, '\n')) // the error stays, and Flush gives it
	}
	m.json.Flush()
}
