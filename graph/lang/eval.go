package lang

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Val is a value of the language that is no tensor: float64, string, bool,
// []Val, or nil for what is absent.
type Val = any

// Env gives the value of a name.
type Env func(name string) (Val, bool)

// Eval computes an expression without tensors. Its error is an *Error.
func Eval(e Expr, env Env) (Val, error) {
	v, err := eval(e, env)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func eval(e Expr, env Env) (Val, *Error) {
	switch e := e.(type) {
	case Num:
		return e.V, nil
	case Str:
		return e.V, nil
	case Name:
		switch e.Name {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		if v, ok := env(e.Name); ok {
			return v, nil
		}
		return nil, &Error{e.Pos(), "unknown name " + e.Name}
	case List:
		list := make([]Val, len(e.Elems))
		for i, x := range e.Elems {
			v, err := eval(x, env)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	case Unary:
		x, err := eval(e.X, env)
		if err != nil {
			return nil, err
		}
		if e.Op == "not" {
			b, err := truth(x, e.X)
			return !b, err
		}
		n, err := number(x, e.X)
		if e.Op == "-" {
			n = -n
		}
		return n, err
	case Cond:
		c, err := eval(e.If, env)
		if err != nil {
			return nil, err
		}
		b, err := truth(c, e.If)
		if err != nil {
			return nil, err
		}
		if b {
			return eval(e.Then, env)
		}
		return eval(e.Else, env)
	case Binary:
		return binary(e, env)
	case Index:
		return index(e, env)
	case Slice:
		return slice(e, env)
	case Call:
		return call(e, env)
	}
	return nil, errorf(e.Pos(), "a number is wanted here, not a tensor")
}

// binary computes an operator of two operands: in one piece, a case an operator.
func binary(e Binary, env Env) (Val, *Error) {
	x, err := eval(e.X, env)
	if err != nil {
		return nil, err
	}
	if e.Op == "or" {
		if _, is := x.(bool); x == nil { // what is absent is taken from the other side
			return eval(e.Y, env)
		} else if !is {
			return x, nil
		}
	}
	if e.Op == "and" || e.Op == "or" {
		b, err := truth(x, e.X)
		if err != nil || b == (e.Op == "or") {
			return b, err
		}
		y, err := eval(e.Y, env)
		if err != nil {
			return nil, err
		}
		b, err = truth(y, e.Y)
		return b, err
	}
	y, err := eval(e.Y, env)
	if err != nil {
		return nil, err
	}
	for _, side := range []struct {
		v Val
		e Expr
	}{{x, e.X}, {y, e.Y}} {
		if side.v == nil {
			return nil, absent(side.e, "a value")
		}
	}
	switch e.Op {
	case "==", "!=":
		return equal(x, y) == (e.Op == "=="), nil
	case "in", "not-in":
		if text, ok := y.(string); ok {
			part, ok := x.(string)
			if !ok {
				return nil, errorf(e.X.Pos(), "a word is wanted before in, as one stands behind it, not %s", Format(x))
			}
			return strings.Contains(text, part) == (e.Op == "in"), nil
		}
		list, ok := y.([]Val)
		if !ok {
			return nil, errorf(e.Y.Pos(), "a list or a word is wanted behind in, not %s", Format(y))
		}
		return contains(list, x) == (e.Op == "in"), nil
	}
	a, err := number(x, e.X)
	if err != nil {
		return nil, err
	}
	b, err := number(y, e.Y)
	if err != nil {
		return nil, err
	}
	var r float64
	switch e.Op {
	case "<":
		return a < b, nil
	case "<=":
		return a <= b, nil
	case ">":
		return a > b, nil
	case ">=":
		return a >= b, nil
	case "+":
		r = a + b
	case "-":
		r = a - b
	case "*":
		r = a * b
	case "**":
		r = math.Pow(a, b)
	default:
		if b == 0 {
			return nil, errorf(e.Pos(), "division by zero")
		}
		switch e.Op {
		case "/":
			r = a / b
		case "//":
			r = math.Floor(a / b)
		case "%":
			r = a - b*math.Floor(a/b)
		}
	}
	if math.IsNaN(r) || math.IsInf(r, 0) {
		return nil, errorf(e.Pos(), "%s %s %s is not a finite number", Format(a), e.Op, Format(b))
	}
	return r, nil
}

// index gives an element of a list.
func index(e Index, env Env) (Val, *Error) {
	list, err := listOf(e.X, env)
	if err != nil {
		return nil, err
	}
	v, err := eval(e.I, env)
	if err != nil {
		return nil, err
	}
	i, ok := Int(v)
	if !ok {
		return nil, errorf(e.I.Pos(), "an index is a whole number, not %s", Format(v))
	}
	if i < -len(list) || i >= len(list) {
		return nil, errorf(e.I.Pos(), "index %d lies outside a list of %d", i, len(list))
	}
	if i < 0 {
		i += len(list)
	}
	return list[i], nil
}

// slice gives a part of a list. As in Python bounds beyond the ends mean the ends.
func slice(e Slice, env Env) (Val, *Error) {
	list, err := listOf(e.X, env)
	if err != nil {
		return nil, err
	}
	bound := func(x Expr, otherwise int) (int, *Error) {
		if x == nil {
			return otherwise, nil
		}
		v, err := eval(x, env)
		if err != nil {
			return 0, err
		}
		i, ok := Int(v)
		if !ok {
			return 0, errorf(x.Pos(), "a bound of a slice is a whole number, not %s", Format(v))
		}
		if i < 0 {
			i += len(list)
		}
		return min(max(i, 0), len(list)), nil
	}
	lo, err := bound(e.Lo, 0)
	if err != nil {
		return nil, err
	}
	hi, err := bound(e.Hi, len(list))
	if err != nil {
		return nil, err
	}
	return list[lo:max(lo, hi)], nil
}

// listOf evaluates what must be a list.
func listOf(e Expr, env Env) ([]Val, *Error) {
	v, err := eval(e, env)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, absent(e, "a list")
	}
	list, ok := v.([]Val)
	if !ok {
		return nil, errorf(e.Pos(), "a list is wanted here, not %s", Format(v))
	}
	return list, nil
}

func contains(list []Val, x Val) bool { return find(list, x) >= 0 }

func find(list []Val, x Val) int {
	for i, v := range list {
		if equal(v, x) {
			return i
		}
	}
	return -1
}

// absent says that what stands at e has no value, and what to do.
func absent(e Expr, want string) *Error {
	if name, ok := e.(Name); ok {
		return errorf(e.Pos(), "%s is wanted here, but %s is absent: nothing says its value; "+
			"ask has(%s), or write %s or DEFAULT", want, name.Name, name.Name, name.Name)
	}
	return errorf(e.Pos(), "%s is wanted here, but this is absent", want)
}

// listFunctions are functions whose first argument is a list.
var listFunctions = map[string]struct {
	args int
	f    func(list []Val, a []Val) Val
}{
	"len":   {1, func(list, _ []Val) Val { return float64(len(list)) }},
	"find":  {2, func(list, a []Val) Val { return float64(find(list, a[0])) }},
	"rfind": {2, func(list, a []Val) Val { return float64(rfind(list, a[0])) }},
	"count": {2, func(list, a []Val) Val { return float64(count(list, a[0])) }},
}

func rfind(list []Val, x Val) int {
	for i := len(list) - 1; i >= 0; i-- {
		if equal(list[i], x) {
			return i
		}
	}
	return -1
}

func count(list []Val, x Val) int {
	n := 0
	for _, v := range list {
		if equal(v, x) {
			n++
		}
	}
	return n
}

// listCall computes one of listFunctions.
func listCall(e Call, env Env) (Val, *Error) {
	f := listFunctions[e.Func]
	if len(e.Args) != f.args || len(e.Named) > 0 || e.Rest != nil {
		return nil, errorf(e.Pos(), "%s takes a list%s", e.Func, map[bool]string{true: " and a value"}[f.args == 2])
	}
	list, err := listOf(e.Args[0], env)
	if err != nil {
		return nil, err
	}
	var rest []Val
	for _, a := range e.Args[1:] {
		v, err := eval(a, env)
		if err != nil {
			return nil, err
		}
		rest = append(rest, v)
	}
	return f.f(list, rest), nil
}

// functions of numbers.
var functions = map[string]func(a []float64) float64{
	"min":   func(a []float64) float64 { return math.Min(a[0], a[1]) },
	"max":   func(a []float64) float64 { return math.Max(a[0], a[1]) },
	"sqrt":  func(a []float64) float64 { return math.Sqrt(a[0]) },
	"floor": func(a []float64) float64 { return math.Floor(a[0]) },
	"ceil":  func(a []float64) float64 { return math.Ceil(a[0]) },
	"log":   func(a []float64) float64 { return math.Log(a[0]) },
	"exp":   func(a []float64) float64 { return math.Exp(a[0]) },
	"abs":   func(a []float64) float64 { return math.Abs(a[0]) },
}

// IsFunction says whether name is a function of numbers, not an operator.
func IsFunction(name string) bool {
	_, list := listFunctions[name]
	return name == "has" || list || functions[name] != nil
}

func call(e Call, env Env) (Val, *Error) {
	if e.Func == "has" && len(e.Args) == 1 && len(e.Named) == 0 && e.Rest == nil { // has(x): x is not absent
		v, err := eval(e.Args[0], env)
		return v != nil, err
	}
	if _, ok := listFunctions[e.Func]; ok {
		return listCall(e, env)
	}
	f := functions[e.Func]
	if f == nil {
		return nil, errorf(e.Pos(), "%s(…) is no function of numbers; there are min, max, sqrt, floor, ceil, log, exp, abs, "+
			"len, find, rfind, count, has", e.Func)
	}
	want := 1
	if e.Func == "min" || e.Func == "max" {
		want = 2
	}
	if len(e.Args) != want || len(e.Named) > 0 || e.Rest != nil {
		return nil, errorf(e.Pos(), "%s takes %d numbers", e.Func, want)
	}
	args := make([]float64, want)
	for i, x := range e.Args {
		v, err := eval(x, env)
		if err != nil {
			return nil, err
		}
		if args[i], err = number(v, x); err != nil {
			return nil, err
		}
	}
	r := f(args)
	if math.IsNaN(r) || math.IsInf(r, 0) {
		return nil, errorf(e.Pos(), "%s(%s) is not a finite number", e.Func, Format(args[0]))
	}
	return r, nil
}

func number(v Val, e Expr) (float64, *Error) {
	if n, ok := alike(v).(float64); ok {
		return n, nil
	}
	if v == nil {
		return 0, absent(e, "a number")
	}
	return 0, errorf(e.Pos(), "a number is wanted here, not %s", Format(v))
}

func truth(v Val, e Expr) (bool, *Error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case float64:
		return v != 0, nil
	case nil:
		return false, absent(e, "a condition")
	}
	return false, errorf(e.Pos(), "a condition is wanted here, not %s", Format(v))
}

func equal(a, b Val) bool {
	la, oka := a.([]Val)
	lb, okb := b.([]Val)
	if !oka && !okb {
		return a == b
	}
	if oka != okb || len(la) != len(lb) {
		return false
	}
	for i := range la {
		if !equal(la[i], lb[i]) {
			return false
		}
	}
	return true
}

// Int gives v as an integer, if it is one that float64 holds exactly.
func Int(v Val) (int, bool) {
	n, ok := alike(v).(float64)
	if !ok || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return 0, false
	}
	return int(n), true
}

