// Package grammar constrains what a model writes: to a JSON schema, a grammar in
// GBNF, a regular expression, a choice of texts, or any JSON. It gives, for each
// step, the set of tokens of a vocabulary that may come next.
package grammar

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Options say how a grammar is written where a source leaves it open.
type Options struct {
	// Compact writes JSON without whitespace, fixed texts without needless
	// escapes, and numbers of an enum as the schema spells them. Without it any
	// JSON spelling of a valid value is accepted.
	Compact bool
	// Ordered writes the properties that a schema names in its order, before
	// others. Without it members come in any order.
	Ordered bool
	// MaxWork bounds what a grammar may cost, in steps of construction of its
	// automata; 0: 4 million.
	MaxWork int
	// After, where it is not empty, lets free text come first, until this tag:
	// a model's reasoning up to "</think>". The tag may be a special token.
	After string
	// Triggers make the grammar lazy: text is free until the Begin of one of
	// them, from there its Body rules, then End must follow. Then text is free
	// again. A source that Compile is given beside them is what the text may be
	// instead, which needs Direct.
	Triggers []Trigger
	// Group is what begins and ends several triggers together: Begin, Body and End of one or more stand between.
	Group [2]string
	// Direct keeps free text away from triggers: white space and Between alone
	// come before, between and after them.
	Direct bool
	// Lead lets one text between its two tags come first, where there is no After: before a source, and before the
	// first trigger where they are Direct.
	Lead    [2]string
	Between []string
	// Once lets nothing but the end follow the first trigger's End; Must lets
	// the text not end before one.
	Once, Must bool
	// NotInText are texts, or names of special tokens, that the free text around triggers does not have, beside their
	// Begins; NotBefore those that the text before After does not have.
	NotInText, NotBefore []string
}

// Trigger is a part of a free text that is constrained.
type Trigger struct {
	Begin string // a text or the name of a special token
	Body  Source
	End   string // "": none
}

// Source is what to constrain to. Make one with Schema, Params, Python, GBNF, Regex, Choice or JSON.
type Source struct {
	kind    string
	text    string
	texts   []string
	tags    *Tags
	calls   []Call
	several bool
}

// Schema constrains to the JSON values that are valid under a JSON schema.
func Schema(text string) Source { return Source{kind: "schema", text: text} }

// JSON constrains to any JSON value.
func JSON() Source { return Source{kind: "schema", text: "true"} }

// GBNF constrains to a grammar in llama.cpp's notation, beginning with its rule root.
func GBNF(text string) Source { return Source{kind: "gbnf", text: text} }

// Regex constrains to the texts that an ECMA-262 expression matches from end to end.
func Regex(pattern string) Source { return Source{kind: "regex", text: pattern} }

// Choice constrains to one of several texts.
func Choice(texts ...string) Source { return Source{kind: "choice", texts: texts} }

// catch turns the panic of an exhausted budget into an error.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case tooComplex:
		*err = fmt.Errorf("grammar: %w", r)
	default:
		panic(r)
	}
}

// TooComplex says whether an error is about a grammar that exceeds its bounds.
func TooComplex(err error) bool { var e tooComplex; return errors.As(err, &e) }

// build makes the machine of a source.
func build(src Source, opt Options, special func(string) (int32, bool)) (m *machine, err error) {
	defer catch(&err)
	most := opt.MaxWork
	if most == 0 {
		most = 4_000_000
	}
	m = newMachine(newArena(most))
	m.a.plain = opt.Compact
	b := &builder{m: m, opt: opt, special: special}
	root, err := b.text(src)
	if err != nil {
		return nil, err
	}
	m.begin(root)
	if m.start == dead {
		return nil, errors.New("grammar: nothing matches it")
	}
	return m, nil
}

// builder assembles the rules of a grammar.
type builder struct {
	m       *machine
	opt     Options
	special func(string) (int32, bool)
}

// rule makes an empty rule and its first state.
func (b *builder) rule() (rule, first int32) {
	rule = int32(len(b.m.rules))
	first = b.m.fixed(rule)
	b.m.rules = append(b.m.rules, first)
	return rule, first
}

