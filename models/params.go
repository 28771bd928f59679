package models

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/hfclass"
)

// Param is a parameter with its value, and where that came from.
type Param struct {
	Name   string // of a repeated block's own: "llama2_block.window", as in block 0
	Value  lang.Val
	Origin string // "gguf llama.block_count", "shape of tok_embd", "default", "--set", "repeat"
}

// resolved is a parameter's state during resolution.
type resolved struct {
	val    lang.Val
	origin string
	busy   bool // being computed: meeting it again is a cycle
	bad    bool // its mistake is reported already
}

// paramKey names a parameter, and the block where that has a value of its own; else block is -1.
type paramKey struct {
	name  string
	block int
}

// scope gives the names of one file, or of one block of a model, their values.
type scope struct {
	*errs
	f      *File
	o      *Options
	block  int // number of the block; -1 in a model, outside repeat
	over   map[string]resolved
	params map[paramKey]*resolved
	chain  []string // parameters being computed, for the message of a cycle
	bad    bool     // an expression has met a name whose mistake is reported
	turn   *string  // what turnObject found
}

func newScope(es *errs, f *File, o *Options, block int, over map[string]resolved) *scope {
	return &scope{errs: es, f: f, o: o, block: block, over: over, params: map[paramKey]*resolved{}}
}

// lookup is the language's environment.
func (s *scope) lookup(name string) (lang.Val, bool) {
	switch name {
	case "S":
		return float64(s.o.S), true
	case "C":
		return float64(s.o.C), true
	case "R":
		return float64(s.o.R), true
	case "gguf", "hf":
		return s.o.Weights != nil && s.o.Weights.Dialect() == name, true
	case "i":
		return float64(s.block), s.block >= 0
	}
	if p := s.f.param(name); p != nil {
		r := s.resolve(p)
		s.bad = s.bad || r.bad
		return r.val, true
	}
	if w := s.f.weight(name); w != nil { // for has(weight)
		if s.present(w) {
			return true, true
		}
		return nil, true
	}
	return name, words()[name]
}

// inBlock does something in which i is the number of a block.
func (s *scope) inBlock(number int, f func()) {
	outer := s.block
	s.block = number
	f()
	s.block = outer
}

// present says whether a weight is there: whether its condition holds and the source has it.
func (s *scope) present(w *weightDecl) bool {
	return s.when(w) && s.named(w).present(s.o.Weights, max(0, s.block))
}

// when says whether a weight's condition holds.
func (s *scope) when(w *weightDecl) bool {
	if w.when == nil {
		return true
	}
	v, ok := s.eval(w.when.text, w.when.tree, w.name.string+": ")
	if !ok {
		return false
	}
	yes, is := v.(bool)
	if !is {
		s.add(s.f.fail(w.when.text, 0, "%s: a condition is wanted here, not %s", w.name.string, lang.Format(v)))
	}
	return yes
}

// eval computes an expression; it reports a mistake unless that follows from another.
func (s *scope) eval(t text, tree lang.Expr, prefix string) (lang.Val, bool) {
	outer := s.bad
	s.bad = false
	v, err := lang.Eval(tree, s.lookup)
	follows := s.bad
	s.bad = outer
	if err == nil && !follows {
		return v, true
	}
	if !follows {
		s.add(s.f.wrap(t, err, prefix))
	}
	return nil, false
}

// size gives a whole number that the file reads from GGUF's metadata, by its key behind the architecture.
func (s *scope) size(key string) (int64, bool) {
	for i := range s.f.params {
		p := &s.f.params[i]
		for _, k := range p.gguf {
			if _, rest, _ := strings.Cut(k, "."); rest != key {
				continue
			}
			var r *resolved
			s.inBlock(max(0, s.block), func() { r = s.resolve(p) })
			n, whole := lang.Int(r.val)
			return int64(n), whole && !r.bad
		}
	}
	return 0, false
}