// alike gives the number that a list holds as often as it has elements: metadata
// may say for each layer what all have alike. Other values are given as they are.
func alike(v Val) Val {
	list, _ := v.([]Val)
	for _, x := range list {
		if n, ok := x.(float64); !ok || n != list[0] {
			return v
		}
	}
	if len(list) > 0 {
		return list[0]
	}
	return v
}

// Format prints a value as the language writes it; absent is null.
func Format(v Val) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []Val:
		s := make([]string, len(v))
		for i, x := range v {
			s[i] = Format(x)
		}
		return "[" + strings.Join(s, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// Nearest gives the candidate closest to name by edit distance, or "" when
// none is close enough to be a misspelling.
func Nearest(name string, candidates []string) string {
	const longest = 200 // bounds the work on names from hostile files
	best, at := "", max(1, len(name)/3)+1
	if len(name) > longest {
		return ""
	}
	for _, c := range candidates {
		if len(c)-len(name) > at || len(name)-len(c) > at {
			continue
		}
		if d := distance(name, c); d < at || d == at && best != "" && c < best {
			best, at = c, d
		}
	}
	return best
}

// distance is the optimal string alignment distance: insertions, deletions,
// substitutions and swaps of neighbours count one each.
func distance(a, b string) int {
	row := make([][]int, len(a)+1)
	for i := range row {
		row[i] = make([]int, len(b)+1)
		row[i][0] = i
	}
	for j := range row[0] {
		row[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[i][j] = min(row[i-1][j]+1, row[i][j-1]+1, row[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[i][j] = min(row[i][j], row[i-2][j-2]+1)
			}
		}
	}
	return row[len(a)][len(b)]
}