// source reads a source and gives a function that makes its rule, to be called
// after every source was read.
func (b *builder) source(src Source) (func() (int32, error), error) {
	a := b.m.a
	one := func(r rx) func() (int32, error) {
		return func() (int32, error) {
			rule, first := b.rule()
			end := b.m.fixed(rule)
			b.m.states[end].final = true
			b.m.states[first].terms = []term{{r, end}}
			if !a.alive(r) {
				return 0, errors.New("grammar: nothing matches it")
			}
			return rule, nil
		}
	}
	switch src.kind {
	case "schema":
		return b.schema(src.text)
	case "params":
		return b.params(src.text, src.tags)
	case "python":
		return b.python(src.calls, src.several)
	case "regex":
		r, err := a.wholePattern(src.text)
		if err != nil {
			return nil, err
		}
		return one(r), nil
	case "choice":
		if len(src.texts) == 0 {
			return nil, errors.New("grammar: a choice of no texts")
		}
		_, id := a.trie(src.texts)
		return one(a.oneOf(id, nil)), nil
	case "gbnf":
		return b.gbnf(src.text)
	}
	return nil, errors.New("grammar: no source; use Schema, GBNF, Regex, Choice or JSON")
}

func (b *builder) schema(text string) (func() (int32, error), error) {
	root, err := parseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	c := newCompiler(b.m.a, root, b.opt)
	return func() (int32, error) {
		place := c.place([]lit{c.is(root)})
		if err := c.explore(); err != nil {
			return 0, err
		}
		if !c.nodes[place].live {
			return 0, refuse(c.root, "schema", "no value is valid")
		}
		inner := b.m.addSchema(c, place)
		if c.ws == rxEps {
			return inner, nil
		}
		rule, first := b.rule()
		mid, after, end := b.m.fixed(rule), b.m.fixed(rule), b.m.fixed(rule)
		b.m.states[first].terms = []term{{c.ws, mid}}
		b.m.states[mid].calls = []call{{inner, after}}
		b.m.states[after].terms = []term{{c.ws, end}}
		b.m.states[end].final = true
		return rule, nil
	}, nil
}

func newCompiler(a *arena, root *value, opt Options) *compiler {
	c := &compiler{a: a, opt: opt, root: root, ids: map[string]*value{}, litIDs: map[litKey]lit{},
		regexes: map[string]rx{}, disjoint: map[[2]lit]bool{}, nones: map[string]bool{}, nodeIDs: map[string]int32{},
		constants: map[*value]*value{}, budget: maxTries, at: root}
	yes, no := &value{kind: 't'}, &value{kind: 'f'}
	c.lits, c.meanings = []litKey{{v: yes}, {v: no}}, []*meaning{{}, {any: [][][]lit{nil}}}
	c.words, c.quoted, c.comma, c.colon = [3]string{"null", "true", "false"}, a.jsonString, ",", ":"
	c.ws = a.star(a.set(byteSet{}.with(' ').with('\t').with('\n').with('\r')))
	if opt.Compact {
		c.ws = rxEps
	}
	digits := a.bytes('0', '9')
	minus := a.opt(a.lit("-"))
	whole := a.cat(minus, a.alt(a.lit("0"), a.cat(a.bytes('1', '9'), a.star(digits))))
	exp := func(sign rx, most int) rx {
		return a.opt(a.cat(a.alt(a.lit("e"), a.lit("E")), sign, a.rep(digits, 1, most)))
	}
	c.decimal = a.cat(whole, a.opt(a.cat(a.lit("."), a.rep(digits, 1, -1))))
	c.number = a.cat(c.decimal, exp(a.opt(a.alt(a.lit("+"), a.lit("-"))), -1))
	c.draft = draftOf(root)
	c.integer = a.cat(whole, a.opt(a.cat(a.lit("."), a.rep(a.lit("0"), 1, -1))), exp(a.opt(a.lit("+")), 2))
	if opt.Compact || c.draft == 4 {
		c.integer = whole
	}
	c.collect(root)
	c.identify(root)
	return c
}

// draftOf reads $schema; without it, the newest.
func draftOf(root *value) int {
	s := root.get("$schema")
	if s == nil || s.kind != 's' {
		return 2020
	}
	for _, d := range []int{4, 6, 7, 3} {
		if strings.Contains(s.text, "draft-0"+strconv.Itoa(d)) {
			return max(d, 4)
		}
	}
	if strings.Contains(s.text, "2019-09") {
		return 2019
	}
	return 2020
}

