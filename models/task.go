package models

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph/lang"
	"gopkg.in/yaml.v3"
)

// Tasks of models whose results are no logits of a next token.
const (
	Embed = "embed" // a vector of each text
	Score = "score" // a score of each text, or pair of texts
)

// said is something under text:.
type said struct {
	name text
	expr
}

// saids are the names that text: knows.
var saids = []string{"longest", "ends", "pooling", "pair", "yes", "no", "spread"}

func (r *reader) task(v *yaml.Node) {
	if v == nil {
		return
	}
	t, ok := r.scalar(v, "a task")
	switch {
	case !ok:
	case r.f.block:
		r.failNode(v, "task: belongs to a model")
	case t.string != Embed && t.string != Score:
		r.add(r.fail(t, 0, "unknown task %s: there are %s and %s; a model of a next token's logits has none", t.string, Embed,
			Score))
	default:
		r.f.task = t.string
	}
}

func (r *reader) said(name text, v *yaml.Node) {
	t, ok := r.scalar(v, "an expression")
	if !slices.Contains(saids, name.string) {
		r.add(r.fail(name, 0, "unknown name %s%s: text: says %s", name.string, didYouMean(name.string, saids),
			strings.Join(saids, ", ")))
		return
	}
	if !ok {
		return
	}
	if e, ok := r.expr(t); ok {
		r.f.says = append(r.f.says, said{name, e})
	}
}

// Task is what the model's results are: Embed, Score, or empty for logits of a next token.
func (f *File) Task() string { return f.task }

// TextFacts are what a model file says under text:.
type TextFacts struct {
	Longest int      // tokens that a text has at most; 0: not said
	Ends    bool     // a text ends with the token for that, also where the tokenizer puts none there
	Pooling string   // mean, cls or last; empty: not said
	Pair    []string // the texts that a query and a document become, each cut into tokens for itself; empty: none
	Yes, No string   // the tokens whose logits a score compares, of yes alone where no is empty; empty: it is the result
	Spread  string   // sigmoid where scores become ones between 0 and 1 by it; empty: as they are
}

// TextFacts evaluates text: for weights.
func (f *File) TextFacts(o Options) (*TextFacts, error) {
	var es errs
	o.defaults()
	s := newScope(&es, f, &o, f.standalone(), nil)
	facts := &TextFacts{}
	words := map[string]*string{"pooling": &facts.Pooling, "yes": &facts.Yes, "no": &facts.No, "spread": &facts.Spread}
	for _, say := range f.says {
		v, ok := s.eval(say.text, say.tree, say.name.string+": ")
		if !ok || v == nil {
			continue
		}
		if say.name.string == "longest" {
			n, isNumber := v.(float64)
			if !isNumber || n < 1 || n != math.Trunc(n) || n > math.MaxInt32 {
				es.add(f.fail(say.text, 0, "longest: %s is no number of tokens", lang.Format(v)))
				continue
			}
			facts.Longest = int(n)
			continue
		}
		if say.name.string == "ends" {
			ends, isBool := v.(bool)
			if !isBool {
				es.add(f.fail(say.text, 0, "ends: true or false is wanted here, not %s", lang.Format(v)))
			}
			facts.Ends = ends
			continue
		}
		list, isList := v.([]lang.Val)
		if !isList || say.name.string != "pair" {
			list = []lang.Val{v}
		}
		for _, v := range list {
			word, isWord := v.(string)
			switch {
			case !isWord:
				es.add(f.fail(say.text, 0, "%s: a word is wanted here, not %s", say.name.string, lang.Format(v)))
			case say.name.string != "pair":
				*words[say.name.string] = word
			case word != "":
				facts.Pair = append(facts.Pair, word)
			}
		}
		if n := strings.Count(strings.Join(facts.Pair, ""), "{document}"); len(facts.Pair) > 0 && n != 1 {
			es.add(f.fail(say.text, 0, "pair: {document} stands in it %d times; it must once", n))
			facts.Pair = nil
		}
	}
	if err := es.err(); err != nil {
		return nil, err
	}
	if p := facts.Pooling; p != "" && !slices.Contains(Poolings, p) {
		return nil, fmt.Errorf("%s: pooling: %q: there are %s", f.path, p, strings.Join(Poolings, ", "))
	}
	return facts, nil
}

// Poolings are the ways in which rows become one: their mean, the first, the last.
var Poolings = []string{"mean", "cls", "last"}
