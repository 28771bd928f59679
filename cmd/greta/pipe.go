package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/greta-project/greta/bench/model"
	"github.com/greta-project/greta/bridge"
	"github.com/greta-project/greta/embedding"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/serve"
	"github.com/greta-project/greta/tokenizer"
)

func (a *app) pipeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "pipe",
		Short: "Serve another program over standard input and output, as the Python package asks it to",
		Long: `pipe reads requests from standard input and answers on standard output, until
standard input ends: it loads models, continues texts, computes logits, checks and
measures, for many callers at once. Messages are frames of JSON and tensors of a
protocol with a version (docs/pipe.md); the Python package greta speaks it.`,
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			if f, ok := a.in.(*os.File); ok {
				if isTerminal(f) {
					return usagef("greta pipe is for programs: standard input is a terminal (docs/pipe.md has the protocol)")
				}
				// An interrupt is the caller's business: it cancels what it wants to.
				signal.Ignore(os.Interrupt)
			}
			parent := os.Getppid()
			aside := &app{in: strings.NewReader(""), out: io.Discard, err: a.err}
			err := bridge.Serve(c.Context(), a.in, a.out, bridge.Options{
				Version: version(), Load: aside.loadPiped, Command: aside.pipedCommand, Code: errorCode,
				Log:      log.New(a.err, "greta: ", 0),
				Orphaned: func() bool { return os.Getppid() != parent },
			})
			var e *bridge.Error
			if errors.As(err, &e) {
				return usage(err)
			}
			return err
		},
	}
}

// errorCode is the class of an error for the other side of a pipe.
func errorCode(err error) string {
	return map[int]string{exitUsage: "usage", exitNoDevice: "device", exitMismatch: "mismatch", 5: "gate",
		exitMemory: "memory", 7: "noisy", exitInterrupted: "canceled"}[exitCode(err)]
}

// pipedCommand runs a verb in this process.
func (a *app) pipedCommand(ctx context.Context, args []string) ([]byte, error) {
	var out bytes.Buffer
	err := command(ctx, args, strings.NewReader(""), &out, a.err)
	return out.Bytes(), err
}

// pipeFlags are the options of a model that is loaded for another program: those of run that are not of one text.
type pipeFlags struct {
	modelFlags
	steps    stepFlags
	parallel int
	kvMemory string
	kvTokens int
	template string
	pooling  string
}

func (f *pipeFlags) command() *cobra.Command {
	c := &cobra.Command{Use: "load-piped", Hidden: true, RunE: func(*cobra.Command, []string) error { return nil }}
	s := c.Flags()
	f.register(s)
	f.steps.register(s)
	s.BoolVar(&f.noCapture, "no-capture", false, "")
	s.StringVar(&f.tokenizer, "tokenizer", "", "")
	s.IntVar(&f.parallel, "parallel", 8, "")
	s.StringVar(&f.kvMemory, "kv-memory", "", "")
	s.IntVar(&f.kvTokens, "kv-tokens", 0, "")
	s.StringVar(&f.template, "chat-template", "", "")
	s.StringVar(&f.task, "task", "", "")
	s.StringVar(&f.pooling, "pooling", "", "")
	return c
}

// set gives options to the flags of their names. What is not given is what variables and the configuration file say.
func (f *pipeFlags) set(c *cobra.Command, options map[string]json.RawMessage) error {
	var known []string
	for _, name := range slices.Sorted(maps.Keys(options)) {
		flag := c.Flags().Lookup(strings.ReplaceAll(name, "_", "-"))
		if flag == nil {
			if known == nil {
				known = flagNames(c)
			}
			hint := "; there are " + strings.Join(known, ", ")
			if near := lang.Nearest(strings.ReplaceAll(name, "_", "-"), known); near != "" {
				hint = "; did you mean " + strings.ReplaceAll(near, "-", "_") + "?"
			}
			return fmt.Errorf("there is no option %s%s", name, hint)
		}
		values, err := optionValues(options[name])
		if err != nil {
			return fmt.Errorf("option %s: %w", name, err)
		}
		for _, v := range values {
			if err := c.Flags().Set(flag.Name, v); err != nil {
				return fmt.Errorf("option %s: %w", name, flagError(err))
			}
		}
	}
	return applySettings(c)
}

