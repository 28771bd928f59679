package models

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/graph/lang"
)

// The shape of a file after reading, before any number is known.
type (
	// expr is an expression with its place.
	expr struct {
		text
		tree lang.Expr
	}
	// decl is an input or a state: name: type[dims].
	decl struct {
		name text
		typ  string
		dims []expr
		of   *expr // of a state: the number of the block whose state it is; nil: its own
	}
	// param is a number or word, read from metadata or computed.
	param struct {
		name     text
		gguf, hf []string // alternative keys
		null     *expr    // the value where the metadata say null; nil: as if the key were absent
		from     text     // the weight whose shape says it, or empty
		is       *expr
		among    *expr // of what the metadata say: the list of which it, or each of its elements, is one; nil: anything
		length   *expr // of a list of the metadata: how many elements it has, a number or a list of these; nil: any
	}
	// weightDecl is a tensor of the weights file.
	weightDecl struct {
		name     text
		shape    []expr
		sources  map[string][]pattern // by dialect
		when     *expr                // a condition without which the weight is absent; nil: none
		numbers  *expr                // a list of its elements, where no tensor holds them
		optional bool
		bias     bool // read element by element, not by a product: see markBiases
	}
	// equation is one line of the body.
	equation struct {
		text   // the left side
		names  []text
		rhs    expr
		repeat *repeat
		broken bool // uses what is defined later: reported when read
	}
	// repeat applies a block several times.
	repeat struct {
		count  lang.Expr
		blocks []choice // one behind the other, each time
		args   []lang.Expr
		named  []lang.Named
	}
	// choice is a block, or the choice of one by a condition in which i is the number of the repetition.
	choice struct {
		tree  lang.Expr
		files map[string]*File // by the names that stand in it
		names []string         // in order
		at    []int
	}
	// matcher says which weights a model file is for.
	matcher struct{ gguf, hf, has []string }
)

// limits on what a file may ask for.
const (
	maxFileBytes = 1 << 20
	maxDocs      = 64
	maxRepeat    = 10_000
	maxNodes     = 50_000
	maxSize      = 1 << 31 // of one dimension
	maxDims      = 8
)

// reader fills a File from YAML and collects mistakes.
type reader struct {
	*source
	errs
	f     *File
	names map[string]text // every name of the file, where it is given
	read  reading         // of other files
}

// parse reads a file's text; its errors are all those that one file can show by itself.
// Files that it uses are read by read.
func parse(path string, data []byte, read reading) (*File, error) {
	src := &source{path: path}
	if len(data) > maxFileBytes {
		return nil, Errors{src.at(0, 0, "has %d bytes; a model file has at most %d", len(data), maxFileBytes)}
	}
	src.lines = strings.Split(string(data), "\n")
	docs, err := parseYAML(data)
	if err != nil {
		return nil, Errors{src.yamlError(err)}
	}
	f, all := &File{source: src}, errs{}
	for i, doc := range docs {
		if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
			at, what := 1, "a model file is a mapping that begins with model: or block:"
			if i > 0 {
				at, what = doc.Line, "behind a model stand mappings that begin with block:"
				if len(doc.Content) > 0 {
					at = doc.Content[0].Line
				}
			}
			return nil, Errors{src.at(at, 1, "%s", what)}
		}
		r := &reader{source: src, f: f, names: map[string]text{}, read: read}
		if i > 0 && (f.block || f.part) {
			return nil, Errors{src.at(doc.Content[0].Line, 1, "a second document begins; only a model has blocks behind it")}
		}
		if i > 0 {
			r.f = &File{source: src, line: doc.Content[0].Line}
		}
		r.file(doc.Content[0])
		if i > 0 {
			r.behind(f, doc.Content[0])
		}
		if r.err() != nil {
			r.f.addLate(&r.errs)
			for _, e := range r.list {
				all.add(e)
			}
			continue
		}
		r.f.markBiases()
	}
	if all.err() != nil {
		return nil, all.err()
	}
	return f, nil
}

// behind gives a model the block that its file has behind it.
func (r *reader) behind(model *File, n *yaml.Node) {
	switch {
	case !r.f.block:
		r.failNode(n, "a second document begins; behind a model stand blocks, which begin with block:")
	case model.own[r.f.name] != nil:
		r.failNode(n, "block %s is defined twice", r.f.name)
	default:
		if model.own == nil {
			model.own = map[string]*File{}
		}
		model.own[r.f.name] = r.f
	}
}

