package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/chat"
	"github.com/greta-project/greta/chat/jinja"
	"github.com/greta-project/greta/chat/parse"
	"github.com/greta-project/greta/chat/template"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tokenizer"
)

// chatFlags are those of greta chat.
type chatFlags struct {
	modelFlags
	template, format string
	system           string
	load             string
	sampling         engine.Sampling
	max              int
	stops            []string
	vars             []string
	reasoning        string
	verbose, json    bool
	history          string
}

// chatCmds are the verbs of conversations.
func (a *app) chatCmds() []*cobra.Command { return []*cobra.Command{a.templateCmd(), a.chatCmd()} }

func (a *app) chatCmd() *cobra.Command {
	var f chatFlags
	c := &cobra.Command{
		Use:   "chat MODEL",
		Short: "Talk with a model",
		Long: `MODEL is what run takes; its chat template comes with it, or --chat-template names one.
In a terminal lines are edited and kept, /help lists what else can be said, and Ctrl-C
stops an answer. From a pipe each line is a message, and the answers alone are printed.
A message of several lines stands between lines of """.`,
		Args: exactly(1, "a model"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return usage(err)
			}
			return a.chat(c.Context(), &f, args[0])
		},
	}
	s := c.Flags()
	f.modelFlags.register(s)
	s.StringVar(&f.tokenizer, "tokenizer", "",
		"tokenizer: tokenizer.json, tokenizer.model, tokenizer.bin, a GGUF or a folder (default: what lies "+
			"with the weights)")
	s.StringVar(&f.template, "chat-template", "", chatTemplateUsage)
	s.StringVar(&f.format, "answer-format", "",
		"how the model writes reasoning, such as think (default: what its template speaks of)")
	s.StringVar(&f.system, "system", "", "text that the conversation begins with, what the model is to be")
	s.StringVar(&f.load, "load", "", "take up the conversation of this file")
	s.IntVarP(&f.max, "gen", "n", 0, "most tokens of an answer; 0: until the context is full")
	s.Float64Var(&f.sampling.Temperature, "temperature", 0.7, "0 takes the most likely token, more draws")
	s.IntVar(&f.sampling.TopK, "top-k", 0, "draw from the k most likely tokens; 0: from all")
	s.Float64Var(&f.sampling.TopP, "top-p", 0.95,
		"draw from the fewest tokens whose probabilities reach p; 0 or 1: from all")
	s.Float64Var(&f.sampling.MinP, "min-p", 0, "draw from tokens with at least this share of the best one's probability")
	s.Float64Var(&f.sampling.RepeatPenalty, "repeat-penalty", 1,
		"divide the logits of the last 64 tokens by this; 0 or 1: do not")
	s.Uint64Var(&f.sampling.Seed, "seed", 0, "seed of the draws")
	s.StringArrayVar(&f.stops, "stop", nil, "end an answer where this text appears (may be repeated)")
	s.StringArrayVar(&f.vars, "var", nil,
		"set a variable of the template, NAME=JSON, such as enable_thinking=false (may be repeated)")
	s.StringVar(&f.reasoning, "reasoning", "",
		"reasoning is shown dimmed (show), as a line that says how much it was (fold), or not at all (hide) "+
			"(default: fold; hide from a pipe)")
	s.StringVar(&f.history, "history", "",
		"file that keeps the lines that were typed, or off (default: greta/chat_history in the user's folder "+
			"of caches)")
	s.BoolVarP(&f.verbose, "verbose", "v", false, "say tokens and speed behind each answer")
	s.BoolVar(&f.json, "json", false, "write each answer as a line of JSON")
	return c
}

// check refuses values outside their ranges.
func (f *chatFlags) check() error {
	if f.max < 0 || f.max > math.MaxInt32 {
		return fmt.Errorf("--gen %d: it must be 0 or more, and below 2^31", f.max)
	}
	for _, s := range f.stops {
		if s == "" {
			return errors.New("--stop is empty")
		}
	}
	if f.reasoning != "" && !isReasoning(f.reasoning) {
		return fmt.Errorf("--reasoning %s: it is show, fold or hide", f.reasoning)
	}
	return f.sampling.Validate()
}

func isReasoning(s string) bool { return s == "show" || s == "fold" || s == "hide" }

// chat opens the model and talks until the input ends.
func (a *app) chat(ctx context.Context, f *chatFlags, arg string) (err error) {
	f.text = true
	b, err := f.open(ctx, a.err, arg)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, b.close()) }()
	talk, err := f.talk(b, arg)
	if err != nil {
		return usage(err)
	}
	b.fitContext(0)
	e, err := a.load(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, e.Close()) }()
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, s.Close()) }()
	talk.Runner = chat.NewSessionRunner(e, s)
	return a.newRepl(f, talk).loop(ctx)
}