func flagNames(c *cobra.Command) (names []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// optionValues writes a JSON value as a flag's: an object as NAME=VALUE, a list as one value after the other.
func optionValues(raw json.RawMessage) ([]string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	one := func(v any) (string, error) {
		switch v := v.(type) {
		case string:
			return v, nil
		case bool, json.Number:
			return fmt.Sprint(v), nil
		}
		return "", fmt.Errorf("%s: a text, a number, true or false is expected, or a list of texts", raw)
	}
	var values []string
	switch v := v.(type) {
	case nil:
	case []any:
		for _, x := range v {
			text, err := one(x)
			if err != nil {
				return nil, err
			}
			values = append(values, text)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			text, err := one(v[name])
			if err != nil {
				return nil, err
			}
			values = append(values, name+"="+text)
		}
	default:
		text, err := one(v)
		if err != nil {
			return nil, err
		}
		values = []string{text}
	}
	return values, nil
}

// pipedModel is a model that another program uses.
type pipedModel struct {
	app   *app
	flags *pipeFlags
	path  string
	b     *bundle
	e     *engine.Engine
	text  *tokenizer.Tokenizer // nil: none
	chat  serve.Chat           // nil: none

	vectors      *embedding.Model // nil: it gives next tokens
	closeVectors func() error
}

// loadPiped loads a model for another program.
func (a *app) loadPiped(ctx context.Context, path string, options map[string]json.RawMessage) (_ bridge.Model,
	err error) {
	f := &pipeFlags{}
	c := f.command()
	a.root().AddCommand(c)
	if err := f.set(c, options); err != nil {
		return nil, usage(err)
	}
	switch {
	case f.parallel < 1 || f.kvTokens < 0:
		return nil, usagef("option parallel is %d, kv_tokens %d: the first must be positive, the second 0 or more",
			f.parallel, f.kvTokens)
	case f.task != "" && f.task != models.Embed:
		return nil, usagef("option task is %s: embed is expected, or none for next tokens", f.task)
	case f.kvMemory != "":
		if _, err := packcache.ParseBytes(f.kvMemory); err != nil { // it is needed with the first text
			return nil, usagef("option kv_memory: %v", err)
		}
	}
	switch {
	case f.pooling != "" && !slices.Contains(models.Poolings, f.pooling):
		return nil, usagef("option pooling is %s: there are %s", f.pooling, strings.Join(models.Poolings, ", "))
	case f.steps.draft != "" && f.steps.draft != "ngram":
		return nil, usagef("option draft is %s: for many sequences at once there is ngram", f.steps.draft)
	}
	m := &pipedModel{app: a, flags: f, path: path}
	if m.b, err = f.open(ctx, a.err, path); err != nil {
		if f.task != "" {
			return nil, err
		}
		f.task = models.Embed // encoders give nothing else
		var second error
		if m.b, second = f.open(ctx, a.err, path); second != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errlist.Join(err, m.b.close())
		}
	}()
	if err := f.refuseSeed(m.b); err != nil {
		return nil, err
	}
	if m.b.file.Task() != "" {
		m.vectors, m.closeVectors, err = a.loadEmbedding(ctx, m.b, f.tokenizer, f.pooling)
		if err == nil {
			m.text, err = servedTokenizer(m.b, f.tokenizer)
		}
		return m, err
	}
	if f.pooling != "" {
		return nil, usagef("option pooling is of models of vectors: give task=embed too")
	}
	if err := m.openText(); err != nil {
		return nil, usage(err)
	}
	if m.b.opt.Adapters, err = f.steps.namedAdapters(m.b.source); err != nil {
		return nil, usage(err)
	}
	m.b.fitContext(1)
	m.e, err = a.load(ctx, m.b)
	return m, err
}

// openText finds the tokenizer and the chat template.
func (m *pipedModel) openText() (err error) {
	if m.text, err = m.b.text(); err != nil || m.text == nil {
		return err
	}
	m.chat, err = servedChat(m.b, m.flags.template, m.text)
	return err
}

