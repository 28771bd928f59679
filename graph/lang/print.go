package lang

import "strings"

// how tightly expressions bind, loosest first.
const (
	bindCond = iota
	bindOr
	bindAnd
	bindCompare
	bindSum
	bindProduct
	bindSign
	bindPower
	bindPostfix
)

var binds = map[string]int{"or": bindOr, "and": bindAnd, "==": bindCompare, "!=": bindCompare, "<": bindCompare,
	"<=": bindCompare, ">": bindCompare, ">=": bindCompare, "in": bindCompare, "not-in": bindCompare, "+": bindSum,
	"-": bindSum, "*": bindProduct, "/": bindProduct, "//": bindProduct, "%": bindProduct, "**": bindPower}

// Print writes an expression as text that Parse reads as the same one. Words are in single quotes where they can be.
func Print(e Expr) string { return printed(e, bindCond) }

func printed(e Expr, outer int) string {
	text, binds := printOne(e)
	if binds < outer {
		return "(" + text + ")"
	}
	return text
}

func printList(list []Expr) string {
	all := make([]string, len(list))
	for i, x := range list {
		all[i] = Print(x)
	}
	return strings.Join(all, ", ")
}

func printOne(e Expr) (text string, binding int) {
	switch e := e.(type) {
	case Num:
		if e.V < 0 {
			return Format(e.V), bindSign
		}
		return Format(e.V), bindPostfix
	case Str:
		if strings.Contains(e.V, "'") {
			return `"` + e.V + `"`, bindPostfix
		}
		return "'" + e.V + "'", bindPostfix
	case Name:
		return e.Name, bindPostfix
	case List:
		return "[" + printList(e.Elems) + "]", bindPostfix
	case Unary:
		if e.Op == "not" {
			return "not " + printed(e.X, bindCompare), bindCompare
		}
		return e.Op + printed(e.X, bindSign), bindSign
	case Binary:
		return printBinary(e)
	case Cond:
		return printed(e.Then, bindOr) + " if " + printed(e.If, bindOr) + " else " + printed(e.Else, bindCond), bindCond
	case Index:
		return printed(e.X, bindPostfix) + "[" + Print(e.I) + "]", bindPostfix
	case Slice:
		lo, hi := "", ""
		if e.Lo != nil {
			lo = Print(e.Lo)
		}
		if e.Hi != nil {
			hi = Print(e.Hi)
		}
		return printed(e.X, bindPostfix) + "[" + lo + ":" + hi + "]", bindPostfix
	case As:
		return printed(e.X, bindPostfix) + " as [" + printList(e.Dims) + "]", bindPostfix
	case Call:
		args := make([]string, 0, len(e.Args)+len(e.Named)+1)
		for _, x := range e.Args {
			args = append(args, Print(x))
		}
		for _, n := range e.Named {
			args = append(args, n.Name+"="+Print(n.X))
		}
		if e.Rest != nil {
			args = append(args, "...")
		}
		return e.Func + "(" + strings.Join(args, ", ") + ")", bindPostfix
	}
	return "", bindPostfix
}

func printBinary(e Binary) (string, int) {
	b := binds[e.Op]
	switch e.Op {
	case "**":
		return printed(e.X, bindPostfix) + "**" + printed(e.Y, bindSign), bindPower
	case "not-in":
		return printed(e.X, b+1) + " not in " + printed(e.Y, b+1), b
	case "*", "/", "//", "%":
		return printed(e.X, b) + e.Op + printed(e.Y, b+1), b
	case "==", "!=", "<", "<=", ">", ">=", "in": // a "not" on the left would take the whole comparison
		return printed(e.X, b+1) + " " + e.Op + " " + printed(e.Y, b+1), b
	}
	return printed(e.X, b) + " " + e.Op + " " + printed(e.Y, b+1), b
}
