package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/chat/template"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/serve"
	"github.com/greta-project/greta/tokenizer"
)

// endsItself says that the verb under way ends in its own time when it is interrupted; a second
// interrupt ends it at once.
var endsItself atomic.Bool

// serveFlags are those of serve beside the model's.
type serveFlags struct {
	modelFlags
	steps  stepFlags
	listen serve.ListenOptions
	opt    serve.Options

	models, keysFile, template string
	names, plainKeys           []string
	idle                       time.Duration
	mostLoaded, parallel, rows int
	logLevel, logFormat        string
	newKey                     string
	noPrefix                   bool
	cacheMemory, traces        string
	all                        []serve.Spec // that are served
	json, exitOnLoss           bool
	ended                      context.CancelCauseFunc // ends the server
	ready                      func(addr string)       // nil: it is printed
}

// fillDefaults sets what a command line without serve's flags would.
func (f *serveFlags) fillDefaults() {
	f.listen.Host, f.listen.Drain = "127.0.0.1", time.Second
	f.opt.MaxRunning, f.opt.MaxQueue, f.opt.MaxBody, f.opt.MaxMessages = 1024, 1<<16, 32<<20, 4096
	f.logLevel, f.logFormat = "warn", "text"
}

func (a *app) serveCmd() *cobra.Command {
	f := &serveFlags{}
	c := &cobra.Command{
		Use:   "serve MODEL...",
		Short: "Give models to others over HTTP: OpenAI's and Anthropic's protocols, a page, metrics",
		Long: `MODEL is what run takes. Clients call it by its file's or folder's name, or as
--served-model-name says. --models FILE.yaml names several, loaded when they are
asked for; docs/serve.md has its keys, and those of the file of API keys.

It serves /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages,
/v1/models, /tokenize, /detokenize, /metrics, /health, /ready and /live. SIGTERM lets the answers under
way end, for as long as --drain says; a second one ends at once.`,
		Example: `  greta serve tinyllama.gguf
  greta serve FOLDER --port 8080 --api-key SECRET
  curl http://127.0.0.1:8000/v1/completions -d '{"prompt": "Once upon a time", "max_tokens": 32}'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && f.models == "" && f.newKey == "" {
				return usagef("serve takes a model, or --models FILE.yaml; see greta serve --help")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return a.serve(c.Context(), f, args) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.listen.Host, "host", "127.0.0.1", "address to listen at; 0.0.0.0: all")
	s.IntVar(&f.listen.Port, "port", 8000, "port; 0: any free one")
	s.StringVar(&f.listen.Socket, "uds", "", "listen at a unix socket of this path instead")
	s.StringArrayVar(&f.names, "served-model-name", nil, "what clients call the model (may be repeated)")
	s.StringVar(&f.task, "task", "", "what models are served for: generate, embed or score (default: what their files "+
		"say)")
	s.StringVar(&f.models, "models", "", "file of models: several, loaded when they are asked for")
	s.DurationVar(&f.idle, "idle", 0, "unload a model that nobody asked for so long; 0: never")
	s.IntVar(&f.mostLoaded, "most-loaded", 0, "models that are loaded at once; 0: all")
	s.IntVar(&f.parallel, "parallel", 0, "sequences that run beside each other (default: 64)")
	s.IntVar(&f.rows, "max-num-batched-tokens", 0, "tokens of a step, of prompts and answers together (default: 256, "+
		"on a device of its own up to 8192, or twice --parallel)")
	f.steps.register(s)
	s.BoolVar(&f.noPrefix, "no-prefix-cache", false, "requests that begin alike do not share what is known of their "+
		"beginning")
	s.StringVar(&f.cacheMemory, "cache-memory", "", "memory of all sequences' caches, such as 4GB (default: what "+
		"--parallel contexts take, at most what is left on a device with memory of its own, its share of that beside other "+
		"models, half of that of the host's)")
	s.StringVar(&f.template, "chat-template", "", chatTemplateUsage)
	s.StringArrayVar(&f.plainKeys, "api-key", nil, "key that clients must send (may be repeated)")
	s.StringVar(&f.keysFile, "api-keys", "", "file of hashed keys with scopes and quotas")
	s.StringVar(&f.newKey, "new-key", "", "print a new key of this name with its line for --api-keys, and end")
	s.StringVar(&f.listen.Cert, "ssl-certfile", "", "certificate: listen with TLS; read again when it changes")
	s.StringVar(&f.listen.Key, "ssl-keyfile", "", "the certificate's key")
	s.StringArrayVar(&f.opt.Origins, "allowed-origin", nil, "origin that browsers may ask from, * for all (may be "+
		"repeated)")
	s.StringArrayVar(&f.opt.Hosts, "allowed-host", nil, "name that the server is called by, beside addresses and this "+
		"machine's names; .example.org with all below it, * for any (may be repeated)")
	s.IntVar(&f.opt.MaxRunning, "max-num-seqs", 256, "requests that run at once")
	s.IntVar(&f.opt.MaxQueue, "max-queue", 1024, "requests that may wait beyond those; more are told to come again")
	s.Int64Var(&f.opt.MaxBody, "max-body", 32<<20, "bytes of a request")
	s.IntVar(&f.opt.MaxMessages, "max-messages", 4096, "messages of a conversation")
	s.IntVar(&f.opt.MaxTokens, "max-tokens", 0, "tokens of an answer; 0: what the context has room for")
	s.DurationVar(&f.opt.Timeout, "timeout", 0, "time that a request may take; 0: any")
	s.DurationVar(&f.opt.WriteWait, "write-timeout", 30*time.Second, "time that a reader may not read")
	s.DurationVar(&f.listen.Drain, "drain", 30*time.Second, "time that answers under way have when the server ends")
	s.StringVar(&f.opt.Store, "store", "", "folder where responses are kept, so that a restart forgets none (default: "+
		"in memory)")
	s.BoolVar(&f.opt.NoPage, "no-page", false, "serve no page at /")
	s.BoolVar(&f.exitOnLoss, "exit-on-device-loss", false, "end when a device is lost, so that a supervisor starts the "+
		"server again; otherwise its model is loaded anew, and requests get 503 or wait until it is")
	s.StringVar(&f.traces, "otlp-traces-endpoint", "", "send a trace of each request to this collector, http://HOST:4318")
	s.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	s.StringVar(&f.logFormat, "log-format", "text", "text or json")
	s.BoolVar(&f.opt.LogText, "log-prompts", false, "log prompts and answers too")
	s.BoolVar(&f.json, "json", false, "print where it listens as JSON on standard output")
	f.register(s)
	f.registerInvariant(s)
	s.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer of the model (default: what lies with the weights)")
	return c
}

func (f *serveFlags) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %s: there are debug, info, warn and error", f.logLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %s: there are text and json", f.logFormat)
}

// specs are the models of the command line and of the file.
func (f *serveFlags) specs(args []string) ([]serve.Spec, error) {
	var specs []serve.Spec
	for _, arg := range args {
		name := strings.TrimSuffix(filepath.Base(filepath.Clean(arg)), ".gguf")
		specs = append(specs, serve.Spec{Name: name, Path: arg, Preload: true,
			Task: f.task})
	}
	var whole []string
	for _, text := range slices.Concat(f.lora, f.steps.adapters) {
		name, path, named := strings.Cut(text, "=")
		switch {
		case !named || strings.ContainsAny(name, `/\`): // for all requests, merged as it is read
			whole = append(whole, text)
		case name == "" || path == "":
			return nil, fmt.Errorf("--lora %q: NAME=PATH is expected, or PATH for all requests", text)
		case len(specs) != 1:
			return nil, fmt.Errorf("--lora %s is for one model, there are %d: name adapters in the file of models", text,
				len(specs))
		default:
			if specs[0].Adapters == nil {
				specs[0].Adapters = map[string]string{}
			}
			specs[0].Adapters[name] = path
		}
	}
	f.lora = whole
	if len(f.names) > 0 {
		if len(specs) != 1 {
			return nil, fmt.Errorf("--served-model-name is for one model, there are %d", len(specs))
		}
		specs[0].Name, specs[0].Aliases = f.names[0], f.names[1:]
	}
	if f.models != "" {
		more, most, err := serve.ReadSpecs(f.models)
		if err != nil {
			return nil, err
		}
		if specs = append(specs, more...); f.mostLoaded == 0 {
			f.mostLoaded = most
		}
	}
	return specs, nil
}

func (f *serveFlags) check() error {
	switch {
	case f.listen.Port < 0 || f.listen.Port > math.MaxUint16:
		return fmt.Errorf("--port %d: it must be between 0 and 65535", f.listen.Port)
	case f.parallel < 0:
		return fmt.Errorf("--parallel %d: it must be positive", f.parallel)
	case f.rows < 0:
		return fmt.Errorf("--max-num-batched-tokens %d: it must be positive", f.rows)
	case f.opt.MaxRunning < 1 || f.opt.MaxQueue < 1 || f.opt.MaxBody < 1 || f.opt.MaxMessages < 1:
		return errors.New("--max-num-seqs, --max-queue, --max-body and --max-messages must be positive")
	case f.opt.MaxTokens < 0:
		return fmt.Errorf("--max-tokens %d: it must be 0 or more", f.opt.MaxTokens)
	case f.mostLoaded < 0:
		return fmt.Errorf("--most-loaded %d: it must be 0 or more", f.mostLoaded)
	case f.idle < 0 || f.opt.Timeout < 0 || f.opt.WriteWait < 0 || f.listen.Drain < 0:
		return errors.New("--idle, --timeout, --write-timeout and --drain must be 0 or more")
	case f.noPrefix && f.steps.prefixCache != "":
		return errors.New("--no-prefix-cache and --prefix-cache exclude each other")
	case f.cacheMemory != "" && f.cacheBytes() <= 0:
		return fmt.Errorf("--cache-memory %s: a size is expected, such as 4GB", f.cacheMemory)
	case len(f.plainKeys) > 0 && f.keysFile != "":
		return errors.New("--api-key and --api-keys exclude each other")
	}
	return nil
}

// cacheBytes is --cache-memory, which check has read; 0: none was given.
func (f *serveFlags) cacheBytes() int64 {
	n, _ := packcache.ParseBytes(f.cacheMemory)
	return n
}

func (f *serveFlags) keys() (*serve.Keys, error) {
	if f.keysFile != "" {
		return serve.ReadKeys(f.keysFile)
	}
	if len(f.plainKeys) == 0 {
		return nil, nil
	}
	var list []*serve.Key
	for i, k := range f.plainKeys {
		if k == "" {
			return nil, errors.New("--api-key is empty")
		}
		list = append(list, serve.PlainKey(fmt.Sprintf("key-%d", i+1), k))
	}
	return serve.NewKeys(list)
}

// serve listens and answers until ctx ends.
func (a *app) serve(ctx context.Context, f *serveFlags, args []string) error {
	began := time.Now()
	if f.newKey != "" {
		key, line, err := serve.NewKey(f.newKey)
		if err == nil {
			fmt.Fprintf(a.err, "the key, shown once: %s\n", key)
			_, err = io.WriteString(a.out, line)
		}
		return err
	}
	err := f.check()
	specs, err2 := f.specs(args)
	f.all = specs
	log, err3 := f.logger(a.err)
	keys, err4 := f.keys()
	if err := errlist.Join(err, err2, err3, err4); err != nil {
		return usage(err)
	}
	f.listen.Log = log
	l, err := serve.Listen(f.listen)
	if err != nil {
		return usage(err)
	}
	defer l.Close()
	f.opt.Version, f.opt.Log, f.opt.Keys = version(), log, keys
	if f.traces != "" {
		report := func(err error) { log.Warn(err.Error()) }
		if f.opt.Tracer, err = serve.NewTracer(f.traces, version(), report); err != nil {
			return usagef("--otlp-traces-endpoint: %v", err)
		}
	}
	ctx, f.ended = context.WithCancelCause(ctx)
	defer f.ended(nil)
	load := func(ctx context.Context, spec serve.Spec) (serve.Model, error) { return a.loadServed(ctx, f, spec) }
	if f.opt.Models, err = serve.NewManager(specs, load, f.idle, f.mostLoaded, log); err != nil {
		return usage(err)
	}
	if err := f.opt.Models.Preload(ctx); err != nil {
		return err
	}
	s, err := serve.New(f.opt)
	if err != nil {
		return errlist.Join(err, f.opt.Models.Close())
	}
	if f.ready == nil {
		endsItself.Store(true)
		defer endsItself.Store(false)
	}
	f.listen.Ready = func(addr string) {
		if f.ready != nil {
			f.ready(addr)
			return
		}
		fmt.Fprintf(a.err, "greta: listening at %s after %.0f ms\n", addr, float64(time.Since(began).Microseconds())/1000)
		if f.json {
			_ = writeJSON(a.out, map[string]any{"address": addr, "models": names(specs)})
		}
	}
	err = errlist.Join(s.Serve(ctx, l, f.listen), f.opt.Models.Close())
	if cause := context.Cause(ctx); errors.Is(cause, engine.ErrDevice) {
		return &exitError{code: exitNoDevice, err: errlist.Join(cause, err)}
	}
	return err
}

func names(specs []serve.Spec) []string {
	out := make([]string, len(specs))
	for i, s := range specs {
		out[i] = s.Name
	}
	return out
}

// loadServed loads a model to be served.
func (a *app) loadServed(ctx context.Context, f *serveFlags, spec serve.Spec) (_ serve.Model, err error) {
	m := f.flagsOf(spec)
	b, err := a.openServed(ctx, &m, spec)
	if err != nil {
		return nil, err
	}
	close := b.close
	defer func() {
		if err != nil {
			err = errlist.Join(err, close())
		}
	}()
	if b.file.IsBlock() {
		return nil, usagef("%s is a block; a model is needed", b.file.Path())
	}
	if b.file.Task() != "" {
		if len(spec.Adapters) > 0 {
			return nil, usagef("%s: a model of vectors or scores takes no adapters", spec.Name)
		}
		model, err := a.loadServedTexts(ctx, b, m.tokenizer)
		return model, err
	}
	if err := servedAdapters(b, spec.Adapters); err != nil {
		return nil, usage(err)
	}
	t, err := servedTokenizer(b, m.tokenizer)
	if err != nil {
		return nil, usage(err)
	}
	parallel := 64
	for _, n := range []int{f.parallel, spec.Parallel} {
		if n > 0 {
			parallel = n
		}
	}
	if f.rows > 0 && f.rows < parallel {
		return nil, usagef("--max-num-batched-tokens %d: a step needs a token for each of %d sequences; let fewer run by "+
			"--parallel", f.rows, parallel)
	}
	b.fitContext(1)
	e, err := a.load(ctx, b)
	if err != nil {
		return nil, err
	}
	close = func() error { return errlist.Join(e.Close(), b.close()) }
	chat, err := servedChat(b, cmp.Or(spec.ChatTemplate, f.template), t)
	if err != nil {
		return nil, usage(err)
	}
	path, _ := b.sourceName()
	so := serve.SessionOptions{
		Info: serve.Info{Name: b.file.Name(), Root: path, Device: b.device.Info().Name, Context: b.opt.Context,
			Rows: parallel, Created: time.Now(), Cache: b.opt.KV.String()},
		Text: serve.NewVocabulary(t), Chat: chat, Grammar: serve.NewGrammarMasks(t), Parallel: parallel, Close: close,
		Adapters: slices.Sorted(maps.Keys(spec.Adapters)),
	}
	eo := engine.SchedulerOptions{Sequences: parallel, Rows: f.rows, Queue: f.opt.MaxQueue + f.opt.MaxRunning,
		NoPrefix: f.noPrefix, Memory: f.cacheBytes(), Share: f.share(&m)}
	if err := f.steps.prefixes(&eo); err != nil {
		return nil, err
	}
	so.Lost = func(err error) {
		if f.exitOnLoss {
			f.ended(fmt.Errorf("%s: %w", spec.Name, err))
			return
		}
		f.opt.Models.Lose(spec.Name, err)
	}
	if f.steps.draft != "" && !e.Rewinds() {
		return nil, usagef("--draft %s: %s keeps a recurrence's state, which cannot go back behind a wrong guess",
			f.steps.draft, b.file.Name())
	}
	free, err := m.drafts(ctx, a, f.steps.draft, b, e, parallel, &eo)
	if err != nil {
		return nil, err
	}
	so.Close = func() error { return errlist.Join(free(), e.Close(), b.close()) }
	close = so.Close
	return a.sequences(e, spec.Name, eo, so)
}

// servedAdapters opens adapters by name.
func servedAdapters(b *bundle, paths map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		adapter, err := openAdapter(paths[name], b.source)
		if err != nil {
			return fmt.Errorf("--lora %s: %w", name, err)
		}
		b.opt.Adapters = append(b.opt.Adapters, engine.Adapter{Name: name, Adapter: adapter})
	}
	return nil
}

// sequences gives an engine's model to many sequences at once, or where it cannot have rows of several sequences in a
// step, to one behind the other.
func (a *app) sequences(e *engine.Engine, name string, eo engine.SchedulerOptions,
	so serve.SessionOptions) (serve.Model, error) {
	many, err := serve.NewScheduledModel(e, eo, so)
	if err == nil {
		return many, nil
	}
	if eo.PrefixDir != "" || eo.Draft != nil || len(eo.Capture) > 0 { // who asks for these is not left without them
		return nil, usage(err)
	}
	if exitCode(err) == exitMemory { // which is no reason to let all wait for each
		return nil, fmt.Errorf("caches of %d sequences of %s: %w; fewer by --parallel or --cache-memory need less",
			eo.Sequences, name, err)
	}
	fmt.Fprintf(a.err, "greta: sequences of %s run one behind the other: %v\n", name, err)
	so.Parallel, so.Info.Rows = 1, 1
	return serve.NewSessionModel(e, so)
}

// share is how many models share what a device has left for caches. Where there are several there is always room for
// another, as one that is used stays loaded whatever --most-loaded says.
func (f *serveFlags) share(m *modelFlags) int {
	n := 0
	for _, s := range f.all {
		if o := f.flagsOf(s); o.backend == m.backend && o.device == m.device {
			n++
		}
	}
	if n > 1 && f.mostLoaded > 0 {
		n = max(2, min(n, f.mostLoaded))
	}
	return n
}

// flagsOf are a model's flags: serve's own, and what the file of models says instead.
func (f *serveFlags) flagsOf(spec serve.Spec) modelFlags {
	m := f.modelFlags
	if spec.Context > 0 {
		m.context = spec.Context
	}
	if spec.Backend != "" {
		m.backend = spec.Backend
	}
	if spec.Device != "" {
		m.device = spec.Device
	}
	if spec.KV != "" {
		m.kv = spec.KV
	}
	return m
}

// openServed opens a model by the task that it is served for: the one that is named, else that of the first file that
// is for its weights, where a folder of sentence-transformers is for vectors.
func (a *app) openServed(ctx context.Context, m *modelFlags, spec serve.Spec) (*bundle, error) {
	tasks := []string{"", models.Score, models.Embed}
	switch spec.Task {
	case "":
		if exists(filepath.Join(spec.Path, "modules.json")) {
			tasks = []string{models.Embed, models.Score}
		}
	case "generate":
		tasks = tasks[:1]
	case models.Embed, models.Score:
		tasks = []string{spec.Task}
	default:
		return nil, usagef("task %q of %s: there are generate, embed and score", spec.Task, spec.Name)
	}
	var first error
	for _, task := range tasks {
		own := *m
		own.task = task
		b, err := own.open(ctx, a.err, spec.Path)
		if err == nil {
			return b, nil
		}
		first = cmp.Or(first, err)
	}
	return nil, first
}

// loadServedTexts loads a model of vectors or scores to be served.
func (a *app) loadServedTexts(ctx context.Context, b *bundle, named string) (serve.Model, error) {
	t, err := servedTokenizer(b, named)
	if err != nil {
		return nil, usage(err)
	}
	m, free, err := a.loadEmbedding(ctx, b, named, "")
	if err != nil {
		return nil, err
	}
	path, _ := b.sourceName()
	return &serve.TextModel{Model: m, Tokens: serve.NewVocabulary(t), TextInfo: serve.Info{Name: b.file.Name(), Root: path,
		Device: b.device.Info().Name, Context: m.Longest(), Rows: 1, Created: time.Now(), Cache: "none"},
		Free: func() error { return errlist.Join(free(), b.close()) }}, nil
}

func servedTokenizer(b *bundle, path string) (t *tokenizer.Tokenizer, err error) {
	switch {
	case path != "":
		return openTokenizer(path)
	case b.source != nil:
		t, err = tokenizerOf(b.source)
	}
	if err == nil && t == nil {
		err = errors.New("no tokenizer lies with the weights; name one by --tokenizer")
	}
	return t, err
}

// servedChat finds how conversations are written: the model's own chat template, or the one that is named.
func servedChat(b *bundle, named string, tok *tokenizer.Tokenizer) (serve.Chat, error) {
	own, err := &template.Set{Tokens: map[string]string{}}, error(&template.None{})
	if b.source != nil {
		own, err = template.FromSource(b.source)
	}
	set, err := replaceTemplates(own, err, named)
	var none *template.None
	switch {
	case errors.As(err, &none):
		return nil, nil // chats are refused, texts continued
	case err != nil:
		return nil, err
	}
	nameTokens(set, tok)
	return serve.NewTemplateChat(set)
}
