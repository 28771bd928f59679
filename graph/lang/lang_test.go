package lang

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// text prints a tree with every parenthesis, so that precedence shows.
func text(e Expr) string {
	list := func(all []Expr) string {
		parts := make([]string, len(all))
		for i, x := range all {
			parts[i] = text(x)
		}
		return strings.Join(parts, ", ")
	}
	switch e := e.(type) {
	case Num:
		return Format(e.V)
	case Str:
		return "'" + e.V + "'"
	case Name:
		return e.Name
	case List:
		return "[" + list(e.Elems) + "]"
	case Unary:
		return "(" + e.Op + " " + text(e.X) + ")"
	case Binary:
		return "(" + text(e.X) + " " + e.Op + " " + text(e.Y) + ")"
	case Cond:
		return "(" + text(e.Then) + " if " + text(e.If) + " else " + text(e.Else) + ")"
	case Index:
		return text(e.X) + "[" + text(e.I) + "]"
	case Slice:
		lo, hi := "", ""
		if e.Lo != nil {
			lo = text(e.Lo)
		}
		if e.Hi != nil {
			hi = text(e.Hi)
		}
		return text(e.X) + "[" + lo + ":" + hi + "]"
	case As:
		return "(" + text(e.X) + " as [" + list(e.Dims) + "])"
	case Call:
		s := e.Func + "(" + list(e.Args)
		for _, n := range e.Named {
			s += "; " + n.Name + "=" + text(n.X)
		}
		if e.Rest != nil {
			s += "; ..."
		}
		return s + ")"
	}
	return fmt.Sprintf("%T", e)
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"1 + 2 * 3", "(1 + (2 * 3))"},
		{"(1 + 2) * 3", "((1 + 2) * 3)"},
		{"a - b - c", "((a - b) - c)"},
		{"a / b * c // d % e", "((((a / b) * c) // d) % e)"},
		{"-a ** b", "(- (a ** b))"},
		{"a ** -b", "(a ** (- b))"},
		{"a ** b ** c", "(a ** (b ** c))"},
		{"D**-0.5", "(D ** (- 0.5))"},
		{"- - a", "(- (- a))"},
		{"not a == b", "(not (a == b))"},
		{"not not a", "(not (not a))"},
		{"a and not b or c", "((a and (not b)) or c)"},
		{"a or b and c", "(a or (b and c))"},
		{"a < b and c >= d", "((a < b) and (c >= d))"},
		{"a if b else c if d else e", "(a if b else (c if d else e))"},
		{"x + y if a or b else z", "((x + y) if (a or b) else z)"},
		{"f(x) as [S, H*Dh] + y", "((f(x) as [S, (H * Dh)]) + y)"},
		{"x as [2] as [1, 2]", "((x as [2]) as [1, 2])"},
		{"-x as [2]", "(- (x as [2]))"},
		{"f(x, g(y, a=1), b=[1, 2], c='w', ...)", "f(x, g(y; a=1); b=[1, 2]; c='w'; ...)"},
		{"f(...)", "f(; ...)"},
		{"f()", "f()"},
		{"[]", "[]"},
		{"[1, 2,]", "[1, 2]"},
		{"f(x,)", "f(x)"},
		{"1e-5 + 1_000 + .5 + 2.", "(((1e-05 + 1000) + 0.5) + 2)"},
		{"2e", "error at 0: \"2e\" is not a number"},
		{"2ex", "error at 0: \"2e\" is not a number"},
		{"true and false", "(true and false)"},
		{"a\n\t+ b\r\n", "(a + b)"},
		{`"it's"`, "'it's'"},
		{"-a[1]**2", "(- (a[1] ** 2))"},
		{"a[i][-1:b] as [2]", "(a[i][(- 1):b] as [2])"},
		{"a[:] + f(x)[0]", "(a[:] + f(x)[0])"},
		{"not a in b and c not in d", "((not (a in b)) and (c not-in d))"},
	} {
		got := ""
		e, err := Parse(c.in)
		if err != nil {
			got = fmt.Sprintf("error at %d: %v", err.(*Error).At, err)
		} else {
			got = text(e)
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
	}
}