// parseYAML turns a panic of the YAML library into an error: the text may be anything.
func parseYAML(data []byte) (docs []yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: cannot be read: %v", p)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		if err = dec.Decode(&doc); err == io.EOF {
			break
		} else if err != nil {
			return docs, err
		}
		if docs = append(docs, doc); len(docs) > maxDocs {
			return docs, fmt.Errorf("line %d: a file has at most %d documents", doc.Line, maxDocs)
		}
	}
	if len(docs) == 0 { // an empty file
		docs = make([]yaml.Node, 1)
	}
	return docs, nil
}

func (s *source) yamlError(err error) *Error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if n, _ := fmt.Sscanf(msg, "line %d:", &line); n == 1 {
		_, msg, _ = strings.Cut(msg, ": ")
		col := 1
		// The library counts the line before a tab that indents.
		if k := line + 1; strings.Contains(msg, "tab character") && k <= len(s.lines) &&
			strings.HasPrefix(strings.TrimLeft(s.lines[k-1], " "), "\t") {
			line = k
		}
		if line > 0 && line <= len(s.lines) {
			l := s.lines[line-1]
			col = len(l) - len(strings.TrimLeft(l, " ")) + 1
		}
		if strings.Contains(msg, "expected ',' or ") { // the library names the line behind it
			msg += "; inside […] and {…} an expression with brackets, braces or commas of its own wants quotes, in this line " +
				"or the one before"
		}
		return s.at(line, col, "not YAML: %s", msg)
	}
	return s.at(0, 0, "not YAML: %s", msg)
}

func (r *reader) failNode(n *yaml.Node, format string, args ...any) {
	r.add(r.at(n.Line, n.Column, format, args...))
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if n.Value == "" || n.Tag == "!!null" {
		return "nothing"
	}
	return n.Value
}

// scalar gives a node's text.
func (r *reader) scalar(n *yaml.Node, what string) (text, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" && n.Style == 0 {
		r.failNode(n, "%s is wanted here, not %s", what, describe(n))
		return text{}, false
	}
	return text{string: n.Value, node: n}, true
}