func (s *scope) resolve(p *param) *resolved {
	name := p.name.string
	key := paramKey{name, -1}
	if s.f.perBlock[name] {
		key.block = s.block
	}
	r := s.params[key]
	switch {
	case r == nil:
		r = &resolved{}
		s.params[key] = r
	case r.busy:
		at := slices.Index(s.chain, name)
		text := ""
		for _, c := range s.chain[at:] {
			text += c + " → "
		}
		s.add(s.f.fail(p.name, 0, "a cycle of parameters: %s%s", text, name))
		r.bad = true
		return r
	default:
		return r
	}
	if s.f.perBlock[name] && s.block < 0 { // only --set can ask for it here: the reader refuses the rest
		s.add(s.f.fail(p.name, 0, "%s", onlyInBlocks(name)))
		r.bad = true
		return r
	}
	if len(s.chain) >= 1000 {
		s.add(s.f.fail(p.name, 0, "parameters depend on each other over more than 1000 steps"))
		r.bad = true
		return r
	}
	r.busy = true
	s.chain = append(s.chain, name)
	val, origin, ok := s.value(p)
	s.chain = s.chain[:len(s.chain)-1]
	r.val, r.origin, r.busy = val, origin, false
	r.bad = r.bad || !ok
	return r
}

// value finds a parameter's value: given from outside, from the metadata, from a weight's shape, from what transformers
// takes for a key that is absent, from its own expression, in this order.
func (s *scope) value(p *param) (lang.Val, string, bool) {
	name, label := p.name.string, s.label(p)
	if o, ok := s.over[name]; ok {
		return o.val, o.origin, !o.bad
	}
	if given, ok := s.o.Set[name]; ok {
		v, ok := s.set(name, given)
		return v, "--set", ok
	}
	if w := s.o.Weights; w != nil {
		keys := p.hf
		if w.Dialect() == "gguf" {
			keys = p.gguf
		}
		for _, k := range keys {
			k = s.turned(s.spelled(k))
			m, ok := s.meta(k)
			if n, is := w.(interface{ Null(key string) bool }); is && p.null != nil && n.Null(s.key(k)) && !s.o.unread.Has(k) {
				v, ok := s.eval(p.null.text, p.null.tree, label+": ")
				return v, w.Dialect() + " " + k + " null", ok
			}
			if !ok || m == nil {
				continue
			}
			v, ok := metaValue(m)
			if n, short := m.(tooShort); short {
				s.add(s.f.fail(p.name, 0, "%s: %s of %s has %d elements, none for block %d", label, strings.TrimSuffix(k, ".$i"),
					w.Path(), n, max(0, s.block)))
			} else if ok {
				ok = s.known(p, k, v)
			} else {
				s.add(s.f.fail(p.name, 0, "%s: %s of %s is %v, which is not a finite number, word or list", label, k, w.Path(), m))
			}
			return v, w.Dialect() + " " + k, ok
		}
		if p.from.string != "" {
			if from := s.f.weight(p.from.string); !s.when(from) {
			} else if n, ok := s.named(from).sourceSize(w, max(0, s.block), name); ok {
				return float64(n), "shape of " + p.from.string, true
			}
		}
		if v, origin, ok := s.usual(p); ok {
			return v, origin, true
		}
	}
	if p.is == nil {
		return nil, "absent", true
	}
	v, ok := s.eval(p.is.text, p.is.tree, label+": ")
	return v, "default", ok
}

// label is what messages call a parameter: with the block where that has a value of its own.
func (s *scope) label(p *param) string {
	if s.f.perBlock[p.name.string] {
		return fmt.Sprintf("%s of block %d", p.name.string, s.block)
	}
	return p.name.string
}

// known says whether the metadata's value is one that the parameter's declaration allows; it reports what is not.
func (s *scope) known(p *param, key string, v lang.Val) bool {
	list, is := v.([]lang.Val)
	name := s.label(p)
	where := fmt.Sprintf("%s of %s", s.key(key), s.o.Weights.Path())
	if p.length != nil && is {
		want, ok := s.eval(p.length.text, p.length.tree, name+": ")
		if !ok {
			return false
		}
		lengths, several := want.([]lang.Val)
		if !several {
			lengths = []lang.Val{want}
		}
		if !slices.Contains(lengths, lang.Val(float64(len(list)))) {
			s.add(s.f.fail(p.name, 0, "%s: %s has %d elements; %s needs %s", name, where, len(list), s.f.name,
				alternatives(lengths)))
			return false
		}
	}
	if p.among == nil {
		return true
	}
	among, ok := s.eval(p.among.text, p.among.tree, name+": ")
	if !ok {
		return false
	}
	all, isList := among.([]lang.Val)
	if !isList {
		s.add(s.f.fail(p.among.text, 0, "%s: a list is wanted here, not %s", name, lang.Format(among)))
		return false
	}
	elems := list
	if !is {
		elems = []lang.Val{v}
	}
	for i, e := range elems {
		if slices.Contains(all, e) {
			continue
		}
		at := ""
		if is {
			at = fmt.Sprintf("[%d]", i)
		}
		s.add(s.f.fail(p.name, 0, "%s: %s%s is %s; %s knows %s", name, where, at, lang.Format(e), s.f.name,
			alternatives(all)))
		return false
	}
	return true
}

