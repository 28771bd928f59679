package bridge

// Texts: a batch of prompts through the model's scheduler, their tokens streamed as they come.

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"

	"github.com/greta-project/greta/serve"
	"github.com/greta-project/greta/tokenizer"
)

// prompt is one text to continue: Text or Tokens.
type prompt struct {
	Text   *string `json:"text"`
	Tokens ids     `json:"tokens"`
}

// generateArgs are those of generate. Options have the names and the meaning that greta run's flags have.
type generateArgs struct {
	Model            uint64            `json:"model"`
	Prompts          []prompt          `json:"prompts"`
	Max              *int              `json:"max_tokens"` // null: defaultMax, or what the context has room for
	Choices          int               `json:"choices"`
	Temperature      float64           `json:"temperature"`
	TopK             int               `json:"top_k"`
	TopP             float64           `json:"top_p"`
	MinP             float64           `json:"min_p"`
	TypicalP         float64           `json:"typical_p"`
	RepeatPenalty    float64           `json:"repeat_penalty"`
	FrequencyPenalty float64           `json:"frequency_penalty"`
	PresencePenalty  float64           `json:"presence_penalty"`
	LogitBias        map[int32]float32 `json:"logit_bias"`
	Seed             uint64            `json:"seed"`
	Stops            texts             `json:"stop"`
	IgnoreEnd        bool              `json:"ignore_eos"`
	MinTokens        int               `json:"min_tokens"`
	Logprobs         int               `json:"logprobs"`
	Special          bool              `json:"special"` // control tokens in prompts are read as tokens
	BOS              *bool             `json:"bos"`     // a begin token before texts, where the model has one; null: yes
	Adapter          string            `json:"adapter"`
	Priority         int               `json:"priority"`
	Schema           json.RawMessage   `json:"schema"`
	JSON             bool              `json:"json"`
	Regex            string            `json:"regex"`
	Choice           texts             `json:"choice"`
	Grammar          string            `json:"grammar"`
}

// piece is what a token adds to an answer.
type piece struct {
	Prompt  int          `json:"p"`
	Choice  int          `json:"c"`
	Token   int32        `json:"t"` // -1: none, text that was held back
	Text    string       `json:"s"`
	Logprob *float32     `json:"lp,omitempty"`
	Top     [][2]float64 `json:"top,omitempty"` // token, its log-probability
}

// answered is the end of an answer.
type answered struct {
	Prompt       int     `json:"prompt"`
	Choice       int     `json:"choice"`
	Stop         string  `json:"stop"` // end, max, stop, context
	StopText     string  `json:"stop_text,omitempty"`
	PromptTokens []int32 `json:"prompt_tokens,omitempty"` // of a text's first choice
	Cached       int     `json:"cached"`
	QueueMS      float64 `json:"queue_ms"`
	PrefillMS    float64 `json:"prefill_ms"`
	DecodeMS     float64 `json:"decode_ms"`
}

// defaultMax is how many tokens an answer has at most where nobody says so and the context has room.
const defaultMax = 256

// max is how many tokens an answer has at most where so many fit; 0: until the context is full.
func (a *generateArgs) max(room int) int {
	if a.Max != nil {
		return *a.Max
	}
	return max(0, min(defaultMax, room))
}

// asked is max where there is always room.
func (a *generateArgs) asked() int { return a.max(math.MaxInt) }

func (a *generateArgs) check() error {
	switch {
	case len(a.Prompts) == 0:
		return usagef("generate: there is no prompt")
	case a.Max != nil && *a.Max < 0 || a.Choices < 0 || a.MinTokens < 0 || a.Logprobs < 0:
		return usagef("max_tokens is %d, choices %d, min_tokens %d, logprobs %d: they must be 0 or more", a.asked(),
			a.Choices,
			a.MinTokens, a.Logprobs)
	}
	for _, stop := range a.Stops {
		if stop == "" {
			return usagef("a stop text is empty")
		}
	}
	forms := 0
	for _, there := range []bool{len(a.Schema) > 0, a.JSON, a.Regex != "", len(a.Choice) > 0, a.Grammar != ""} {
		if there {
			forms++
		}
	}
	if forms > 1 {
		return usagef("schema, json, regex, choice and grammar exclude each other")
	}
	return nil
}