// text makes the rule of the whole text.
func (b *builder) text(src Source) (int32, error) {
	if len(b.opt.Triggers) > 0 {
		if src.kind != "" && !b.opt.Direct {
			return 0, errors.New("grammar: triggers in free text and a source exclude each other")
		}
		return b.lazy(src)
	}
	body, err := b.source(src)
	if err != nil {
		return 0, err
	}
	if b.opt.After == "" && b.opt.Lead[0] == "" {
		return body()
	}
	b.splitThoughts()
	rule, first := b.rule()
	starts := []int32{b.after(rule, first)}
	if b.opt.After == "" {
		starts = append(starts, b.lead(rule, first))
	}
	inner, err := body()
	if err != nil {
		return 0, err
	}
	end := b.m.fixed(rule)
	b.m.states[end].final = true
	for _, at := range starts {
		b.m.states[at].calls = append(b.m.states[at].calls, call{inner, end})
	}
	return rule, nil
}

// splitThoughts makes known, before the first expression is looked into, the bytes of the tags around thoughts.
func (b *builder) splitThoughts() {
	for _, t := range append([]string{b.opt.After, b.opt.Lead[0], b.opt.Lead[1]}, b.opt.NotBefore...) {
		b.m.a.splitText(t)
	}
	b.tag(b.opt.After + b.opt.Lead[0] + b.opt.Lead[1])
}

// after lets free text come first, up to the tag After, and gives the state behind it: begin where there is none.
func (b *builder) after(rule, begin int32) (behind int32) {
	if b.opt.After == "" {
		return begin
	}
	m := b.m
	mid := m.fixed(rule)
	behind = m.fixed(rule)
	m.states[begin].terms = []term{{b.free(append([]string{b.opt.After}, b.opt.NotBefore...)), mid}}
	m.states[mid].terms = []term{{b.tag(b.opt.After), behind}}
	return behind
}

// between is the text around triggers that is no free one: white space, and marks of the family's.
func (b *builder) between() rx {
	a := b.m.a
	blank := a.set(byteSet{}.with(' ').with('\t').with('\n').with('\r'))
	marks := []rx{a.rep(blank, 1, 8)}
	for _, t := range b.opt.Between {
		marks = append(marks, b.tag(t))
	}
	return a.rep(a.alt(marks...), 0, 4)
}

// tags are those of the triggers.
func (b *builder) tags() (opens, ends []rx) {
	b.tag(b.opt.Group[0] + b.opt.Group[1])
	for _, t := range b.opt.Triggers {
		opens, ends = append(opens, b.tag(t.Begin)), append(ends, b.tag(t.End))
	}
	return opens, ends
}

// lead lets thoughts between two tags come first, and gives the state behind them.
func (b *builder) lead(rule, begin int32) (behind int32) {
	m := b.m
	open, shut := b.opt.Lead[0], b.opt.Lead[1]
	thoughts, end := m.fixed(rule), m.fixed(rule)
	behind = m.fixed(rule)
	m.states[begin].terms = append(m.states[begin].terms, term{b.tag(open), thoughts})
	m.states[thoughts].terms = []term{{b.free(append([]string{shut}, b.opt.NotBefore...)), end}}
	m.states[end].terms = []term{{b.tag(shut), behind}}
	return behind
}