// Info says what the model is.
func (m *pipedModel) Info() bridge.Info {
	path, format := m.b.sourceName()
	d := m.b.device.Info()
	i := bridge.Info{Name: m.b.file.Name(), Kind: "model", Source: path, Format: format, Backend: d.Backend,
		Device: d.Name, KV: m.b.opt.KV.String(), Context: m.b.opt.Context, BOS: -1, Ends: []int{}}
	if m.vectors != nil {
		i.Kind, i.Width, i.Context, i.Vocabulary = "embed", m.vectors.Width(), m.vectors.Longest(), m.text.VocabSize()
		i.Tokenizer = true
		return i
	}
	i.DType, i.Vocabulary, i.WeightBytes = model.TypeName(m.e), m.e.Vocabulary(), m.e.WeightBytes()
	if m.e.IsBlock() {
		i.Kind, i.Output = "block", m.e.Decode().Outputs[0].Shape.Last()
		if x := m.e.Decode().Input("x"); x != nil && len(x.Shape) == 2 {
			i.Width = x.Shape[1]
		}
	}
	if m.text != nil {
		i.Tokenizer, i.Chat = true, m.chat != nil
		if m.text.AddBOS() {
			i.BOS = int(m.text.BOS())
		}
		for _, id := range m.text.Ends() {
			i.Ends = append(i.Ends, int(id))
		}
	}
	return i
}

// Engine is the model's.
func (m *pipedModel) Engine() *engine.Engine { return m.e }

// Text is the tokenizer.
func (m *pipedModel) Text() serve.Tokens {
	if m.text == nil {
		return nil
	}
	return serve.NewVocabulary(m.text)
}

// Embed turns texts into vectors.
func (m *pipedModel) Embed(ctx context.Context, texts []string, o bridge.EmbedOptions) ([]bridge.Vector, error) {
	inputs := make([]embedding.Input, len(texts))
	for i, text := range texts {
		inputs[i].Text = text
	}
	eo := embedding.Options{Normalize: o.Normalize || m.vectors.Normalizes(), Dimensions: o.Dimensions, Prompt: o.Prompt,
		Truncate: -1}
	if o.NoTruncate {
		eo.Truncate = 0
	}
	found, err := m.vectors.Embed(ctx, inputs, eo)
	if err != nil {
		return nil, textError(err)
	}
	out := make([]bridge.Vector, len(found))
	for i, v := range found {
		out[i] = bridge.Vector{Values: v.Values, Tokens: v.Tokens, Cut: v.Cut}
	}
	return out, nil
}

// Many makes the scheduler.
func (m *pipedModel) Many() (serve.Model, error) {
	f := m.flags
	path, _ := m.b.sourceName()
	so := serve.SessionOptions{Parallel: f.parallel, Text: bridge.Bare(m.e.Vocabulary()), Chat: m.chat,
		Info: serve.Info{Name: m.b.file.Name(), Root: path, Device: m.b.device.Info().Name, Context: m.b.opt.Context,
			Rows: f.parallel, Created: time.Now(), Cache: m.b.opt.KV.String()}}
	if m.text != nil {
		so.Text, so.Grammar = serve.NewVocabulary(m.text), serve.NewGrammarMasks(m.text)
	}
	eo := engine.SchedulerOptions{Sequences: f.parallel, Tokens: f.kvTokens, Queue: 1 << 16, Rows: max(256, f.parallel)}
	var err error
	if f.kvMemory != "" {
		if eo.Memory, err = packcache.ParseBytes(f.kvMemory); err != nil {
			return nil, usagef("option kv_memory: %v", err)
		}
	}
	if err := f.steps.prefixes(&eo); err != nil {
		return nil, err
	}
	if f.steps.draft != "" {
		eo.Draft = engine.NGrams
	}
	return m.app.sequences(m.e, m.b.file.Name(), eo, so)
}

// Check compares the model with the reference. Nothing else may use a device that is checked, so that the model is
// opened again.
func (m *pipedModel) Check(ctx context.Context, tokens []int32, tolerance float64) (_ any, err error) {
	if m.vectors != nil {
		return nil, usagef("%s gives vectors of texts: greta check is of next tokens", m.b.file.Name())
	}
	flags := m.flags.modelFlags
	b, err := flags.open(ctx, m.app.err, m.path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errlist.Join(err, b.close()) }()
	return referenceReport(ctx, b, tokens, tolerance)
}

// Plan prints a stage.
func (m *pipedModel) Plan(stage, format string, tokens int) (string, error) {
	mu := m.b.device.Mutex() // kernels are chosen, which may compile them
	mu.Lock()
	defer mu.Unlock()
	return dumpText(m.b, stage, format, tokens)
}

// Close frees the model.
func (m *pipedModel) Close() error {
	if m.vectors != nil {
		return errlist.Join(m.closeVectors(), m.b.close())
	}
	return errlist.Join(m.e.Close(), m.b.close())
}
