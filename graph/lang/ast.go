// Package lang is the expression language of model files: one small language
// for sizes, parameters and tensors. It parses text into a tree, and evaluates
// the trees that hold only numbers and words; graph builds nodes from the rest.
package lang

import "fmt"

// Expr is a node of the tree. Pos is the byte offset of its first character,
// or of its operator, in the parsed text: where an error should point.
type Expr interface{ Pos() int }

// At is the position that every node carries.
type At int

// Pos gives the byte offset in the parsed text.
func (a At) Pos() int { return int(a) }

// The kinds of expression.
type (
	// Num is a number: 4096, 1e-5.
	Num struct {
		At
		V float64
	}
	// Str is a quoted word: "gelu".
	Str struct {
		At
		V string
	}
	// Name refers to a parameter, a value, or is a word of an attribute.
	Name struct {
		At
		Name string
	}
	// List is [a, b].
	List struct {
		At
		Elems []Expr
	}
	// Unary is -x, +x or not x.
	Unary struct {
		At
		Op string
		X  Expr
	}
	// Binary is x op y, op one of + - * / // % ** == != < <= > >= in not-in and or.
	Binary struct {
		At
		Op   string
		X, Y Expr
	}
	// Cond is Then if If else Else.
	Cond struct {
		At
		If, Then, Else Expr
	}
	// Call is f(x, y, attr=z). Rest is the "..." that may close it: whoever reads
	// the text says what else is handed on; without a reader for it, it is a mistake.
	Call struct {
		At
		Func  string
		Args  []Expr
		Named []Named
		Rest  *At
	}
	// Index is x[i], an element of a list; a negative index counts from the end.
	Index struct {
		At
		X, I Expr
	}
	// Slice is x[lo:hi], the elements of a list from lo on and before hi; either may be nil.
	Slice struct {
		At
		X, Lo, Hi Expr
	}
	// As is x as [dims]: a view.
	As struct {
		At
		X    Expr
		Dims []Expr
	}
)

// Named is an attribute of a call.
type Named struct {
	At
	Name string
	X    Expr
}

// MapCalls gives the expression with f applied to each call in it, inner calls first.
func MapCalls(e Expr, f func(Call) Call) Expr {
	each := func(list []Expr) []Expr {
		out := make([]Expr, len(list))
		for i, x := range list {
			out[i] = MapCalls(x, f)
		}
		return out
	}
	switch e := e.(type) {
	case List:
		e.Elems = each(e.Elems)
		return e
	case Unary:
		e.X = MapCalls(e.X, f)
		return e
	case Binary:
		e.X, e.Y = MapCalls(e.X, f), MapCalls(e.Y, f)
		return e
	case Cond:
		e.If, e.Then, e.Else = MapCalls(e.If, f), MapCalls(e.Then, f), MapCalls(e.Else, f)
		return e
	case Index:
		e.X, e.I = MapCalls(e.X, f), MapCalls(e.I, f)
		return e
	case Slice:
		e.X = MapCalls(e.X, f)
		if e.Lo != nil {
			e.Lo = MapCalls(e.Lo, f)
		}
		if e.Hi != nil {
			e.Hi = MapCalls(e.Hi, f)
		}
		return e
	case As:
		e.X, e.Dims = MapCalls(e.X, f), each(e.Dims)
		return e
	case Call:
		e.Args = each(e.Args)
		named := make([]Named, len(e.Named))
		for i, n := range e.Named {
			n.X = MapCalls(n.X, f)
			named[i] = n
		}
		e.Named = named
		return f(e)
	}
	return e
}

// Sets says whether the call gives name=.
func (c Call) Sets(name string) bool {
	for _, n := range c.Named {
		if n.Name == name {
			return true
		}
	}
	return false
}

// Error is a mistake at a place in the text.
type Error struct {
	At  int // byte offset in the text
	Msg string
}

func (e *Error) Error() string { return e.Msg }

func errorf(at int, format string, args ...any) *Error {
	return &Error{at, fmt.Sprintf(format, args...)}
}
