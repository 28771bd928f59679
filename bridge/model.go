package bridge

// Models: loading them, and what is asked of one beside texts.

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/serve"
)

// Info is what a model says of itself when it is loaded.
type Info struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"` // model, block, or embed: a model of vectors
	Source      string `json:"source"`
	Format      string `json:"format"`
	Backend     string `json:"backend"`
	Device      string `json:"device"`
	DType       string `json:"dtype"`
	KV          string `json:"kv"`
	Context     int    `json:"context"`
	Vocabulary  int    `json:"vocabulary"` // 0: a block
	Width       int    `json:"width"`      // of a block's rows or of vectors; 0: a model
	Output      int    `json:"output"`     // width of a block's output; 0: no block
	WeightBytes int    `json:"weight_bytes"`
	Tokenizer   bool   `json:"tokenizer"`
	Chat        bool   `json:"chat_template"`
	BOS         int    `json:"bos"` // -1: none
	Ends        []int  `json:"ends"`
}

// Model is a loaded model, as Options.Load gives it.
type Model interface {
	Info() Info
	Engine() *engine.Engine
	// Text is nil where there is no tokenizer.
	Text() serve.Tokens
	// Embed turns texts into vectors, where the model is one of those.
	Embed(ctx context.Context, texts []string, o EmbedOptions) ([]Vector, error)
	// Many gives the model to many sequences at once; it is called once, before the first text.
	Many() (serve.Model, error)
	// Check compares the model with the float64 reference.
	Check(ctx context.Context, tokens []int32, tolerance float64) (any, error)
	// Plan prints a step of so many tokens at a stage, as greta dump does.
	Plan(stage, format string, tokens int) (string, error)
	// Close is called when nothing uses the model any more, behind that of Many's.
	Close() error
}

// EmbedOptions say how texts become vectors.
type EmbedOptions struct {
	Normalize  bool   `json:"normalize"`   // vectors of length 1, also where the model's files do not ask for it
	Dimensions int    `json:"dimensions"`  // keep the first so many values; 0: all
	Prompt     string `json:"prompt"`      // name of a text that the model's files put before each
	NoTruncate bool   `json:"no_truncate"` // a text that is too long is an error
}

// Vector is a text's.
type Vector struct {
	Values      []float32
	Tokens, Cut int // tokens that were read, and that were left out
}

// loaded is a model with what uses it.
type loaded struct {
	Model
	info Info

	many struct {
		sync.Once
		model serve.Model
		err   error
	}
	mu      sync.Mutex
	cancels map[*request]context.CancelFunc
	users   sync.WaitGroup
	closed  bool
	spare   []*engine.Session // for logits
	open    []*session
	kept    map[uint64]*lent // memory of a GPU that stays open, by its descriptor's number
}

var errClosed = errors.New("the model is closed")

// load loads a model.
func (s *server) load(ctx context.Context, q *request) error {
	var a struct {
		Path    string                     `json:"path"`
		Options map[string]json.RawMessage `json:"options"`
	}
	if err := strict(q.args, &a); err != nil {
		return err
	}
	if a.Path == "" {
		return usagef("load: path is missing")
	}
	m, err := s.opt.Load(ctx, a.Path, a.Options)
	if err != nil {
		return err
	}
	l := &loaded{Model: m, info: m.Info(), cancels: map[*request]context.CancelFunc{}, kept: map[uint64]*lent{}}
	s.mu.Lock()
	if s.models == nil || ctx.Err() != nil {
		s.mu.Unlock()
		return errlist.Join(context.Canceled, m.Close())
	}
	s.lastID++
	id := s.lastID
	s.models[id] = l
	s.mu.Unlock()
	return q.ok(map[string]any{"model": id, "info": l.info}, nil)
}

// readModel reads a request's arguments and finds the model that one of them names; the request
// must call done at its end.
func (s *server) readModel(ctx context.Context, q *request, args any, model *uint64) (*loaded, context.Context, func(),
	error) {
	if err := strict(q.args, args); err != nil {
		return nil, nil, nil, err
	}
	return s.use(ctx, q, *model)
}

