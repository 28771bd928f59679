package chat

import (
	"context"
	"time"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/tokenizer"
)

// SessionRunner runs on one session of the engine, whose caches keep what two prompts begin with alike.
type SessionRunner struct {
	session *engine.Session
	rewinds bool // the caches can go back to any position
	size    int
	have    []int32 // tokens in the caches
}

// NewSessionRunner takes a session of an engine; it stays the caller's to close.
func NewSessionRunner(e *engine.Engine, s *engine.Session) *SessionRunner {
	return &SessionRunner{session: s, rewinds: e.Rewinds(), size: s.Pos() + s.Left()}
}

// Context is how many positions the caches have.
func (r *SessionRunner) Context() int { return r.size }

// Run continues tokens.
func (r *SessionRunner) Run(ctx context.Context, tokens []int32, o RunOptions) (Stats, error) {
	keep := 0
	for keep < len(tokens)-1 && keep < len(r.have) && tokens[keep] == r.have[keep] {
		keep++
	}
	// A recurrence goes on from where it is, or begins anew.
	if keep > r.session.Pos() || !r.rewinds && keep < r.session.Pos() || r.session.Rewind(keep) != nil {
		keep = 0
		r.session.Reset()
	}
	g, err := r.session.Generate(ctx, tokens[keep:], engine.Generation{
		Max: o.Max, Sampling: o.Sampling, End: o.End, Emit: o.Emit, Past: tokens[:keep],
	})
	all := append(append([]int32{}, tokens...), g.Tokens...)
	r.have = all[:min(r.session.Pos(), len(all))]
	if err != nil {
		r.have = nil
		r.session.Reset()
	}
	st := Stats{Prompt: len(tokens), Kept: keep, Tokens: len(g.Tokens), Prefill: g.Prefill, Stop: g.Stop}
	var decode time.Duration
	for _, d := range g.Steps {
		decode += d
	}
	st.Decode = decode
	return st, err
}

// TokenizerText is a tokenizer as a conversation needs it.
type TokenizerText struct{ *tokenizer.Tokenizer }

// NewDecoder begins a text.
func (t TokenizerText) NewDecoder() Decoder { return t.Tokenizer.NewDecoder() }