// lazy makes free text with constrained parts.
func (b *builder) lazy(src Source) (int32, error) {
	var bodies []func() (int32, error)
	var begins []string
	for _, t := range b.opt.Triggers {
		if t.Begin == "" {
			return 0, errors.New("grammar: a trigger without Begin")
		}
		body, err := b.source(t.Body)
		if err != nil {
			return 0, err
		}
		bodies, begins = append(bodies, body), append(begins, b.opt.Group[0]+t.Begin)
		b.m.a.splitText(b.opt.Group[0] + t.Begin + t.End + b.opt.Group[1])
	}
	for _, t := range append([]string{" \t\r\n"}, b.opt.Between...) {
		b.m.a.splitText(t)
	}
	b.splitThoughts()
	whole := func() (int32, error) { return -1, nil }
	if src.kind != "" {
		var err error
		if whole, err = b.source(src); err != nil {
			return 0, err
		}
	}
	opens, ends := b.tags() // every byte that stands for itself is known before the first expression is looked into
	around := b.between()
	m := b.m
	rule, first := b.rule()
	begin := b.after(rule, first)
	mid, again, last := m.fixed(rule), m.fixed(rule), m.fixed(rule)
	starts := []int32{begin}
	var free rx
	if !b.opt.Direct {
		free = b.free(append(begins, b.opt.NotInText...))
	} else if free = around; b.opt.After == "" && b.opt.Lead[0] != "" {
		starts = append(starts, b.lead(rule, begin))
	}
	other, err := whole()
	if err != nil {
		return 0, err
	}
	for _, at := range starts {
		m.states[at].terms = append(m.states[at].terms, term{free, mid})
		if other >= 0 {
			end := m.fixed(rule)
			m.states[end].final = true
			m.states[at].calls = append(m.states[at].calls, call{other, end})
		}
	}
	m.states[mid].final = !b.opt.Must && !b.opt.Direct
	m.states[last].final = true
	m.states[again].terms = []term{{free, last}}
	return rule, b.triggers(rule, mid, again, last, opens, ends, bodies)
}

// triggers makes the constrained parts: they begin at mid or last, and go on at again, or at last where there is one.
func (b *builder) triggers(rule, mid, again, last int32, opens, ends []rx, bodies []func() (int32, error)) error {
	m := b.m
	done := again
	if b.opt.Once {
		done = last
	}
	group := m.fixed(rule) // behind a part, before the end of its group
	m.states[group].terms = []term{{b.tag(b.opt.Group[1]), done}}
	for i := range b.opt.Triggers {
		inner, err := bodies[i]()
		if err != nil {
			return err
		}
		open, close := m.fixed(rule), m.fixed(rule)
		first := m.a.cat(b.tag(b.opt.Group[0]), opens[i])
		m.states[mid].terms = append(m.states[mid].terms, term{first, open})
		if !b.opt.Once {
			m.states[last].terms = append(m.states[last].terms, term{first, open})
		}
		if !b.opt.Once && b.opt.Group[0] != "" {
			m.states[group].terms = append(m.states[group].terms, term{opens[i], open})
		}
		m.states[open].calls = []call{{inner, close}}
		m.states[close].terms = []term{{ends[i], group}}
	}
	return nil
}

// tag matches a text, in which what is called as a special token may be this.
func (b *builder) tag(name string) rx {
	a := b.m.a
	var parts []rx
	rest := 0
	for i := 0; i < len(name); i++ {
		word, id := b.specialAt(name[i:])
		if word == "" {
			continue
		}
		parts = append(parts, a.lit(name[rest:i]), a.alt(a.lit(word), a.lit(specialBytes(id))))
		i += len(word) - 1
		rest = i + 1
	}
	return a.cat(append(parts, a.lit(name[rest:]))...)
}

// specialAt is the longest name of a special token that a text begins with, "" where there is none.
func (b *builder) specialAt(text string) (string, int32) {
	for n := len(text); n > 0 && b.special != nil; n-- {
		if id, ok := b.special(text[:n]); ok {
			return text[:n], id
		}
	}
	return "", 0
}

// free matches text in which none of the tags begins. Special tokens are among it, but the first of each tag's is not.
func (b *builder) free(tags []string) rx {
	a := b.m.a
	var found []rx
	for _, t := range tags {
		found = append(found, a.lit(t))
		a.splitText(t)
	}
	// What is left of a text must not end in the beginning of a tag that then
	// goes on: the tag itself is matched after this expression.
	text := a.notText(a.cat(a.text, a.alt(found...), a.text))
	if b.special == nil {
		return text
	}
	var others []rx
	name := a.cat(a.lit("\xff["), a.rep(a.bytes('0', '9'), 1, -1), a.lit("]"))
	for _, t := range tags {
		for i := range t {
			if word, id := b.specialAt(t[i:]); word != "" {
				others = append(others, a.not(a.lit(specialBytes(id))))
				break
			}
		}
	}
	token := a.and(append([]rx{name}, others...)...)
	return a.cat(a.star(a.cat(text, token)), text)
}

// specialBytes stands for a special token in the text that the parser reads: not
// UTF-8, so no text is mistaken for it.
func specialBytes(id int32) string { return "\xff[" + strconv.Itoa(int(id)) + "]" }
