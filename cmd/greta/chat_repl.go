package main

// The loop of greta chat: messages, commands, and how an answer is shown.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/greta-project/greta/chat"
	"github.com/greta-project/greta/chat/parse"
	"github.com/greta-project/greta/chat/template"
	"github.com/greta-project/greta/internal/errlist"
)

// repl is one conversation with a person, or with a script.
type repl struct {
	talk      *chat.Talk
	flags     *chatFlags
	in        *os.File // a person's; nil: it is a pipe
	out, err  io.Writer
	lines     lineSource
	terminal  bool
	reasoning string // show, fold, hide
	thoughts  string // of the last answer
}

const (
	dim    = "\x1b[2m"
	normal = "\x1b[0m"
)

// loop talks until the input ends.
func (r *repl) loop(ctx context.Context) (err error) {
	if r.lines == nil {
		r.lines = newEditor(ctx, r.in, r.out.(*os.File), r.flags.historyFile())
		// From here Ctrl-C is the conversation's: it stops an answer, not the program.
		signal.Reset(os.Interrupt)
		fmt.Fprintln(r.err, "/help lists the commands, Ctrl-D ends.")
	}
	defer func() { err = errlist.Join(err, r.lines.Close()) }()
	for {
		text, err := message(r.lines)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errInterrupt):
			fmt.Fprintln(r.err, "(Ctrl-D or /bye ends)")
			continue
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case strings.TrimSpace(text) == "":
			continue
		}
		if strings.HasPrefix(text, "/") {
			end, err := r.command(ctx, text)
			if end || r.fatal(err) {
				return err
			}
			continue
		}
		if err := r.ask(ctx, func(ctx context.Context, show func(parse.Part)) (chat.Answer, error) {
			return r.talk.Ask(ctx, text, show)
		}); r.fatal(err) {
			return err
		}
	}
}

// fatal says whether an error ends the program. A person is told what is wrong with a message; a script fails.
func (r *repl) fatal(err error) bool {
	if err == nil {
		return false
	}
	if !r.terminal || closedPipe(err) {
		return true
	}
	fmt.Fprintf(r.err, "greta: %v\n", err)
	return false
}

// ask makes an answer and shows it. Ctrl-C stops it.
func (r *repl) ask(ctx context.Context, make func(context.Context, func(parse.Part)) (chat.Answer, error)) error {
	asked := ctx
	if r.terminal {
		var stop func()
		asked, stop = signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
	}
	v := &view{repl: r, start: time.Now()}
	a, err := make(asked, v.part)
	v.end()
	if err == nil {
		err = v.err
	}
	if err != nil {
		var long *chat.TooLong
		if errors.As(err, &long) {
			return usage(err)
		}
		var refused *template.Refusal
		if errors.As(err, &refused) {
			return usage(err)
		}
		return err
	}
	if r.thoughts = a.Reasoning; r.flags.json {
		if err := r.writeAnswer(a); err != nil {
			return err
		}
	}
	if a.Cut && r.terminal && asked.Err() != nil {
		fmt.Fprintln(r.err, "(stopped)")
	}
	if r.flags.verbose {
		fmt.Fprintf(r.err, "greta: %s\n", speeds(a.Stats))
	}
	return ctx.Err()
}

// speeds says what an answer took.
func speeds(s chat.Stats) string {
	text := fmt.Sprintf("prompt of %d tokens, %d of them kept", s.Prompt, s.Kept)
	if n := s.Prompt - s.Kept; s.Prefill > 0 {
		text += fmt.Sprintf(", %d computed in %.2f s", n, s.Prefill.Seconds())
	}
	text += fmt.Sprintf("; answer of %d tokens", s.Tokens)
	if s.Decode > 0 && s.Tokens > 1 {
		text += fmt.Sprintf(", %.1f tokens/s", float64(s.Tokens-1)/s.Decode.Seconds())
	}
	return text
}

