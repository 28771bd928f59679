// Forms of answers: constraints compiled for a vocabulary, the last ones kept.

package serve

import (
	"encoding/json"
	"errors"
	"sync"

	"github.com/greta-project/greta/grammar"
	"github.com/greta-project/greta/tokenizer"
)

// GrammarMasks makes masks by package grammar.
type GrammarMasks struct {
	tokenizer *tokenizer.Tokenizer
	once      sync.Once
	vocab     *grammar.Vocabulary

	mu    sync.Mutex
	known map[string]*grammar.Grammar
	order []string
}

// NewGrammarMasks makes masks for a tokenizer's vocabulary, which is read when it is first needed.
func NewGrammarMasks(t *tokenizer.Tokenizer) *GrammarMasks {
	return &GrammarMasks{tokenizer: t, known: map[string]*grammar.Grammar{}}
}

// mostGrammars is how many compiled ones are kept.
const mostGrammars = 64

// source translates a constraint.
func (c *Constraint) source() (grammar.Source, grammar.Options) {
	// No blanks, and the schema's order: a model that is unsure could write blanks until its tokens are used up.
	o := grammar.Options{Compact: true, Ordered: true}
	if o.Lead = c.Thoughts; o.Lead[0] == "" {
		o.After, o.Lead = o.Lead[1], [2]string{}
	}
	switch {
	case c.Calls != nil:
		for _, s := range c.Calls.Shapes {
			if s.Open == "" {
				return s.source(), o
			}
			o.Triggers = append(o.Triggers, grammar.Trigger{Begin: s.Open, Body: s.source(), End: s.Close})
		}
		o.Group = c.Calls.Group
		o.Must, o.Once = c.Calls.Must, c.Calls.Once
		o.NotInText, o.NotBefore = c.Calls.NotInText, c.Calls.NotInThoughts
		o.Direct, o.Lead, o.Between = c.Calls.Must || c.Calls.Else != nil, c.Calls.Lead, c.Calls.Between
		if c.Calls.Else == nil {
			return grammar.Source{}, o
		}
		src, _ := c.Calls.Else.source()
		return src, o
	case c.Schema != nil:
		return grammar.Schema(string(c.Schema)), o
	case c.JSON:
		return grammar.Schema(`{"type": "object"}`), o
	case c.Regex != "":
		return grammar.Regex(c.Regex), o
	case len(c.Choice) > 0:
		return grammar.Choice(c.Choice...), o
	}
	return grammar.GBNF(c.Grammar), o
}

// source is what stands between a call's texts.
func (s *CallShape) source() grammar.Source {
	if p := s.Params; p != nil {
		return grammar.Params(string(s.Schema), grammar.Tags{Open: p.Open, Text: p.Text, Value: p.Value,
			NameEnd: p.NameEnd, End: p.End, Lines: p.Lines, Types: p.Types, Others: p.Others})
	}
	if p := s.Python; p != nil {
		calls := make([]grammar.Call, len(p.Tools))
		for i, t := range p.Tools {
			calls[i] = grammar.Call{Name: t.Name, Schema: string(t.Schema)}
		}
		return grammar.Python(calls, p.Several)
	}
	return grammar.Schema(string(s.Schema))
}

// Constrain compiles a constraint, or finds it among the last ones.
func (g *GrammarMasks) Constrain(c Constraint) (func() (Mask, error), error) {
	g.once.Do(func() { g.vocab = grammar.NewVocabulary(g.tokenizer) })
	name, err := json.Marshal(c)
	if err != nil {
		return nil, badRequest("response_format", "the schema is not JSON: "+err.Error())
	}
	g.mu.Lock()
	made := g.known[string(name)]
	g.mu.Unlock()
	if made == nil {
		source, options := c.source()
		if made, err = grammar.Compile(g.vocab, source, options); err != nil {
			var refused *grammar.Refused
			if errors.As(err, &refused) || grammar.TooComplex(err) {
				return nil, &Unsupported{"response_format", err.Error()}
			}
			return nil, badRequest("response_format", err.Error())
		}
		g.mu.Lock()
		g.known[string(name)] = made
		if g.order = append(g.order, string(name)); len(g.order) > mostGrammars {
			delete(g.known, g.order[0])
			g.order = g.order[1:]
		}
		g.mu.Unlock()
	}
	return func() (Mask, error) { return made.NewMask(), nil }, nil
}