// alternatives writes a list as text: a, b or c.
func alternatives(list []lang.Val) string {
	text := ""
	for i, v := range list {
		switch {
		case slices.Contains(list[:i], v):
			continue
		case i > 0 && i == len(list)-1:
			text += " or "
		case i > 0:
			text += ", "
		}
		text += lang.Format(v)
	}
	return text
}

// spelled puts the words that parameters have into a metadata key that mentions them as $(NAME).
func (s *scope) spelled(k string) string {
	return inName.ReplaceAllStringFunc(k, func(at string) string {
		word := at
		s.inBlock(max(0, s.block), func() {
			if v, _ := s.lookup(at[2 : len(at)-1]); v != nil {
				word = fmt.Sprint(v)
			}
		})
		return word
	})
}

// key puts the architecture and the number of the block into a metadata key.
func (s *scope) key(k string) string {
	if strings.Contains(k, "$arch") {
		arch, _ := s.o.Weights.Meta("general.architecture")
		name, _ := arch.(string)
		k = strings.ReplaceAll(k, "$arch", name)
	}
	return strings.ReplaceAll(k, "$i", strconv.Itoa(max(0, s.block)))
}

// meta gives a value of the metadata. A key that ends in .$i may be a list, of
// which the block takes its element.
func (s *scope) meta(k string) (any, bool) {
	m, ok := s.read(s.key(k))
	base, listed := strings.CutSuffix(k, ".$i")
	if ok || !listed {
		return m, ok
	}
	list, _ := s.read(s.key(base))
	at := max(0, s.block)
	switch m := list.(type) {
	case []string:
		return element(m, at)
	case []bool:
		return element(m, at)
	case []int64:
		return element(m, at)
	case []float64:
		return element(m, at)
	}
	return nil, false
}

// read gives a key's value; none where transformers' class does not read it.
func (s *scope) read(key string) (any, bool) {
	w := s.o.Weights
	if s.o.unread.Has(key) {
		return nil, false
	}
	if w.Dialect() == "hf" {
		return hfclass.Own(w.Meta, key)
	}
	return w.Meta(key)
}

// tooShort stands for the element of a list that has so many, and none for the block.
type tooShort int

// element gives a list's element.
func element[E any](list []E, at int) (any, bool) {
	if at >= len(list) {
		return tooShort(len(list)), true
	}
	return list[at], true
}

// set evaluates a --set.
func (s *scope) set(name, given string) (lang.Val, bool) {
	src := &source{path: "--set " + name + "=" + given}
	tree, err := lang.Parse(given)
	if err != nil {
		s.add(src.wrap(text{string: given}, err, ""))
		return nil, false
	}
	outer := s.bad
	s.bad = false
	v, err := lang.Eval(tree, s.lookup)
	follows := s.bad
	s.bad = outer
	if err != nil && !follows {
		s.add(src.wrap(text{string: given}, err, ""))
	}
	return v, err == nil && !follows
}

// metaValue turns metadata into a value of the language.
func metaValue(m any) (lang.Val, bool) {
	switch m := m.(type) {
	case string, bool:
		return m, true
	case int64:
		return float64(m), true
	case float64:
		return m, !math.IsNaN(m) && !math.IsInf(m, 0)
	case []string:
		return metaList(m)
	case []bool:
		return metaList(m)
	case []int64:
		return metaList(m)
	case []float64:
		m = slices.Clone(m) // GGUF files have infinities in lists: the numbers farthest from zero stand for them
		for i, e := range m {
			if math.IsInf(e, 0) {
				m[i] = math.Copysign(math.MaxFloat64, e)
			}
		}
		return metaList(m)
	}
	return nil, false
}

func metaList[E any](m []E) (lang.Val, bool) {
	list := make([]lang.Val, len(m))
	for i, e := range m {
		v, ok := metaValue(e)
		if !ok {
			return nil, false
		}
		list[i] = v
	}
	return list, true
}