func (r *repl) writeAnswer(a chat.Answer) error {
	line, err := json.Marshal(struct {
		chat.Message
		Stop    string  `json:"stop_reason"`
		Prompt  int     `json:"prompt_tokens"`
		Kept    int     `json:"cached_tokens"`
		Tokens  int     `json:"tokens"`
		Prefill float64 `json:"prefill_ms"`
		Decode  float64 `json:"decode_ms"`
	}{a.Message, string(a.Stop), a.Prompt, a.Kept, a.Tokens, a.Prefill.Seconds() * 1e3, a.Decode.Seconds() * 1e3})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.out, "%s\n", line)
	return err
}

// view shows one answer.
type view struct {
	*repl
	start    time.Time
	thinking bool
	pieces   int // of reasoning
	err      error
}

func (v *view) write(s string) {
	if v.err == nil && s != "" {
		if _, err := io.WriteString(v.out, s); err != nil {
			v.err = fmt.Errorf("standard output: %w", err)
		}
	}
}

// part shows a piece.
func (v *view) part(p parse.Part) {
	if v.flags.json {
		return
	}
	if p.Reasoning != "" {
		v.think(p.Reasoning)
	}
	if p.Text != "" {
		v.endThinking()
		v.write(v.safe(p.Text))
	}
}

func (v *view) think(text string) {
	v.pieces++
	if !v.thinking {
		v.thinking, v.start = true, time.Now()
		if v.reasoning == "show" && v.terminal {
			v.write(dim)
		}
	}
	switch {
	case v.reasoning == "show" && v.terminal:
		v.write(v.safe(text))
	case v.reasoning == "show":
		fmt.Fprint(v.repl.err, text)
	case v.reasoning == "fold" && v.terminal:
		v.write(fmt.Sprintf("\r%sthinking, %d pieces, %.0f s%s", dim, v.pieces, time.Since(v.start).Seconds(), normal))
	}
}

func (v *view) endThinking() {
	if !v.thinking {
		return
	}
	v.thinking = false
	took := time.Since(v.start).Seconds()
	switch {
	case v.reasoning == "show" && v.terminal:
		v.write(normal + "\n\n")
	case v.reasoning == "show":
		fmt.Fprintln(v.repl.err)
	case v.reasoning == "fold" && v.terminal:
		v.write(fmt.Sprintf("\r\x1b[K%s(thought for %.1f s; /thoughts shows it)%s\n", dim, took, normal))
	case v.reasoning == "fold":
		fmt.Fprintf(v.repl.err, "greta: thought for %.1f s\n", took)
	}
}

func (v *view) end() {
	v.endThinking()
	if !v.flags.json {
		v.write("\n")
	}
}

// safe takes what would steer the terminal out of a text that a model wrote.
func (v *view) safe(s string) string {
	if !v.terminal {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, s)
}

// plainLines reads lines of a pipe.
type plainLines struct{ s *bufio.Scanner }

func newPlainLines(r io.Reader) *plainLines {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 16<<20)
	return &plainLines{s}
}

func (p *plainLines) next(bool) (string, error) {
	if p.s.Scan() {
		return p.s.Text(), nil
	}
	if err := p.s.Err(); err != nil {
		return "", usagef("standard input: %v", err)
	}
	return "", io.EOF
}

func (p *plainLines) Close() error { return nil }

const chatHelp = `/help            this
/clear           forget what was said
/system [TEXT]   show or set the text that the conversation begins with
/set [NAME VALUE] show or set: temperature, top-k, top-p, min-p, repeat-penalty, seed, gen,
                 reasoning (show, fold, hide), verbose (on, off), var (NAME=JSON, the template's)
/save FILE       write the conversation
/load FILE       take up a conversation
/undo            take back the last question with its answer
/retry           answer the last question again
/thoughts        show the reasoning of the last answer
/bye             end, as Ctrl-D does
"""              begins and ends a message of several lines; \ at the end of a line goes on too
Ctrl-C           stops an answer`