// use finds a model for a request, which must call done at its end.
func (s *server) use(ctx context.Context, q *request, id uint64) (_ *loaded, _ context.Context, done func(),
	err error) {
	m := q.model
	if m == nil { // a session's
		s.mu.Lock()
		m = s.models[id]
		s.mu.Unlock()
	}
	if m == nil {
		return nil, nil, nil, usagef("there is no model %d: it was not loaded, or is closed", id)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.model = m; m.closed { // behind this request
		return nil, nil, nil, context.Canceled
	}
	ctx, cancel := context.WithCancel(ctx)
	m.cancels[q] = cancel
	m.users.Add(1)
	return m, ctx, func() {
		cancel()
		m.mu.Lock()
		delete(m.cancels, q)
		m.mu.Unlock()
		m.users.Done()
	}, nil
}

// unload closes a model; what is under way with it is cancelled.
func (s *server) unload(_ context.Context, q *request) error {
	var a struct {
		Model uint64 `json:"model"`
	}
	if err := strict(q.args, &a); err != nil {
		return err
	}
	s.mu.Lock()
	m := s.models[a.Model]
	delete(s.models, a.Model)
	for id, u := range s.sessions {
		if u.model == m {
			delete(s.sessions, id)
		}
	}
	s.mu.Unlock()
	if m == nil {
		return usagef("there is no model %d: it was not loaded, or is closed already", a.Model)
	}
	if err := m.close(); err != nil {
		return err
	}
	return q.ok(nil, nil)
}

// close cancels what uses the model, waits for its end and frees it.
func (m *loaded) close() error {
	m.mu.Lock()
	m.closed = true
	for _, cancel := range m.cancels {
		cancel()
	}
	m.mu.Unlock()
	m.users.Wait()
	var errs []error
	errs = append(errs, m.endSessions())
	for _, l := range m.kept {
		errs = append(errs, m.Engine().CloseShared(l.Buffer))
	}
	for _, s := range m.spare {
		errs = append(errs, s.Close())
	}
	m.many.Do(func() { m.many.err = errClosed })
	if m.many.model != nil {
		errs = append(errs, m.many.model.Close())
	}
	return errlist.Join(append(errs, m.Model.Close())...)
}

// isClosed says whether the model was closed.
func (m *loaded) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// sequences gives the model as one of many sequences.
func (m *loaded) sequences() (serve.Model, error) {
	switch m.info.Kind {
	case "block":
		return nil, usagef("%s is a block: it takes activations, not texts (op run-session)", m.info.Name)
	case "embed":
		return nil, usagef("%s gives vectors of texts, no next tokens (op embed)", m.info.Name)
	}
	m.many.Do(func() { m.many.model, m.many.err = m.Model.Many() })
	return m.many.model, m.many.err
}

// text gives the tokenizer, or says that there is none.
func (m *loaded) text() (serve.Tokens, error) {
	t := m.Model.Text()
	if t == nil {
		return nil, usagef("no tokenizer lies with %s: name one by the option tokenizer, or give token ids", m.info.Source)
	}
	return t, nil
}

// tokenize turns texts into ids.
func (s *server) tokenize(ctx context.Context, q *request) error {
	var a struct {
		Model   uint64 `json:"model"`
		Texts   texts  `json:"texts"`
		BOS     bool   `json:"bos"`
		Special bool   `json:"special"`
	}
	m, _, done, err := s.readModel(ctx, q, &a, &a.Model)
	if err != nil {
		return err
	}
	defer done()
	t, err := m.text()
	if err != nil {
		return err
	}
	all := make([][]int32, len(a.Texts))
	for i, text := range a.Texts {
		if all[i], err = t.Encode(text, a.BOS, a.Special); err != nil {
			return usagef("text %d: %v", i, err)
		}
		if all[i] == nil {
			all[i] = []int32{}
		}
	}
	return q.ok(map[string]any{"tokens": all}, nil)
}

// detokenize turns ids into texts.
func (s *server) detokenize(ctx context.Context, q *request) error {
	var a struct {
		Model  uint64 `json:"model"`
		Tokens []ids  `json:"tokens"`
		Pieces bool   `json:"pieces"` // each token alone, control tokens as they are written
	}
	m, _, done, err := s.readModel(ctx, q, &a, &a.Model)
	if err != nil {
		return err
	}
	defer done()
	t, err := m.text()
	if err != nil {
		return err
	}
	whole, pieces := make([]string, 0, len(a.Tokens)), make([][]string, 0, len(a.Tokens))
	for i, tokens := range a.Tokens {
		for _, id := range tokens {
			if id < 0 || int(id) >= t.Vocabulary() {
				return usagef("tokens %d: there is no token %d, the tokenizer has %d", i, id, t.Vocabulary())
			}
		}
		if !a.Pieces {
			whole = append(whole, t.Decode(tokens))
			continue
		}
		alone := make([]string, len(tokens))
		for k, id := range tokens {
			alone[k] = t.Piece(id)
		}
		pieces = append(pieces, alone)
	}
	if a.Pieces {
		return q.ok(map[string]any{"pieces": pieces}, nil)
	}
	return q.ok(map[string]any{"texts": whole}, nil)
}

// chat writes a conversation as the model's prompt.
func (s *server) chat(ctx context.Context, q *request) error {
	var a struct {
		Model    uint64 `json:"model"`
		Messages []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"messages"`
		Continue  bool                       `json:"continue"`
		Variables map[string]json.RawMessage `json:"variables"`
	}
	m, _, done, err := s.readModel(ctx, q, &a, &a.Model)
	if err != nil {
		return err
	}
	defer done()
	many, err := m.sequences()
	if err != nil {
		return err
	}
	if many.Chat() == nil {
		return usagef("%s has no chat template", m.info.Source)
	}
	var messages []serve.Message
	for _, one := range a.Messages {
		messages = append(messages, serve.Message{Role: one.Role, Content: one.Content})
	}
	prompt, err := many.Chat().Prompt(messages, serve.ChatOptions{Continue: a.Continue, Variables: a.Variables})
	if err != nil {
		return usagef("%v", err)
	}
	ids, err := many.Text().EncodeChat(prompt)
	if err != nil {
		return usagef("%v", err)
	}
	return q.ok(map[string]any{"prompt": prompt, "tokens": ids}, nil)
}

// check compares a model with the reference.
func (s *server) check(ctx context.Context, q *request) error {
	var a struct {
		Model     uint64  `json:"model"`
		Tokens    ids     `json:"tokens"`
		Tolerance float64 `json:"tolerance"`
	}
	m, ctx, done, err := s.readModel(ctx, q, &a, &a.Model)
	if err != nil {
		return err
	}
	defer done()
	r, err := m.Check(ctx, a.Tokens, a.Tolerance)
	if err != nil {
		return err
	}
	return q.ok(r, nil)
}

// plan prints a stage between file and launches.
func (s *server) plan(ctx context.Context, q *request) error {
	a := struct {
		Model  uint64 `json:"model"`
		Stage  string `json:"stage"`
		Format string `json:"format"`
		Tokens int    `json:"tokens"`
	}{Stage: "plan", Format: "text", Tokens: 1}
	m, _, done, err := s.readModel(ctx, q, &a, &a.Model)
	if err != nil {
		return err
	}
	defer done()
	text, err := m.Plan(a.Stage, a.Format, a.Tokens)
	if err != nil {
		return err
	}
	return q.ok(map[string]any{"text": text}, nil)
}

// embed turns texts into vectors.
func (s *server) embed(ctx context.Context, q *request) error {
	var a struct {
		Model uint64 `json:"model"`
		Texts texts  `json:"texts"`
		EmbedOptions
	}
	m, ctx, done, err := s.readModel(ctx, q, &a, &a.Model)
	if err != nil {
		return err
	}
	defer done()
	switch {
	case m.info.Kind != "embed":
		return usagef("%s was loaded for next tokens, not for vectors: load it with the option task=embed", m.info.Name)
	case len(a.Texts) == 0:
		return usagef("embed: there is no text")
	case a.Dimensions < 0 || a.Dimensions > m.info.Width:
		return usagef("dimensions is %d, the model's vectors have %d", a.Dimensions, m.info.Width)
	}
	vectors, err := m.Embed(ctx, a.Texts, a.EmbedOptions)
	if err != nil {
		return err
	}
	r, err := s.newResult(len(vectors), len(vectors[0].Values))
	if err != nil {
		return err
	}
	tokens, cut := make([]int, len(vectors)), make([]int, len(vectors))
	for i, v := range vectors {
		copy(r.data[i*len(v.Values):], v.Values)
		tokens[i], cut[i] = v.Tokens, v.Cut
	}
	return s.send(q, map[string]any{"embeddings": &r.Tensor, "tokens": tokens, "cut": cut}, r)
}

// bench runs greta bench and gives the rows of its results.
func (s *server) bench(ctx context.Context, q *request) error {
	var a struct {
		Args []string `json:"args"`
	}
	if err := strict(q.args, &a); err != nil {
		return err
	}
	form, serving := "--output=json", len(a.Args) > 0 && a.Args[0] == "serve"
	if serving { // whose --output says how long answers are
		form = "--json"
	}
	out, err := s.opt.Command(ctx, append(append([]string{"bench"}, a.Args...), form))
	rows := json.RawMessage("[]")
	if serving {
		var loads struct{ Levels json.RawMessage }
		if json.Unmarshal(out, &loads) == nil && len(loads.Levels) > 0 {
			rows = loads.Levels
		}
	} else if len(out) > 0 && json.Valid(out) {
		rows = out
	}
	if err != nil { // what was measured by then is told all the same
		return errlist.Join(err, q.event(map[string]any{"rows": rows}))
	}
	return q.ok(map[string]any{"rows": rows}, nil)
}

// command runs a verb that is one of commands, and gives what it prints.
func (s *server) command(ctx context.Context, q *request) error {
	var a struct {
		Args []string `json:"args"`
	}
	if err := strict(q.args, &a); err != nil {
		return err
	}
	if len(a.Args) == 0 || !commands[a.Args[0]] {
		return usagef("command: the first argument is one of bench, compare, devices, export, gate, history, import, " +
			"ops, schema, version")
	}
	out, err := s.opt.Command(ctx, a.Args)
	if err != nil {
		return errlist.Join(err, q.event(map[string]any{"text": string(out)}))
	}
	return q.ok(map[string]any{"text": string(out)}, nil)
}

// commands are the verbs that look at results or the machine, read no standard input, and end by themselves.
var commands = map[string]bool{"bench": true, "compare": true, "devices": true, "export": true, "gate": true,
	"history": true, "import": true, "ops": true, "schema": true, "version": true}

// class finds the class of an error of serve's.
func class(err error) string {
	var e *serve.Error
	var long *serve.TooLong
	var full *serve.Full
	var un *serve.Unsupported
	var room *engine.TooLong
	var apart *engine.NotShared
	switch {
	case errors.As(err, &e) && e.Status == 400, errors.As(err, &long), errors.As(err, &room):
		return codeUsage
	case errors.As(err, &full):
		return codeBusy
	case errors.As(err, &un), errors.As(err, &apart):
		return codeUnsupported
	}
	return ""
}

// Bare is the vocabulary of a model without a tokenizer: its tokens are numbers.
type Bare int

// Encode refuses: there is no text.
func (b Bare) Encode(string, bool, bool) ([]int32, error) {
	return nil, errors.New("there is no tokenizer: give token ids")
}

// EncodeChat refuses as well.
func (b Bare) EncodeChat(text string) ([]int32, error) { return b.Encode(text, false, true) }

// Decode writes the numbers.
func (b Bare) Decode(ids []int32) string {
	text := ""
	for i, id := range ids {
		if i > 0 {
			text += " "
		}
		text += b.Piece(id)
	}
	return text
}

// Decoder gives no text.
func (b Bare) Decoder([]int32) serve.Decoder { return mute{} }

// Piece writes the number.
func (b Bare) Piece(id int32) string { return strconv.Itoa(int(id)) }

// Control says no.
func (b Bare) Control(int32) bool { return false }

// End says no: nothing is known of these tokens.
func (b Bare) End(int32) bool { return false }

// Ends are none.
func (b Bare) Ends() []int32 { return nil }

// Vocabulary is the number of tokens.
func (b Bare) Vocabulary() int { return int(b) }

type mute struct{}

func (mute) Write(int32) string { return "" }
func (mute) Flush() string      { return "" }
