package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	load "github.com/greta-project/greta/bench/serve"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
)

// benchServeFlags are those of bench serve.
type benchServeFlags struct {
	serveFlags
	load              load.Options
	users, rates      string
	dataset, goodput  string
	extra, html, file string
	json              bool
}

func (a *app) benchServeCmd() *cobra.Command {
	f := &benchServeFlags{}
	c := &cobra.Command{
		Use:   "serve URL|MODEL",
		Short: "Measure a server of OpenAI's protocol as its clients see it",
		Long: `serve measures any server that answers /v1/completions or, with --chat,
/v1/chat/completions. A MODEL, as run takes it, is served for the while on a free port.

Figures are vLLM's: TTFT is the first chunk less the sending, E2EL the last chunk
less the sending, TPOT (E2EL - TTFT)/(tokens - 1) of each request, ITL all later
gaps between chunks, goodput the requests a second that meet every bound. A percentile
is given where there are samples enough for it: p99 from 100 on. Answers are counted
again by /tokenize, where the server has it: figures of tokens that were not made
are marked, and the exit code is 4.

Prompts are random words, as many as make the tokens that are wanted; a dataset is
JSON lines with "prompt", or ShareGPT's array.`,
		Example: `  greta bench serve http://127.0.0.1:8000 --users 1,16,64 --input 128 --output 1024
  greta bench serve testdata/tolstoy-2.7m --users 16 --input 16 --output 16 --requests 2000
  greta bench serve http://host:8000/v1 --rate 10 --goodput ttft:500,tpot:50 --html out.html`,
		Args: exactly(1, "one URL or model"),
		RunE: func(c *cobra.Command, args []string) error { return a.benchServe(c.Context(), f, args[0]) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.users, "users", "", "users at once, 1,16,64: each sends the next request when the last is answered")
	s.StringVar(&f.rates, "rate", "", "requests a second instead, 1,10")
	s.Float64Var(&f.load.Burst, "burstiness", 1, "of a rate: 1 is Poisson, less is more bursty, more is more even")
	s.IntVar(&f.load.Input, "input", 128, "tokens of a prompt")
	s.IntVar(&f.load.Output, "output", 1024, "tokens of an answer")
	s.StringVar(&f.dataset, "dataset", "", "file of prompts instead of random ones")
	s.IntVar(&f.load.N, "requests", 0, "requests of each load (default: four for each user, 100 at least)")
	s.BoolVar(&f.load.Chat, "chat", false, "ask /v1/chat/completions")
	s.StringVar(&f.load.Model, "served-model-name", "", "model to ask for (default: the first that the server lists)")
	s.StringVar(&f.load.Key, "api-key", "", "key to send")
	s.StringVar(&f.goodput, "goodput", "", "bounds in milliseconds, ttft:500,tpot:50,e2el:10000")
	s.BoolVar(&f.load.NoEnd, "natural-end", false, "let answers end where the model ends them")
	s.StringVar(&f.extra, "extra-body", "", "JSON object of more fields of each request")
	s.Uint64Var(&f.load.Seed, "seed", 0, "seed of prompts and gaps")
	s.DurationVar(&f.load.Timeout, "timeout", 10*time.Minute, "time that a request may take")
	s.BoolVar(&f.json, "json", false, "print the result as JSON")
	s.StringVar(&f.file, "out", "", "write the result as JSON to this file too")
	s.StringVar(&f.html, "html", "", "write a page of the result to this file")
	s.IntVar(&f.parallel, "parallel", 0, "of a MODEL: sequences that run beside each other")
	s.StringVar(&f.template, "chat-template", "", "of a MODEL: how conversations are written")
	f.register(s)
	return c
}

// numbers reads 1,16,64.
func numbers(flag, text string) (out []float64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		v, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return nil, fmt.Errorf("%s %s: numbers are expected, 1,16,64", flag, text)
		}
		out = append(out, v)
	}
	return out, nil
}

// options reads what flags have as text.
func (f *benchServeFlags) options() error {
	users, err := numbers("--users", f.users)
	if err != nil {
		return err
	}
	for _, u := range users {
		if u != float64(int(u)) {
			return fmt.Errorf("--users %s: whole numbers are expected", f.users)
		}
		f.load.Users = append(f.load.Users, int(u))
	}
	if f.load.Rates, err = numbers("--rate", f.rates); err != nil {
		return err
	}
	if len(f.load.Users)+len(f.load.Rates) == 0 {
		f.load.Users = []int{1, 16, 64}
	}
	for part := range strings.SplitSeq(f.goodput, ",") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, ":")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("--goodput %s: expected is ttft:500,tpot:50", f.goodput)
		}
		if f.load.Bounds == nil {
			f.load.Bounds = map[string]time.Duration{}
		}
		f.load.Bounds[strings.TrimSpace(name)] = time.Duration(v * float64(time.Millisecond))
	}
	if f.extra != "" {
		if err := json.Unmarshal([]byte(f.extra), &f.load.Extra); err != nil {
			return fmt.Errorf("--extra-body: a JSON object is expected: %w", err)
		}
	}
	if f.dataset != "" {
		if f.load.Data, err = load.ReadPrompts(f.dataset); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) benchServe(ctx context.Context, f *benchServeFlags, arg string) error {
	if err := f.options(); err != nil {
		return usage(err)
	}
	f.load.URL = arg
	if f.json { // else it is printed
		f.load.Say = func(format string, args ...any) { fmt.Fprintf(a.err, "greta: "+format+"\n", args...) }
	}
	stop := func() error { return nil }
	if !strings.HasPrefix(arg, "http://") && !strings.HasPrefix(arg, "https://") {
		var err error
		if f.load.URL, stop, err = a.serveAside(ctx, f, arg); err != nil {
			return err
		}
	}
	if err := f.load.Check(); err != nil {
		return errlist.Join(usage(err), stop())
	}
	r, err := load.Run(ctx, f.load)
	if e := stop(); err == nil {
		err = e
	}
	if r == nil || len(r.Levels) == 0 {
		return err
	}
	r.Environment = map[string]string{"client": version(), "cores": strconv.Itoa(runtime.NumCPU()),
		"system": runtime.GOOS + "/" + runtime.GOARCH}
	if err := errlist.Join(err, f.write(a, r)); err != nil {
		return err
	}
	if !r.OK() {
		return &exitError{code: exitMismatch, err: errors.New("the figures are marked as wrong")}
	}
	return nil
}

// write prints and writes the result.
func (f *benchServeFlags) write(a *app, r *load.Result) error {
	if f.file != "" {
		data, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(f.file, append(data, '\n'), 0o644)
		}
		if err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	if f.html != "" {
		w, err := plainfile.Create(f.html)
		if err == nil {
			err = errlist.Join(r.HTML(w), w.Close())
		}
		if err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	if f.json {
		return writeJSON(a.out, r)
	}
	for _, l := range r.Levels {
		fmt.Fprintln(a.out, l.Line())
	}
	return nil
}

// serveAside serves a model on a free port until stop is called.
func (a *app) serveAside(ctx context.Context, f *benchServeFlags, model string) (url string, stop func() error,
	err error) {
	f.fillDefaults()
	ctx, cancel := context.WithCancel(ctx)
	ready := make(chan string, 1)
	f.ready = func(addr string) { ready <- addr }
	done := make(chan error, 1)
	go func() { done <- a.serve(ctx, &f.serveFlags, []string{model}) }()
	select {
	case url := <-ready:
		return url, func() error { cancel(); return <-done }, nil
	case err := <-done:
		cancel()
		return "", nil, err
	}
}
