package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/greta-project/greta/bench/profile"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/weights"
)

// run with --draft or --prefix-cache: one sequence by a scheduler, which can speculate and knows prefixes.

// stepFlags are those of run that need a scheduler.
type stepFlags struct {
	draft       string
	prefixCache string
	prefixLimit string
	adapters    []string
	capture     string
}

func (f *stepFlags) register(s *pflag.FlagSet) {
	s.StringVar(&f.draft, "draft", "",
		"guess tokens and verify several in one step, which changes the speed and not the text: ngram guesses from what "+
			"repeats in prompt and text, the name of a smaller model of the same vocabulary by it")
	s.StringVar(&f.prefixCache, "prefix-cache", "",
		"folder where keys and values of prompts are kept, so that the next run that begins alike need not compute them")
	s.StringArrayVar(&f.adapters, "adapter", nil,
		"with --prompts: an adapter (LoRA) as NAME=PATH, which lines of JSON may name (may be repeated)")
	s.StringVar(&f.capture, "capture", "",
		"numbers of rows, 1,4,8 or 1..64*2, whose steps are captured before the first request, so that none waits for it")
	s.StringVar(&f.prefixLimit, "prefix-cache-limit", "", "most that the folder may hold (default: 16GB)")
}

// scheduled says whether a run's text is computed by a scheduler.
func (f *stepFlags) scheduled() bool { return f.draft != "" || f.prefixCache != "" }

// prefixes says where prefixes are kept, and what is captured ahead.
func (f *stepFlags) prefixes(opt *engine.SchedulerOptions) (err error) {
	if f.capture != "" {
		if opt.Capture, err = profile.Sizes(f.capture); err != nil {
			return usagef("--capture: %v", err)
		}
	}
	opt.PrefixDir = f.prefixCache
	if f.prefixLimit != "" {
		if opt.PrefixLimit, err = packcache.ParseBytes(f.prefixLimit); err != nil {
			return usagef("--prefix-cache-limit: %v", err)
		}
	}
	return nil
}

// namedAdapters opens those of --adapter.
func (f *stepFlags) namedAdapters(base weights.Source) ([]engine.Adapter, error) {
	var all []engine.Adapter
	for _, text := range f.adapters {
		name, path, ok := strings.Cut(text, "=")
		if !ok || name == "" || path == "" {
			return nil, fmt.Errorf("--adapter %q: NAME=PATH is expected", text)
		}
		a, err := openAdapter(path, base)
		if err != nil {
			return nil, fmt.Errorf("--adapter %s: %w", name, err)
		}
		all = append(all, engine.Adapter{Name: name, Adapter: a})
	}
	return all, nil
}

// drafts opens what guesses for so many sequences at once, beside an engine of the bundle first.
// close frees it and says what was wrong with it; the scheduler is closed before.
func (f *modelFlags) drafts(ctx context.Context, a *app, draft string, first *bundle, large *engine.Engine,
	sequences int, opt *engine.SchedulerOptions) (close func() error, err error) {
	close = func() error { return nil }
	switch draft {
	case "":
		return close, nil
	case "ngram":
		opt.Draft = engine.NGrams
		return close, nil
	}
	draft, err = localModel(ctx, a.err, draft)
	if err != nil {
		return close, err
	}
	b, err := f.beside(first, draft)
	if err != nil {
		return close, usage(fmt.Errorf("--draft: %w", err))
	}
	b.opt.Context = large.Options().Context
	e, err := a.load(ctx, b)
	if err != nil {
		return close, errlist.Join(err, b.source.Close())
	}
	free := func() error { return errlist.Join(e.Close(), b.source.Close()) }
	if v, want := e.Vocabulary(), large.Vocabulary(); v != want {
		return close, errlist.Join(usagef("--draft %s: its vocabulary has %d tokens, the model's %d: it must be the same one",
			draft, v, want), free())
	}
	d := engine.NewModelDrafts(e, sequences)
	opt.Draft, opt.Beside = d.Draft, d.Bytes()
	return func() error { return errlist.Join(d.Err(), d.Close(), free()) }, nil
}

// beside opens another model on the device of a first one, with the flags that are not of its weights.
func (f *modelFlags) beside(first *bundle, arg string) (*bundle, error) {
	g := *f
	g.weights, g.model, g.dtype, g.set, g.from = "", "", "", nil, nil
	b := &bundle{}
	var err error
	if b.opt, err = g.options(); err != nil {
		return nil, err
	}
	if err := g.find(b, arg); err != nil {
		return nil, err
	}
	if b.source == nil {
		return nil, fmt.Errorf("%s has no weights", arg)
	}
	b.opt.Model, b.opt.Source, b.opt.Device = b.file, b.source, first.device
	b.opt.Cache = first.opt.Cache
	return b, nil
}

// scheduledText continues the prompt by a scheduler of one sequence.
func (r *runner) scheduledText(ctx context.Context, g engine.Generation) (_ *engine.Generated, err error) {
	f := r.flags
	opt := engine.SchedulerOptions{Sequences: 1, Tokens: r.engine.Options().Context, Rows: max(r.engine.Options().Chunk,
		16)}
	if err := f.prefixes(&opt); err != nil {
		return &engine.Generated{}, err
	}
	free, err := f.drafts(ctx, r.app, f.draft, r.bundle, r.engine, 1, &opt)
	if err != nil {
		return &engine.Generated{}, err
	}
	defer func() { err = errlist.Join(err, free()) }()
	s, err := engine.NewScheduler(r.engine, opt)
	if err != nil {
		return &engine.Generated{}, usage(err)
	}
	defer func() { err = errlist.Join(err, s.Close()) }()
	out, err := s.Generate(ctx, r.prompt, g)
	if f.prefixCache != "" {
		r.update(func() { r.report.Cached = &out.Cached })
	}
	st := s.Stats()
	if f.draft != "" {
		r.update(func() { r.report.Drafted, r.report.Accepted, r.report.Steps = &st.Drafted, &st.Accepted, &st.Steps })
	}
	return out, err
}
