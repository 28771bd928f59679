package models

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/graph/lang"
)

// Error is one mistake in a model file.
type Error struct {
	Path      string
	Line, Col int    // both count from 1; Line 0: no place
	Msg       string // says what was expected and what was found
	Source    string // the line of the file
}

// Error prints "path:line:column: message", the line, and a caret below the column.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Path + ": " + e.Msg
	}
	s := fmt.Sprintf("%s:%d:%d: %s", e.Path, e.Line, e.Col, e.Msg)
	if strings.TrimSpace(e.Source) == "" {
		return s
	}
	line, col := excerpt([]rune(strings.TrimSuffix(e.Source, "\r")), e.Col-1)
	var pad strings.Builder
	for _, r := range line[:min(col, len(line))] {
		if r != '\t' {
			r = ' '
		}
		pad.WriteRune(r)
	}
	return s + "\n\t" + string(line) + "\n\t" + pad.String() + "^"
}

// excerpt cuts a very long line to what stands around column col, which counts from 0.
func excerpt(line []rune, col int) ([]rune, int) {
	const most, before = 240, 100
	if len(line) <= most {
		return line, col
	}
	from := max(0, min(col-before, len(line)-most))
	cut := slices.Clone(line[from : from+most])
	if from > 0 {
		cut[0] = '…'
	}
	if from+most < len(line) {
		cut[most-1] = '…'
	}
	return cut, col - from
}

// Errors are all mistakes that were found in one go.
type Errors []*Error

// maxErrors bounds how many mistakes of one file are listed.
const maxErrors = 20

func (es Errors) Error() string {
	var parts []string
	for i, e := range es {
		if i == maxErrors {
			parts = append(parts, fmt.Sprintf("and %d more", len(es)-i))
			break
		}
		parts = append(parts, e.Error())
	}
	return strings.Join(parts, "\n")
}

// Unwrap lets errors.As find the single mistakes.
func (es Errors) Unwrap() []error {
	all := make([]error, len(es))
	for i, e := range es {
		all[i] = e
	}
	return all
}

// errs collects mistakes, each place and message once.
type errs struct{ list Errors }

// In line it would be a tenth of a percent of the binary.
//
//go:noinline
func (es *errs) add(e *Error) {
	if e == nil {
		return
	}
	for _, o := range es.list {
		if o.Path == e.Path && o.Line == e.Line && o.Col == e.Col && o.Msg == e.Msg {
			return
		}
	}
	es.list = append(es.list, e)
}

func (es *errs) err() error {
	if len(es.list) == 0 {
		return nil
	}
	return es.list
}

// source is the text that positions refer to.
type source struct {
	path  string
	lines []string
}

func (s *source) at(line, col int, format string, args ...any) *Error {
	e := &Error{Path: s.path, Line: line, Col: col, Msg: fmt.Sprintf(format, args...)}
	if line > 0 && line <= len(s.lines) {
		e.Source = s.lines[line-1]
	}
	return e
}

// text is a scalar of the file with the place of its first character.
type text struct {
	string
	node *yaml.Node
	from int     // where it starts in the node's value
	src  *source // the file that it stands in, where that is one that another uses
}

func (t text) cut(from, to int) text { return text{t.string[from:to], t.node, t.from + from, t.src} }

// fail reports a mistake at byte offset off of t. YAML folds lines and
// unquotes, but keeps the characters that are not white space in their order: so
// the place is found by counting these.
func (s *source) fail(t text, off int, format string, args ...any) *Error {
	if t.src != nil {
		s = t.src
	}
	if t.node == nil {
		return &Error{Path: s.path, Msg: fmt.Sprintf(format, args...)}
	}
	n := t.node
	line, col := n.Line, n.Column
	skip := 0
	whole := n.Value[:min(len(n.Value), t.from+off)]
	for _, r := range whole {
		if r != ' ' && r != '\n' && r != '\t' {
			skip++
		}
	}
	switch n.Style {
	case yaml.LiteralStyle, yaml.FoldedStyle:
		line, col = line+1, 1
	case yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle:
		col++
	}
	for line <= len(s.lines) {
		runes := []rune(s.lines[line-1])
		for i := min(col-1, len(runes)); i < len(runes); i++ {
			if r := runes[i]; r == ' ' || r == '\t' || r == '\r' {
				continue
			}
			if skip == 0 {
				return s.at(line, i+1, format, args...)
			}
			skip--
		}
		if skip == 0 && off >= len(t.string) { // behind the last character
			return s.at(line, min(len(runes)+1, max(col, utf8.RuneCountInString(s.lines[line-1])+1)), format, args...)
		}
		line, col = line+1, 1
	}
	return s.at(n.Line, n.Column, format, args...)
}

// wrap turns an error of the expression language into one of the file.
func (s *source) wrap(t text, err error, prefix string) *Error {
	if e, ok := err.(*lang.Error); ok {
		return s.fail(t, e.At, "%s%s", prefix, e.Msg)
	}
	return s.fail(t, 0, "%s%v", prefix, err)
}

// didYouMean gives "; did you mean x?" or what there is instead.
func didYouMean(name string, known []string) string {
	if near := lang.Nearest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	if len(known) > 0 && len(known) <= 12 {
		return "; there are " + strings.Join(known, ", ")
	}
	return ""
}