// Errors point at the byte where the text goes wrong.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		in   string
		at   int
		want string
	}{
		{"", 0, "expected a value, found the end"},
		{"a +", 3, "expected a value, found the end"},
		{"a b", 2, `expected an operator or the end, found "b"`},
		{"a = b", 2, `found "="`},
		{"f(x", 3, `expected ",", found the end`},
		{"(a", 2, `expected ")", found the end`},
		{"[1 2]", 3, `expected ",", found "2"`},
		{"x as y", 5, `expected [sizes] behind "as", found "y"`},
		{"a if b", 6, `expected "else", found the end`},
		{"a $ b", 2, "unexpected character '$'"},
		{"é + 1", 0, "unexpected character 'é'"},
		{"a + 'b", 4, "the quote ' is not closed"},
		{"f(a=1, b)", 7, "an operand cannot follow the attribute a="},
		{"f(a=1, a=2)", 7, "a= is given twice"},
		{"f(..., a=1)", 2, `"..." closes a call`},
		{"1.2.3", 0, "is not a number"},
		{"12ab", 0, "is not a number"},
		{"1 < < 2", 4, "expected a value"},
		{"if", 0, "expected a value"},
		{"... + 1", 0, "expected a value"},
		{"a[", 2, "expected a value, found the end"},
		{"a[]", 2, "expected a value"},
		{"a[1", 3, `expected "]", found the end`},
		{"a not b", 6, `expected "in", found "b"`},
	} {
		_, err := Parse(c.in)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q is accepted", c.in)
			continue
		}
		if e.At != c.at || !strings.Contains(e.Msg, c.want) {
			t.Errorf("%q: at %d %q, want at %d %q", c.in, e.At, e.Msg, c.at, c.want)
		}
	}
}

// No text exhausts the stack.
func TestDepth(t *testing.T) {
	for name, in := range map[string]string{
		"parentheses": strings.Repeat("(", 5_000),
		"lists":       strings.Repeat("[", 5_000),
		"minus":       strings.Repeat("-", 5_000) + "1",
		"not":         strings.Repeat("not ", 5_000) + "a",
		"powers":      strings.Repeat("a**", 5_000) + "a",
		"calls":       strings.Repeat("f(", 5_000),
		"conditions":  strings.Repeat("a if b else ", 5_000) + "c",
	} {
		_, err := Parse(in)
		if err == nil || !strings.Contains(err.Error(), "nested more than 200 deep") {
			t.Errorf("%s: %v", name, err)
		}
	}
	ok := strings.Repeat("(", 150) + "1" + strings.Repeat(")", 150)
	if _, err := Parse(ok); err != nil {
		t.Errorf("150 parentheses: %v", err)
	}
	if _, err := Parse(strings.Repeat("1+", 10_000) + "1"); err != nil {
		t.Errorf("a long sum is not deep: %v", err)
	}
	if _, err := Parse(strings.Repeat("1+", 40_000) + "1"); err == nil ||
		!strings.Contains(err.Error(), "80001 characters") {
		t.Errorf("a sum of 40000: %v", err)
	}
}

func env(name string) (Val, bool) {
	v, ok := map[string]Val{"D": 4096.0, "H": 32.0, "act": "silu", "silu": "silu", "yes": true, "none": nil,
		"sizes": []Val{1.0, 2.0}}[name]
	return v, ok
}

func TestEval(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Val
	}{
		{"D/H", 128.0}, {"D//100", 40.0}, {"-7 // 2", -4.0}, {"-7 % 3", 2.0}, {"7 % -3", -2.0}, {"2**10", 1024.0},
		{"-2**2", -4.0},
		{"D**-0.5", 1.0 / 64}, {"min(D, 3) + max(1, 2)", 5.0}, {"sqrt(16)", 4.0}, {"floor(2.7) + ceil(2.1)", 5.0},
		{"log(1)", 0.0},
		{"act == silu", true}, {"act == 'silu'", true}, {`act != "gelu"`, true}, {"D == '4096'", false},
		{"sizes == [1, 2]", true}, {"sizes == [1]", false},
		{"1 < 2 and 2 <= 2 and 3 > 2 and 3 >= 3", true}, {"not yes", false}, {"not 0", true},
		{"has(none)", false}, {"has(D)", true}, {"none or 3", 3.0}, {"D or 1/0", 4096.0}, {"none or none or act", "silu"},
		{"1 if yes else 1/0", 1.0}, {"1/0 if not yes else 2", 2.0}, // only the branch taken
		{"yes or 1/0", true}, {"not yes and 1/0", false}, // no more than decides
		{"[D, [H]]", []Val{4096.0, []Val{32.0}}}, {"+3", 3.0}, {"true", true},
		{"sizes[0] + sizes[-1]", 3.0}, {"[1, 2, 3][1:]", []Val{2.0, 3.0}}, {"[1, 2, 3][:-1]", []Val{1.0, 2.0}},
		{"[1, 2, 3][7:]", []Val{}},
		{"[[1, 2], [3]][0][1]", 2.0}, {"2 in sizes", true}, {"act in ['gelu', 'silu']", true}, {"act not in ['gelu']", true},
		{"not act in ['gelu']", true}, {"'el' in 'gelu'", true}, {"'c2p' not in 'p2c|p2p'", true},
		{"len(sizes) + len([])", 2.0}, {"count([1, 2, 1], 1)", 2.0}, {"find([1, 2, 1], 1)", 0.0},
		{"rfind([1, 2, 1], 1)", 2.0}, {"find(sizes, 9)", -1.0},
		{"abs(-3) + exp(0)", 4.0}, {"1 if 1 in sizes else 2", 1.0},
	} {
		e, err := Parse(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		got, err := Eval(e, env)
		if err != nil || !equal(got, c.want) {
			t.Errorf("%q is %v, %v; want %v", c.in, Format(got), err, Format(c.want))
		}
	}
}