// constraint is the form that answers must have; nil: none.
func (a *generateArgs) constraint() *serve.Constraint {
	c := &serve.Constraint{Schema: a.Schema, JSON: a.JSON, Regex: a.Regex, Choice: a.Choice, Grammar: a.Grammar}
	if len(a.Schema) == 0 && !a.JSON && a.Regex == "" && len(a.Choice) == 0 && a.Grammar == "" {
		return nil
	}
	return c
}

// generate answers a batch of prompts.
func (s *server) generate(ctx context.Context, q *request) error {
	var a generateArgs
	if err := strict(q.args, &a); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	m, ctx, done, err := s.use(ctx, q, a.Model)
	if err != nil {
		return err
	}
	defer done()
	many, err := m.sequences()
	if err != nil {
		return err
	}
	g := &generation{q: q, args: &a, model: many, text: many.Text(), pieces: make(chan piece, 256)}
	if err := g.encode(m); err != nil {
		return err
	}
	if c := a.constraint(); c != nil {
		if g.mask, err = many.Constrain(*c); err != nil {
			return err
		}
	}
	if err := g.run(ctx); err != nil {
		return err
	}
	return q.ok(map[string]any{"answers": g.answers}, nil)
}

// generation is a batch under way.
type generation struct {
	q      *request
	args   *generateArgs
	model  serve.Model
	text   serve.Tokens
	ids    [][]int32
	mask   func() (serve.Mask, error)
	pieces chan piece

	mu      sync.Mutex
	answers []answered
}

// encode makes tokens of the prompts.
func (g *generation) encode(m *loaded) error {
	v := m.info.Vocabulary
	for id := range g.args.LogitBias {
		if id < 0 || int(id) >= v {
			return usagef("logit_bias has token %d, the vocabulary has %d", id, v)
		}
	}
	for i, p := range g.args.Prompts {
		ids := p.Tokens
		if (p.Text == nil) == (ids == nil) {
			return usagef("prompt %d: text or tokens are expected, one of both", i)
		}
		if p.Text != nil {
			t, err := m.text()
			if err != nil {
				return err
			}
			if ids, err = t.Encode(*p.Text, g.args.BOS == nil || *g.args.BOS, g.args.Special); err != nil {
				return usagef("prompt %d: %v", i, err)
			}
		}
		if len(ids) == 0 {
			return usagef("prompt %d has no tokens, and an answer begins behind at least one", i)
		}
		for k, id := range ids {
			if id < 0 || int(id) >= v {
				return usagef("prompt %d: token %d is %d, the vocabulary has %d", i, k, id, v)
			}
		}
		g.ids = append(g.ids, ids)
	}
	if len(g.args.Stops) > 0 && m.Model.Text() == nil {
		return usagef("stop texts need a tokenizer: name one by the option tokenizer")
	}
	return nil
}