// nameTokens gives templates the texts of the begin and end token where no configuration has them.
func nameTokens(set *template.Set, tok *tokenizer.Tokenizer) {
	for name, id := range map[string]int32{"bos_token": tok.BOS(), "eos_token": tok.EOS()} {
		if set.Tokens[name] == "" && id != tokenizer.None {
			set.Tokens[name] = tok.Token(id)
		}
	}
}

// talk makes the conversation, with all that needs no engine, so that what is wrong is said before the weights load.
func (f *chatFlags) talk(b *bundle, arg string) (*chat.Talk, error) {
	if b.file.IsBlock() {
		return nil, fmt.Errorf("%s is a block: it takes activations, not text", b.file.Path())
	}
	if err := f.refuseSeed(b); err != nil {
		return nil, err
	}
	tok, err := b.text()
	if err != nil {
		return nil, err
	}
	if tok == nil {
		return nil, fmt.Errorf("no tokenizer lies with %s: name one by --tokenizer", arg)
	}
	own := &template.Set{Path: arg, Tokens: map[string]string{}}
	err = &template.None{Path: arg}
	if b.source != nil {
		own, err = template.FromSource(b.source)
	}
	set, err := replaceTemplates(own, err, f.template)
	if err == nil {
		err = set.Parse()
	}
	if err != nil {
		return nil, err
	}
	nameTokens(set, tok)
	format := parse.Find(set.Text(template.Default))
	if f.format != "" {
		if format, err = parse.Named(f.format); err != nil {
			return nil, fmt.Errorf("--answer-format: %w", err)
		}
	}
	t := &chat.Talk{System: f.system, Templates: set, Format: format, Text: chat.TokenizerText{Tokenizer: tok},
		Sampling: f.sampling, Max: f.max, Stops: f.stops, Vars: jinja.NewDict()}
	for _, v := range f.vars {
		if err := setVar(t.Vars, "--var", v); err != nil {
			return nil, err
		}
	}
	if f.load != "" {
		if err := t.Load(f.load); err != nil {
			return nil, fmt.Errorf("--load: %w", err)
		}
		if f.system != "" {
			t.System = f.system
		}
	}
	return t, nil
}

// setVar reads NAME=JSON; a word that is no JSON is a text.
func setVar(vars *jinja.Dict, flag, s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return usagef("%s %s: NAME=JSON is expected", flag, s)
	}
	x, err := jinja.FromJSON([]byte(value))
	if err != nil {
		x = value
	}
	vars.Set(name, x)
	return nil
}

// newRepl decides how lines are read and answers shown.
func (a *app) newRepl(f *chatFlags, talk *chat.Talk) *repl {
	r := &repl{talk: talk, flags: f, out: a.out, err: a.err, reasoning: f.reasoning}
	r.terminal = isTerminal(a.in) && isTerminal(a.out)
	if r.reasoning == "" {
		r.reasoning = "fold"
		if !r.terminal {
			r.reasoning = "hide"
		}
	}
	talk.Note = func(text string) { fmt.Fprintf(a.err, "greta: %s\n", text) }
	if f.json || !r.terminal {
		r.lines = newPlainLines(a.in)
	} else {
		r.in = a.in.(*os.File)
	}
	return r
}

// lineSource is where messages come from.
type lineSource interface {
	// next reads a line; more says that it goes on with a message. Errors are io.EOF and errInterrupt.
	next(more bool) (string, error)
	Close() error
}

var errInterrupt = errors.New("interrupted")

// message reads one message: a line, lines between """ or lines that end in a backslash.
func message(in lineSource) (string, error) {
	line, err := in.next(false)
	if err != nil {
		return line, err
	}
	if rest, ok := strings.CutPrefix(strings.TrimSpace(line), `"""`); ok {
		var all []string
		for ; ; rest, err = in.next(true) {
			if err != nil {
				return "", unfinished(err)
			}
			text, end := strings.CutSuffix(strings.TrimRight(rest, " \t\r"), `"""`)
			if !end {
				text = rest
			}
			all = append(all, text)
			if end {
				return strings.Trim(strings.Join(all, "\n"), "\n"), nil
			}
		}
	}
	for strings.HasSuffix(line, `\`) {
		more, err := in.next(true)
		if err != nil {
			return "", unfinished(err)
		}
		line = strings.TrimSuffix(line, `\`) + "\n" + more
	}
	return line, nil
}

func unfinished(err error) error {
	if errors.Is(err, io.EOF) {
		return usagef(`the input ended inside a message: """ or a line behind \ is missing`)
	}
	return err
}

// historyFile is where typed lines are kept, "" for nowhere.
func (f *chatFlags) historyFile() string {
	switch {
	case strings.EqualFold(f.history, "off"):
		return ""
	case f.history != "":
		return f.history
	}
	dir, err := os.UserCacheDir()
	if err != nil || os.MkdirAll(dir+"/greta", 0o700) != nil {
		return ""
	}
	return dir + "/greta/chat_history"
}