// command does what begins with a slash. end says that the conversation is over.
func (r *repl) command(ctx context.Context, text string) (end bool, err error) {
	name, arg, _ := strings.Cut(strings.TrimSpace(text), " ")
	arg = strings.TrimSpace(arg)
	t := r.talk
	switch name {
	case "/bye", "/exit", "/quit":
		return true, nil
	case "/help", "/?":
		fmt.Fprintln(r.err, chatHelp)
	case "/clear":
		t.Clear()
		r.say("nothing was said")
	case "/system":
		if arg != "" {
			t.System = arg
		}
		r.say("system: " + t.System)
	case "/set":
		return false, r.set(arg)
	case "/save", "/load":
		if arg == "" {
			return false, usagef("%s needs the name of a file", name)
		}
		if name == "/save" {
			err = t.Save(arg)
		} else if err = t.Load(arg); err == nil {
			r.say(fmt.Sprintf("%d messages", len(t.Messages)))
		}
		return false, usage(err)
	case "/undo":
		if !t.Undo() {
			return false, usagef("there is nothing to take back")
		}
		r.say(fmt.Sprintf("taken back; %d messages are left", len(t.Messages)))
	case "/retry":
		return false, r.ask(ctx, t.Retry)
	case "/thoughts":
		if r.thoughts == "" {
			return false, usagef("the last answer had no reasoning")
		}
		fmt.Fprintln(r.err, r.thoughts)
	default:
		return false, usagef("%s is no command; /help lists them, and a message that begins with / stands "+
			`between """`, name)
	}
	return false, nil
}

// say tells a person; a script needs no such words.
func (r *repl) say(text string) {
	if r.terminal {
		fmt.Fprintln(r.err, text)
	}
}

// set shows or changes settings.
func (r *repl) set(arg string) error {
	s := &r.talk.Sampling
	if arg == "" {
		fmt.Fprintf(r.err,
			"temperature %g, top-k %d, top-p %g, min-p %g, repeat-penalty %g, seed %d, gen %d, reasoning %s, "+
				"verbose %v\n",
			s.Temperature, s.TopK, s.TopP, s.MinP, s.RepeatPenalty, s.Seed, r.talk.Max, r.reasoning, r.flags.verbose)
		return nil
	}
	name, value, _ := strings.Cut(arg, " ")
	value = strings.TrimSpace(value)
	next, most := *s, r.talk.Max
	var err error
	switch name {
	case "temperature":
		next.Temperature, err = strconv.ParseFloat(value, 64)
	case "top-k":
		next.TopK, err = strconv.Atoi(value)
	case "top-p":
		next.TopP, err = strconv.ParseFloat(value, 64)
	case "min-p":
		next.MinP, err = strconv.ParseFloat(value, 64)
	case "repeat-penalty":
		next.RepeatPenalty, err = strconv.ParseFloat(value, 64)
	case "seed":
		next.Seed, err = strconv.ParseUint(value, 10, 64)
	case "gen":
		most, err = strconv.Atoi(value)
		if err == nil && (most < 0 || most > math.MaxInt32) {
			err = errors.New("it must be 0 or more, and below 2^31")
		}
	case "reasoning":
		if !isReasoning(value) {
			return usagef("/set reasoning %s: it is show, fold or hide", value)
		}
		r.reasoning = value
	case "verbose":
		if !slices.Contains([]string{"", "on", "true", "off", "false"}, value) {
			return usagef("/set verbose %s: it is on or off", value)
		}
		r.flags.verbose = value != "off" && value != "false"
	case "var":
		return setVar(r.talk.Vars, "/set var", value)
	default:
		return usagef("/set %s: there is no such setting; /help lists them", name)
	}
	if errors.Is(err, strconv.ErrSyntax) || errors.Is(err, strconv.ErrRange) {
		err = errors.New("a number is expected, whole but for temperature, top-p, min-p and repeat-penalty")
	}
	if err == nil {
		err = next.Validate()
	}
	if err != nil {
		return usagef("/set %s %s: %v", name, value, err)
	}
	*s, r.talk.Max = next, most
	return nil
}