func TestEvalErrors(t *testing.T) {
	for _, c := range []struct {
		in   string
		at   int
		want string
	}{
		{"D + x", 4, "unknown name x"},
		{"D / (H - 32)", 2, "division by zero"},
		{"D % 0", 2, "division by zero"},
		{"10 ** 400", 3, "10 ** 400 is not a finite number"},
		{"(-1) ** 0.5", 5, "is not a finite number"},
		{"1 + act", 4, "a number is wanted here, not silu"},
		{"none * 2", 0, "none is absent"},
		{"sizes < 2", 0, "a number is wanted here, not [1, 2]"},
		{"1 if act else 2", 5, "a condition is wanted here, not silu"},
		{"not act", 4, "a condition is wanted here"},
		{"1 and act", 6, "a condition is wanted here"},
		{"sqrt(-1)", 0, "sqrt(-1) is not a finite number"},
		{"log(0)", 0, "is not a finite number"},
		{"min(1)", 0, "min takes 2 numbers"},
		{"sqrt(1, 2)", 0, "sqrt takes 1 numbers"},
		{"min(1, 2, ...)", 0, "min takes 2 numbers"},
		{"linear(1)", 0, "is no function of numbers"},
		{"D as [2]", 2, "a number is wanted here, not a tensor"},
		{"[1, x]", 4, "unknown name x"},
		{"none == 1", 0, "none is absent: nothing says its value; ask has(none), or write none or DEFAULT"},
		{"1 if none else 2", 5, "a condition is wanted here, but none is absent"},
		{"not none", 4, "none is absent"},
		{"yes and none", 8, "none is absent"},
		{"none[0]", 0, "a list is wanted here, but none is absent"},
		{"sizes[2]", 6, "index 2 lies outside a list of 2"},
		{"sizes[-3]", 6, "index -3 lies outside"},
		{"sizes[0.5]", 6, "an index is a whole number, not 0.5"},
		{"sizes['a':]", 6, "a bound of a slice is a whole number, not a"},
		{"D[0]", 0, "a list is wanted here, not 4096"},
		{"1 in D", 5, "a list or a word is wanted behind in, not 4096"},
		{"1 in 'ab'", 0, "a word is wanted before in, as one stands behind it, not 1"},
		{"len(D)", 4, "a list is wanted here"},
		{"len()", 0, "len takes a list"},
		{"find(sizes)", 0, "find takes a list and a value"},
	} {
		e, err := Parse(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		v, err := Eval(e, env)
		var le *Error
		if !errors.As(err, &le) {
			t.Errorf("%q is %v", c.in, v)
			continue
		}
		if le.At != c.at || !strings.Contains(le.Msg, c.want) {
			t.Errorf("%q: at %d %q, want at %d %q", c.in, le.At, le.Msg, c.at, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{"x": true, "_a1": true, "wq": true, "": false, "1a": false, "a-b": false,
		"if": false, "true": false, "as": false, "é": false, "a b": false} {
		if IsName(name) != want {
			t.Errorf("IsName(%q) is %v", name, !want)
		}
	}
	for v, want := range map[float64]bool{3: true, -3: true, 0: true, 0.5: false, 1e300: false, math.Inf(1): false} {
		if _, ok := Int(v); ok != want {
			t.Errorf("Int(%g) is %v", v, ok)
		}
	}
	if _, ok := Int("3"); ok {
		t.Error("a word is an integer")
	}
}

func TestFormat(t *testing.T) {
	for want, v := range map[string]Val{"null": nil, "4096": 4096.0, "1e-05": 1e-5, "-0.5": -0.5, "1e+20": 1e20,
		"true": true, "silu": "silu", "[1, [a]]": []Val{1.0, []Val{"a"}}} {
		if got := Format(v); got != want {
			t.Errorf("%#v prints as %s, want %s", v, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"linear", "linear_id", "rmsnorm", "rope", "rows", "silu", "attention"}
	for name, want := range map[string]string{
		"liner": "linear", "linaer": "linear", "rmsnrom": "rmsnorm", "atention": "attention", "attentoin": "attention",
		"sliu": "silu",
		"rop":  "rope", "rowe": "rope", // as near to rows: the first in the alphabet
		"conv2d": "", "x": "", "": "", strings.Repeat("a", 300): "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("nearest to %.20q is %q, want %q", name, got, want)
		}
	}
}

// MapCalls reaches each call, inner ones first, and leaves the tree it was given.
func TestMapCalls(t *testing.T) {
	const in = "-f(g(x), a=h(y, ...)) as [k(1)] + [l(m if n(1) else o(2))]"
	e, err := Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	before := text(e)
	var order []string
	out := MapCalls(e, func(c Call) Call {
		order = append(order, c.Func)
		c.Func += "2"
		c.Named = append(c.Named, Named{Name: "z", X: Num{V: 1}})
		c.Rest = nil
		return c
	})
	if got := strings.Join(order, " "); got != "g h f k n o l" {
		t.Errorf("order %s", got)
	}
	if text(e) != before {
		t.Errorf("the tree was changed: %s", text(e))
	}
	if want := "((- (f2(g2(x; z=1); a=h2(y; z=1); z=1) as [k2(1; z=1)])) + " +
		"[l2((m if n2(1; z=1) else o2(2; z=1)); z=1)])"; text(out) != want {
		t.Errorf("%s\nwant %s", text(out), want)
	}
	c := e.(Binary).Y.(List).Elems[0].(Call)
	if c.Sets("z") || !out.(Binary).Y.(List).Elems[0].(Call).Sets("z") {
		t.Error("Sets")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a + b", "f(x, a=1, ...)", "x as [S, -1]", "1 if a else 'b'", "not (a and b) ** -2",
		"[1, [2]]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := Parse(s)
		if err != nil {
			if at := err.(*Error).At; at < 0 || at > len(s) {
				t.Errorf("%q: at %d", s, at)
			}
			return
		}
		if _, err := Eval(e, env); err != nil {
			if at := err.(*Error).At; at < 0 || at > len(s) {
				t.Errorf("%q: at %d", s, at)
			}
		}
	})
}

// TestPrint: what is printed reads as the expression that it was made from.
func TestPrint(t *testing.T) {
	for _, text := range []string{
		"1 - (2 - 3) - 4", "-2**2", "(-2)**-2", "2**3**4", "(2**3)**4", "a*(b + c)/d", "a // (b % c)", "1e-5*x",
		"not (a and b) or c", "not a == b", "(not a) == b", "a if b else c if d else e", "(a if b else c) if d else e",
		"a if (b if c else d) else e", "f(x, [1, 2], y='w', z=a or b, ...)", "x as [S, H*Dh]", "(x + y) as [S, D]",
		"l[-1] in ['a', \"it's\"]", "a not in l[1:]", "l[:n][0] < -1", "-(a + b)", "(a or b) and c",
		"+x - -y", "x as [a] as [b]", "(a == b) == c",
	} {
		e, err := Parse(text)
		if err != nil {
			t.Fatal(text, err)
		}
		printed := Print(e)
		again, err := Parse(printed)
		if err != nil || Print(again) != printed {
			t.Errorf("%s was printed as %s, which reads as %v, %v", text, printed, again, err)
			continue
		}
		if a, b := shapeOf(e), shapeOf(again); a != b {
			t.Errorf("%s was printed as %s: %s became %s", text, printed, a, b)
		}
	}
}

// shapeOf writes a tree with a bracket around each node, without places.
func shapeOf(e Expr) string {
	all := func(list []Expr) string {
		s := ""
		for _, x := range list {
			s += shapeOf(x) + ","
		}
		return s
	}
	switch e := e.(type) {
	case Unary:
		return "(" + e.Op + shapeOf(e.X) + ")"
	case Binary:
		return "(" + shapeOf(e.X) + e.Op + shapeOf(e.Y) + ")"
	case Cond:
		return "(" + shapeOf(e.If) + "?" + shapeOf(e.Then) + ":" + shapeOf(e.Else) + ")"
	case Call:
		s := e.Func + "(" + all(e.Args)
		for _, n := range e.Named {
			s += n.Name + "=" + shapeOf(n.X)
		}
		return s + ")"
	case List:
		return "[" + all(e.Elems) + "]"
	case As:
		return "(" + shapeOf(e.X) + " as " + all(e.Dims) + ")"
	case Index:
		return shapeOf(e.X) + "@" + shapeOf(e.I)
	}
	return Print(e)
}