// all resolves every parameter, so that all mistakes show at once, and checks
// the file's requirements. A model's parameters that its blocks have of their own are left to these.
func (s *scope) all() {
	for i := range s.f.params {
		if p := &s.f.params[i]; !s.f.perBlock[p.name.string] {
			s.resolve(p)
		}
	}
	for _, e := range s.f.require {
		v, ok := s.eval(e.text, e.tree, "require: ")
		if !ok {
			continue
		}
		if b, is := v.(bool); !is {
			s.add(s.f.fail(e.text, 0, "require: a condition is wanted here, not %s", lang.Format(v)))
		} else if !b {
			s.add(s.f.fail(e.text, 0, "%s needs %s%s", s.f.name, e.string, s.found(e)))
		}
	}
}

// found says what the parameters of a failed requirement are.
func (s *scope) found(e expr) string {
	msg, seen := "", map[string]bool{}
	walk(e.tree, func(n lang.Name) {
		p := s.f.param(n.Name)
		w := s.f.weight(n.Name)
		length := n.Name == "S" || n.Name == "C" || n.Name == "R"
		if seen[n.Name] || p == nil && w == nil && !length {
			return
		}
		seen[n.Name] = true
		if length {
			v, _ := s.lookup(n.Name)
			msg += fmt.Sprintf("; %s is %s (%s)", n.Name, lang.Format(v), builtinDoc[n.Name])
			return
		}
		if p != nil {
			r := s.resolve(p)
			msg += fmt.Sprintf("; %s is %s (%s)", n.Name, lang.Format(r.val), r.origin)
		} else if s.present(w) {
			msg += fmt.Sprintf("; the weights have %s", n.Name)
		}
	})
	if s.o.Weights != nil {
		msg += " in " + s.o.Weights.Path()
	}
	return msg
}

// checkSet reports names of --set that neither the file nor its blocks have.
func (f *File) checkSet(es *errs, set map[string]string) {
	known := map[string]bool{}
	for _, file := range append(f.blocks(), f) {
		for _, p := range file.params {
			known[p.name.string] = true
		}
	}
	names := slices.Sorted(maps.Keys(known))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !known[name] {
			es.add(&Error{Path: "--set " + name, Msg: fmt.Sprintf("%s has no parameter %s%s", f.path, name,
				didYouMean(name, names))})
		}
	}
}

// inherit gives what a repeated block takes from the model: what repeat names,
// then the model's parameters by name.
func (s *scope) inherit(eq *equation, b *File, number int) map[string]resolved {
	over := map[string]resolved{}
	s.inBlock(number, func() {
		for _, n := range eq.repeat.named {
			if b.param(n.Name) == nil { // another's of the group
				continue
			}
			v, ok := s.eval(eq.rhs.text, n.X, fmt.Sprintf("%s: %s of block %d: ", eq.string, n.Name, number))
			over[n.Name] = resolved{val: v, origin: "repeat", bad: !ok}
		}
		for _, p := range b.params {
			name := p.name.string
			own := s.f.param(name)
			if _, named := over[name]; named || own == nil {
				continue
			}
			r := *s.resolve(own)
			if s.f.perBlock[name] {
				r.origin = "repeat"
			}
			over[name] = r
		}
	})
	return over
}

// Params gives the parameters of the file and the own ones of the blocks that
// it repeats, with their origins; of what differs from block to block, those of block 0.
func (f *File) Params(o Options) ([]Param, error) {
	var es errs
	o.defaults()
	f.checkSet(&es, o.Set)
	f.addLate(&es)
	s := newScope(&es, f, &o, f.standalone(), nil)
	s.all()
	var all []Param
	for i := range f.params {
		p := &f.params[i]
		if !f.perBlock[p.name.string] {
			r := s.resolve(p)
			all = append(all, Param{p.name.string, r.val, r.origin})
			continue
		}
		s.inBlock(0, func() {
			r := s.resolve(p)
			all = append(all, Param{p.name.string, r.val, r.origin + ", block 0"})
		})
	}
	seen := map[*File]bool{}
	for i := range f.body {
		eq := &f.body[i]
		if eq.repeat == nil {
			continue
		}
		for _, c := range eq.repeat.blocks {
			for _, name := range c.names {
				b := c.files[name]
				if seen[b] {
					continue
				}
				seen[b] = true
				inner := newScope(&es, b, &o, 0, s.inherit(eq, b, 0))
				inner.all()
				for k := range b.params {
					name := b.params[k].name.string
					r := inner.resolve(&b.params[k])
					if f.param(name) == nil || r.origin == "repeat" && !f.perBlock[name] {
						all = append(all, Param{b.stem() + "." + name, r.val, r.origin})
					}
				}
			}
		}
	}
	return all, es.err()
}