// pairs walks a mapping; each key is a scalar and given once.
func (r *reader) pairs(n *yaml.Node, what string, f func(key text, v *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.failNode(n, "%s is wanted here, not %s", what, describe(n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.scalar(n.Content[i], "a name")
		if !ok {
			continue
		}
		if line, dup := seen[key.string]; dup {
			r.add(r.fail(key, 0, "%s is given twice: line %d has it too", key.string, line))
			continue
		}
		seen[key.string] = key.node.Line
		f(key, n.Content[i+1])
	}
}

// strings reads one scalar or a list of them.
func (r *reader) strings(n *yaml.Node, what string) []string {
	if n.Kind != yaml.SequenceNode {
		if t, ok := r.scalar(n, what); ok {
			return []string{t.string}
		}
		return nil
	}
	var all []string
	for _, c := range n.Content {
		if t, ok := r.scalar(c, what); ok {
			all = append(all, t.string)
		}
	}
	return all
}

var fileKeys = []string{"model", "block", "part", "task", "match", "ignore", "use", "in", "params", "require", "names",
	"weights", "state", "body", "out", "text", "kernels"}

func (r *reader) file(n *yaml.Node) {
	patterns := map[string][]string{}
	parts := map[string]*yaml.Node{}
	r.pairs(n, "a mapping", func(key text, v *yaml.Node) {
		if !slices.Contains(fileKeys, key.string) {
			r.add(r.fail(key, 0, "unknown key %s%s", key.string, didYouMean(key.string, fileKeys)))
			return
		}
		parts[key.string] = v
	})
	each := func(key, what string, f func(name text, v *yaml.Node)) {
		if v := parts[key]; v != nil && (v.Kind != yaml.ScalarNode || v.Tag != "!!null") {
			r.pairs(v, what, f)
		}
	}
	r.head(n, parts["model"], parts["block"], parts["part"])
	if v := parts["ignore"]; v != nil {
		r.f.ignore = r.strings(v, "a tensor's name, * for any part of it")
	}
	r.task(parts["task"])
	each("text", "a mapping of names to expressions", r.said)
	if v := parts["match"]; v != nil {
		if r.f.block {
			r.failNode(v, "match: belongs to a model; a block is found by its name")
		}
		r.match(v)
	}
	each("in", "a mapping of names to type[dims]", func(name text, v *yaml.Node) {
		if d, ok := r.decl(name, v, "i32", "float"); ok {
			r.f.in = append(r.f.in, d)
		}
	})
	if v := parts["use"]; v != nil {
		r.use(v)
	}
	each("params", "a mapping of names to expressions", func(name text, v *yaml.Node) { r.param(name, v) })
	if v := parts["require"]; v != nil {
		r.require(v)
	}
	each("names", "a mapping of gguf and hf to patterns", func(key text, v *yaml.Node) {
		if t, ok := r.scalar(v, "a pattern of names"); ok && r.dialect(key) {
			for p := range strings.SplitSeq(t.string, "|") {
				if p = strings.TrimSpace(p); strings.Count(p, "*") != 1 {
					r.add(r.fail(t, 0, "the pattern %q must hold one *, for the weight's name", p))
				} else {
					patterns[key.string] = append(patterns[key.string], p)
				}
			}
		}
	})
	each("weights", "a mapping of names to weights", func(name text, v *yaml.Node) { r.weight(name, v, patterns) })
	each("state", "a mapping of names to type[dims]", func(name text, v *yaml.Node) {
		r.state(name, v)
	})
	each("body", "a mapping of names to equations", func(name text, v *yaml.Node) { r.equation(name, v) })
	if v := parts["kernels"]; v != nil && !r.f.part {
		r.kernels(v)
	}
	if r.f.part {
		for _, key := range []string{"in", "state", "body", "out", "match", "task", "text", "kernels"} {
			if v := parts[key]; v != nil {
				r.failNode(v, "%s: has no place in a part, which has params:, require:, names: and weights: for the files "+
					"that use it", key)
			}
		}
		return
	}
	if len(r.f.body) == 0 && parts["body"] == nil {
		r.failNode(n, "body: is missing: the equations")
	}
	if v := parts["out"]; v == nil {
		r.failNode(n, "out: is missing: the name of the result")
	} else {
		r.out(v)
	}
	if r.err() == nil {
		r.check()
	}
}

func (r *reader) head(n, model, block, part *yaml.Node) {
	head, several := model, 0
	if block != nil {
		head, r.f.block = block, true
	}
	if part != nil {
		head, r.f.part = part, true
	}
	for _, k := range []*yaml.Node{model, block, part} {
		if k != nil {
			several++
		}
	}
	switch {
	case several == 0:
		r.failNode(n, "model: or block: is missing: what the file defines, and its name")
	case several > 1:
		r.failNode(head, "a file defines a model or a block, not both")
	default:
		if t, ok := r.scalar(head, "a name"); ok {
			r.f.name = t.string
			if t.string == "" {
				r.failNode(head, "the name is empty")
			}
		}
	}
}

func (r *reader) dialect(key text) bool {
	if key.string != "gguf" && key.string != "hf" {
		r.add(r.fail(key, 0, "unknown source %s: there are gguf and hf", key.string))
		return false
	}
	return true
}

func (r *reader) match(v *yaml.Node) {
	r.pairs(v, "a mapping", func(key text, v *yaml.Node) {
		switch key.string {
		case "gguf":
			r.f.match.gguf = r.strings(v, "an architecture")
		case "hf":
			r.f.match.hf = r.strings(v, "an architecture")
		case "has":
			r.f.match.has = r.strings(v, "a key of GGUF's metadata")
		default:
			r.add(r.fail(key, 0, "unknown key %s%s", key.string, didYouMean(key.string, []string{"gguf", "hf", "has"})))
		}
	})
	if m := r.f.match; len(m.has) > 0 && len(m.gguf) == 0 {
		r.failNode(v, "has: asks for a key of GGUF's metadata, but gguf: is missing")
	}
}

// claim registers a name; a name is given once in a file.
func (r *reader) claim(name text) bool {
	switch {
	case !lang.IsName(name.string):
		r.add(r.fail(name, 0, "%q cannot be a name: letters, digits and _ only, none of the language's words", name.string))
		return false
	case slices.Contains(builtins, name.string):
		r.add(r.fail(name, 0, "%s has a meaning already: %s", name.string, builtinDoc[name.string]))
		return false
	}
	if old, ok := r.names[name.string]; ok && old.src != nil {
		r.replaces(name.string)
	} else if ok {
		r.add(r.fail(name, 0, "%s is given twice: line %d has it too", name.string, old.node.Line))
		return false
	}
	r.names[name.string] = name
	return true
}

func (r *reader) expr(t text) (expr, bool) {
	tree, err := lang.Parse(t.string)
	if err != nil {
		r.add(r.wrap(t, err, ""))
		return expr{}, false
	}
	return expr{t, tree}, true
}

// decl reads "type[dims]".
func (r *reader) decl(name text, v *yaml.Node, types ...string) (decl, bool) {
	t, ok := r.scalar(v, "type[dims]")
	if !r.claim(name) || !ok {
		return decl{}, false
	}
	open := strings.IndexByte(t.string, '[')
	if open < 0 {
		r.add(r.fail(t, 0, "type[dims] is wanted here, such as %s[S], not %s", types[len(types)-1], t.string))
		return decl{}, false
	}
	d := decl{name: name, typ: strings.TrimSpace(t.string[:open])}
	if !slices.Contains(types, d.typ) {
		r.add(r.fail(t, 0, "the type of %s must be %s, not %s", name.string, strings.Join(types, " or "), d.typ))
		return decl{}, false
	}
	list := t.cut(open, len(t.string))
	e, ok := r.expr(list)
	if !ok {
		return decl{}, false
	}
	dims, ok := e.tree.(lang.List)
	if !ok || len(dims.Elems) > maxDims {
		r.add(r.fail(list, 0, "a list of at most %d sizes is wanted here", maxDims))
		return decl{}, false
	}
	for _, x := range dims.Elems {
		d.dims = append(d.dims, expr{list, x})
	}
	return d, true
}

// paramKeys are the keys of a parameter that is read from the weights' metadata.
var paramKeys = []string{"gguf", "hf", "from", "is", "none", "among", "length"}

func (r *reader) param(name text, v *yaml.Node) {
	p := param{name: name}
	ok := r.claim(name)
	into := func(to **expr) func(v *yaml.Node) {
		return func(v *yaml.Node) {
			if t, is := r.scalar(v, "an expression"); is {
				if e, is := r.expr(t); is {
					*to = &e
					return
				}
			}
			ok = false
		}
	}
	parts := map[string]func(*yaml.Node){"is": into(&p.is), "none": into(&p.null), "among": into(&p.among),
		"length": into(&p.length)}
	if v.Kind != yaml.MappingNode {
		parts["is"](v)
	} else {
		r.pairs(v, "", func(key text, v *yaml.Node) {
			switch key.string {
			case "gguf":
				p.gguf = r.keys(v)
			case "hf":
				p.hf = r.keys(v)
			case "from":
				p.from, _ = r.scalar(v, "the name of a weight")
			case "is", "none", "among", "length":
				parts[key.string](v)
			default:
				r.add(r.fail(key, 0, "unknown key %s%s", key.string, didYouMean(key.string, paramKeys)))
				ok = false
			}
		})
	}
	if ok {
		r.f.params = append(r.f.params, p)
	}
}

// keys reads "a | b".
func (r *reader) keys(v *yaml.Node) []string {
	t, ok := r.scalar(v, "a metadata key")
	if !ok {
		return nil
	}
	var all []string
	for k := range strings.SplitSeq(t.string, "|") {
		if k = strings.TrimSpace(k); k == "" || strings.ContainsAny(k, " \t\n") {
			r.add(r.fail(t, 0, "%q is no metadata key: keys hold no blanks and alternatives are divided by |", t.string))
			return nil
		}
		all = append(all, k)
	}
	return all
}

func (r *reader) require(v *yaml.Node) {
	if v.Kind != yaml.SequenceNode {
		r.failNode(v, "a list of conditions is wanted here, not %s", describe(v))
		return
	}
	for _, c := range v.Content {
		if t, ok := r.scalar(c, "a condition"); ok {
			if e, ok := r.expr(t); ok {
				r.f.require = append(r.f.require, e)
			}
		}
	}
}

func (r *reader) weight(name text, v *yaml.Node, patterns map[string][]string) {
	w := weightDecl{name: name, sources: map[string][]pattern{}}
	ok := r.claim(name)
	seen := false
	r.pairs(v, "{shape: [...], gguf: ..., hf: ...}", func(key text, v *yaml.Node) {
		switch key.string {
		case "shape":
			seen = true
			if v.Kind != yaml.SequenceNode || len(v.Content) == 0 || len(v.Content) > maxDims {
				r.failNode(v, "a list of sizes is wanted here, not %s", describe(v))
				return
			}
			for _, c := range v.Content {
				if t, ok := r.scalar(c, "a size"); ok {
					if e, ok := r.expr(t); ok {
						w.shape = append(w.shape, e)
					}
				}
			}
		case "gguf", "hf":
			if t, ok := r.scalar(v, "a tensor's name"); ok {
				w.sources[key.string] = r.alternatives(t, patterns[key.string])
			}
		case "numbers":
			w.numbers = r.scalarExpr(v, "a list of numbers")
		case "if":
			w.when = r.scalarExpr(v, "a condition")
		case "optional":
			if t, ok := r.scalar(v, "true or false"); ok {
				w.optional = t.string == "true"
				if !w.optional && t.string != "false" {
					r.failNode(v, "true or false is wanted here, not %s", t.string)
				}
			}
		default:
			r.add(r.fail(key, 0, "unknown key %s%s", key.string, didYouMean(key.string,
				[]string{"shape", "gguf", "hf", "if", "numbers", "optional"})))
		}
	})
	if ok && !seen && v.Kind == yaml.MappingNode {
		r.failNode(v, "%s: shape: is missing", name.string)
	}
	if ok {
		r.f.weights = append(r.f.weights, w)
	}
}

// scalarExpr reads an expression; nil where there is none.
func (r *reader) scalarExpr(v *yaml.Node, what string) *expr {
	if t, ok := r.scalar(v, what); ok {
		if e, ok := r.expr(t); ok {
			return &e
		}
	}
	return nil
}

func (r *reader) equation(key text, v *yaml.Node) {
	eq := equation{text: key}
	at, ok := 0, true
	for part := range strings.SplitSeq(key.string, ",") {
		lead := len(part) - len(strings.TrimLeft(part, " "))
		name := key.cut(at+lead, at+len(strings.TrimRight(part, " ")))
		if strings.TrimSpace(part) == "" {
			name = key.cut(at, at)
		}
		at += len(part) + 1
		ok = r.claim(name) && ok
		eq.names = append(eq.names, name)
	}
	t, is := r.scalar(v, "an equation")
	if !is {
		return
	}
	if eq.rhs, is = r.expr(t); !is || !r.spread(&eq.rhs, key.string) || !ok {
		return
	}
	if c, is := eq.rhs.tree.(lang.Call); is && c.Func == "repeat" {
		if !r.repeat(&eq, c) {
			return
		}
	}
	r.f.body = append(r.f.body, eq)
}

func (r *reader) repeat(eq *equation, c lang.Call) bool {
	if r.f.block {
		r.add(r.fail(eq.rhs.text, c.Pos(), "%s: a block cannot repeat blocks, nor itself: repeat(...) belongs to a model",
			eq.string))
		return false
	}
	if len(c.Args) < 3 {
		r.add(r.fail(eq.rhs.text, c.Pos(), "%s: repeat(count, block, x, ..., param=value) is wanted", eq.string))
		return false
	}
	rep := &repeat{count: c.Args[0], args: c.Args[2:], named: c.Named}
	group := []lang.Expr{c.Args[1]}
	if list, ok := c.Args[1].(lang.List); ok {
		group = list.Elems
	}
	for _, e := range group {
		b := choice{tree: e, files: map[string]*File{}}
		if at, ok := b.read(e); !ok {
			r.add(r.fail(eq.rhs.text, at, "%s: the name of a block file is wanted here, such as llama2_block, "+
				"or A if CONDITION else B of such names, or a list of these", eq.string))
			return false
		}
		rep.blocks = append(rep.blocks, b)
	}
	eq.repeat = rep
	return true
}

// read collects the names of a choice; where something else stands, it gives its place.
func (b *choice) read(e lang.Expr) (at int, ok bool) {
	switch e := e.(type) {
	case lang.Name:
		if e.Name != noBlock {
			b.names, b.at = append(b.names, e.Name), append(b.at, e.Pos())
		}
		return 0, true
	case lang.Str:
		b.names, b.at = append(b.names, e.V), append(b.at, e.Pos())
		return 0, true
	case lang.Cond:
		if at, ok := b.read(e.Then); !ok {
			return at, false
		}
		return b.read(e.Else)
	}
	return e.Pos(), false
}

// noBlock stands in a choice for none.
const noBlock = "none"

// conditions visits those of a choice.
func (b *choice) conditions(f func(lang.Expr)) {
	visit(b.tree, func(e lang.Expr) {
		if c, ok := e.(lang.Cond); ok {
			f(c.If)
		}
	})
}

// out reads one name, "a, b" or a list.
func (r *reader) out(v *yaml.Node) {
	nodes := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		nodes = v.Content
	}
	for _, n := range nodes {
		t, ok := r.scalar(n, "the name of a result")
		if !ok {
			continue
		}
		at := 0
		for part := range strings.SplitSeq(t.string, ",") {
			lead := len(part) - len(strings.TrimLeft(part, " "))
			r.f.out = append(r.f.out, t.cut(at+min(lead, len(part)), max(at+lead, at+len(strings.TrimRight(part, " ")))))
			at += len(part) + 1
		}
	}
	if len(r.f.out) == 0 && v.Kind == yaml.SequenceNode {
		r.failNode(v, "out: is empty: the name of the result is wanted")
	}
}
