// Package jinja renders Jinja templates as Python's jinja2 does in the environment that chat templates are written
// for: sandboxed and immutable, trim_blocks and lstrip_blocks on, loop controls, generation blocks, no loader.
// Values print, compare and fail as Python's do, and what fails has Python's words. A template reaches nothing but
// the values that it is given, and its steps, depth, memory and output are bounded.
//
// Inside, an error is thrown by a panic with *Error, which Parse and Render turn into their result.
package jinja

import (
	"fmt"
	"strings"
	"time"
)

// Error is what stops a template: Kind is the name of Python's exception, such as TemplateError for what
// raise_exception says, TypeError, or LimitError for one of the bounds.
type Error struct {
	Kind, Text string
	Line       int // of the template, from 1; 0: not known
}

func (e *Error) Error() string { return e.Kind + ": " + e.Text }

// throw stops the template.
// In line it would be a tenth of a percent of the binary.
//
//go:noinline
func throw(kind, format string, args ...any) {
	panic(&Error{Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// catch turns a thrown error into a result. What was not thrown goes on.
func catch(err *error, line func() int) {
	switch p := recover().(type) {
	case nil:
	case *Error:
		if p.Line == 0 && line != nil {
			p.Line = line()
		}
		*err = p
	default:
		panic(p)
	}
}

// Limits bound what one rendering may take; a field of 0 means the default.
type Limits struct {
	Steps  int // nodes evaluated; default 20 million
	Depth  int // calls of macros and nested values; default 400
	Bytes  int // of all strings and lists made; default 512 MiB
	Output int // bytes of text; default 64 MiB
}

func (l Limits) orDefault() Limits {
	for _, f := range []struct {
		have *int
		or   int
	}{{&l.Steps, 20e6}, {&l.Depth, 400}, {&l.Bytes, 512 << 20}, {&l.Output, 64 << 20}} {
		if *f.have <= 0 {
			*f.have = f.or
		}
	}
	return l
}

// Template is a parsed template. It may be rendered by several goroutines at once.
type Template struct {
	body   []stmt
	blocks map[string]*blockStmt
}

// Parse reads a template. Its errors are *Error.
func Parse(source string) (t *Template, err error) {
	defer catch(&err, nil)
	p := &parser{tokens: tokenize(source), blocks: map[string]*blockStmt{}}
	body := p.subparse(nil)
	p.checkNames()
	return &Template{body, p.blocks}, nil
}

// Env is what a rendering sees beside the template.
type Env struct {
	Vars   *Dict     // values of names, see FromJSON and New
	Now    time.Time // what strftime_now formats
	Limits Limits
}

// Render gives the text. Its errors are *Error.
func (t *Template) Render(env Env) (text string, err error) {
	in := &interp{t: t, limits: env.Limits.orDefault(), now: env.Now, vars: env.Vars}
	if in.vars == nil {
		in.vars = NewDict()
	}
	defer catch(&err, func() int { return in.line })
	in.root = newScope(nil)
	out := &buffer{in: in}
	in.run(t.body, in.root, out)
	return out.b.String(), nil
}

// interp is one rendering.
type interp struct {
	t          *Template
	limits     Limits
	now        time.Time
	vars       *Dict
	root       *scope
	steps      int
	bytes      int
	depth      int
	line       int
	autoescape bool
}

// step counts one piece of work.
func (in *interp) step() {
	if in.steps++; in.steps > in.limits.Steps {
		throw("LimitError", "the template took more than %d steps", in.limits.Steps)
	}
}

// charge counts memory before it is taken, so that nothing large is made in vain.
func (in *interp) charge(n int) {
	if n < 0 || n > in.limits.Bytes-in.bytes {
		throw("LimitError", "the template's values took more than %d bytes", in.limits.Bytes)
	}
	in.bytes += n
}

// enter goes one call deeper; the result goes back.
func (in *interp) enter() func() {
	if in.depth++; in.depth > in.limits.Depth {
		throw("RecursionError", "maximum recursion depth exceeded")
	}
	return func() { in.depth-- }
}

// buffer collects text.
type buffer struct {
	in *interp
	b  strings.Builder
}

func (b *buffer) write(s string) {
	if b.b.Len()+len(s) > b.in.limits.Output {
		throw("LimitError", "the template's text has more than %d bytes", b.in.limits.Output)
	}
	b.in.charge(len(s))
	b.b.WriteString(s)
}

// scope holds the names of a block; those of the blocks around it are seen through it.
type scope struct {
	vars   map[string]any
	parent *scope
}

func newScope(parent *scope) *scope { return &scope{parent: parent} }

func (s *scope) set(name string, v any) {
	if s.vars == nil {
		s.vars = map[string]any{}
	}
	s.vars[name] = v
}

// lookup finds a name: the blocks', then the caller's, then Jinja's own.
func (in *interp) lookup(s *scope, name string) any {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	if v, ok := in.vars.Get(name); ok {
		return v
	}
	if v := in.global(name); v != nil {
		return v
	}
	return &Undefined{name: name}
}