// run answers all prompts, and sends their pieces. The first error ends all.
func (g *generation) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	// Of a large batch some wait here, so that the scheduler's queue keeps room for other requests.
	room := make(chan struct{}, 256)
	go func() {
		for i := range g.ids {
			room <- struct{}{}
			group.Go(func() {
				defer func() { <-room }()
				err := g.q.s.guarded(ctx, func(*server, context.Context, *request) error { return g.one(ctx, i) }, g.q)
				if err != nil {
					if len(g.ids) > 1 && ctx.Err() == nil {
						err = fmt.Errorf("prompt %d: %w", i, err)
					}
					cancel(err)
				}
			})
		}
		group.Wait()
		close(g.pieces)
	}()
	var failed error
	for p := range g.pieces {
		batch := []piece{p}
		for more := true; more; { // what has come meanwhile goes along
			select {
			case next, ok := <-g.pieces:
				if more = ok; ok {
					batch = append(batch, next)
				}
			default:
				more = false
			}
		}
		if failed == nil {
			if failed = g.q.event(batch); failed != nil {
				cancel(failed)
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failed
}

// one answers one prompt.
func (g *generation) one(ctx context.Context, index int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a, ids := g.args, g.ids[index]
	choices, most := max(1, a.Choices), a.max(g.model.Info().Context-len(ids))
	handle, err := g.model.Generate(ctx, serve.Request{Prompt: ids, Max: most, Choices: choices, IgnoreEnd: a.IgnoreEnd,
		MinTokens: a.MinTokens, Logprobs: a.Logprobs, Mask: g.mask, Priority: a.Priority, Adapter: a.Adapter,
		Sampling: serve.Sampling{Temperature: a.Temperature, TopK: a.TopK, TopP: a.TopP, MinP: a.MinP, TypicalP: a.TypicalP,
			RepeatPenalty: a.RepeatPenalty, FrequencyPenalty: a.FrequencyPenalty, PresencePenalty: a.PresencePenalty,
			LogitBias: a.LogitBias, Seed: a.Seed}})
	if err != nil {
		return err
	}
	defer handle.Cancel()
	states := make([]*speaker, choices)
	for i := range states {
		states[i] = &speaker{decoder: g.text.Decoder(ids), stopper: tokenizer.NewStopper(a.Stops)}
	}
	left := choices
	for t, err := range handle.Tokens() {
		if err != nil {
			return err
		}
		st := states[t.Choice]
		if st.stop != "" {
			continue
		}
		p := st.take(g, t)
		p.Prompt = index
		g.pieces <- p
		if st.stop != "" {
			if left--; left == 0 {
				break
			}
			if h, ok := handle.(interface{ Stop(choice int) }); ok {
				h.Stop(t.Choice)
			}
		}
	}
	if err := ctx.Err(); err != nil && left > 0 {
		return err
	}
	g.end(index, states, handle.Result())
	return nil
}

// end sends what was held back, and notes how the answers ended.
func (g *generation) end(index int, states []*speaker, r serve.Result) {
	ms := func(d interface{ Microseconds() int64 }) float64 { return float64(d.Microseconds()) / 1e3 }
	for i, st := range states {
		a := answered{Prompt: index, Choice: i, Stop: st.stop, StopText: st.hit, Cached: r.Cached, QueueMS: ms(r.Queue),
			PrefillMS: ms(r.Prefill), DecodeMS: ms(r.Decode)}
		if i == 0 {
			a.PromptTokens = g.ids[index]
		}
		if st.hit == "" {
			if show, hit := st.rest(); show != "" || hit != "" {
				g.pieces <- piece{Prompt: index, Choice: i, Token: -1, Text: show}
				if hit != "" {
					a.Stop, a.StopText = "stop", hit
				}
			}
		}
		switch {
		case a.Stop != "":
		case g.args.asked() > 0 && st.tokens >= g.args.asked():
			a.Stop = "max"
		case i < len(r.Stops) && r.Stops[i] == "stop":
			a.Stop = "end"
		default:
			a.Stop = "context"
		}
		g.mu.Lock()
		g.answers = append(g.answers, a)
		g.mu.Unlock()
	}
}

// speaker is one answer in the making: its text up to a stop text.
type speaker struct {
	decoder serve.Decoder
	stopper *tokenizer.Stopper
	tokens  int
	stop    string // end or stop; "": it goes on
	hit     string
}

// take turns a token into text.
func (st *speaker) take(g *generation, t serve.Token) piece {
	st.tokens++
	p := piece{Choice: t.Choice, Token: t.ID}
	if g.args.Logprobs > 0 {
		p.Logprob = &t.Logprob
		for _, x := range t.Top {
			p.Top = append(p.Top, [2]float64{float64(x.ID), float64(x.Logprob)})
		}
	}
	if !g.args.IgnoreEnd && g.text.End(t.ID) {
		st.stop = "end"
		return p
	}
	if p.Text, st.hit = st.stopper.Push(st.decoder.Write(t.ID)); st.hit != "" {
		st.stop = "stop"
	}
	return p
}

// rest is what decoder and stopper held back.
func (st *speaker) rest() (show, hit string) {
	show, hit = st.stopper.Push(st.decoder.Flush())
	if hit == "" {
		show += st.stopper.Flush()
	}
	return show, hit
}
