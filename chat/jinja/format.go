package jinja

// Python's two ways to put values into text: "%d" % x and "{:d}".format(x).

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is how one value is written.
type spec struct {
	fill      string
	align     byte // <, >, ^, =; 0: the type's own
	sign      byte
	alternate bool
	width     int
	comma     byte
	precision int // -1: none
	verb      byte
}

// percent is s % values.
func (in *interp) percent(s string, values any, escape bool) string {
	args := []any{values}
	if t, ok := values.(*Tuple); ok {
		args = t.Items
	}
	d, isDict := values.(*Dict)
	isMapping := isDict // what has elements may stay unused
	switch values.(type) {
	case *List, *rangeValue, *Undefined:
		isMapping = true
	}
	at, named := 0, false
	take := func() any {
		if at >= len(args) {
			throw("TypeError", "not enough arguments for format string")
		}
		at++
		return args[at-1]
	}
	out := &buffer{in: in}
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			out.write(s)
			break
		}
		out.write(s[:i])
		s = s[i+1:]
		var arg any
		fetch := take
		if strings.HasPrefix(s, "(") {
			end := strings.IndexByte(s, ')')
			if end < 0 {
				throw("ValueError", "incomplete format key")
			}
			if !isDict {
				throw("TypeError", "format requires a mapping")
			}
			v, ok := d.Get(s[1:end])
			if !ok {
				throw("KeyError", "%s", reprString(s[1:end]))
			}
			s, named = s[end+1:], true
			fetch = func() any { return v }
		}
		sp, rest := in.percentSpec(s, take)
		if s = rest; sp.verb == '%' {
			out.write("%")
			continue
		}
		arg = fetch()
		if _, _, _, isNumber := number(arg); escape && !isNumber && sp.verb == 's' {
			arg = in.escape(arg)
		}
		value := in.percentValue(sp, arg)
		if escape && sp.verb == 'r' {
			value = in.escape(value)
		}
		out.write(value)
	}
	if !named && !isMapping && at < len(args) {
		throw("TypeError", "not all arguments converted during string formatting")
	}
	return out.b.String()
}

// percentSpec reads flags, width, precision and the letter.
func (in *interp) percentSpec(s string, take func() any) (spec, string) {
	sp := spec{fill: " ", align: '>', precision: -1}
	i := 0
	for ; i < len(s) && strings.IndexByte("#0- +", s[i]) >= 0; i++ {
		switch s[i] {
		case '#':
			sp.alternate = true
		case '0':
			if sp.align != '<' {
				sp.fill, sp.align = "0", '='
			}
		case '-':
			sp.fill, sp.align = " ", '<'
		case '+':
			sp.sign = '+'
		case ' ':
			if sp.sign == 0 {
				sp.sign = ' '
			}
		}
	}
	num := func() int {
		if i < len(s) && s[i] == '*' {
			i++
			n, _, isInt, ok := number(take())
			if !ok || !isInt {
				throw("TypeError", "* wants int")
			}
			return in.bounded(n)
		}
		start := i
		for i < len(s) && decimal(s[i]) {
			i++
		}
		n, err := strconv.ParseInt(s[start:i], 10, 64)
		if start < i && err != nil {
			n = math.MaxInt64
		}
		return in.bounded(n)
	}
	sp.width = num()
	if i < len(s) && s[i] == '.' {
		i++
		sp.precision = num()
	}
	for i < len(s) && strings.IndexByte("hlL", s[i]) >= 0 {
		i++
	}
	if i >= len(s) {
		throw("ValueError", "incomplete format")
	}
	sp.verb = s[i]
	return sp, s[i+1:]
}

// bounded refuses a width that would make a huge text.
func (in *interp) bounded(n int64) int {
	if n > int64(in.limits.Output) || n < -int64(in.limits.Output) {
		throw("LimitError", "a width of %d is asked for", n)
	}
	in.charge(int(max(n, -n)))
	return int(n)
}

func (in *interp) percentValue(sp spec, v any) string {
	switch sp.verb {
	case 's', 'r', 'a':
		t := ""
		if t = in.repr(v); sp.verb == 's' {
			t = in.str(v)
		}
		if sp.align == '=' {
			sp.fill, sp.align = " ", '>'
		}
		return sp.pad("", cut(t, sp.precision))
	case 'c':
		if t, ok := text(v); ok && utf8.RuneCountInString(t) == 1 {
			return sp.pad("", t)
		}
		n, _, isInt, ok := number(v)
		if !ok || !isInt || n < 0 || n > utf8.MaxRune {
			throw("TypeError", "%%c requires int or char")
		}
		return sp.pad("", string(rune(n)))
	case 'd', 'i', 'u', 'x', 'X', 'o':
		n, f, isInt, ok := number(v)
		if u, undefined := v.(*Undefined); undefined && sp.verb != 'x' && sp.verb != 'X' && sp.verb != 'o' {
			u.fail()
		}
		if !ok || !isInt && sp.verb != 'd' && sp.verb != 'i' && sp.verb != 'u' {
			if sp.verb == 'd' || sp.verb == 'i' || sp.verb == 'u' {
				throw("TypeError", "%%%c format: a real number is required, not %s", sp.verb, typeName(v))
			}
			throw("TypeError", "%%%c format: an integer is required, not %s", sp.verb, typeName(v))
		}
		if !isInt {
			n = toInt(f)
		}
		if sp.verb == 'i' || sp.verb == 'u' {
			sp.verb = 'd'
		}
		return sp.integer(n)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		_, f, _, ok := number(v)
		if u, undefined := v.(*Undefined); undefined {
			u.fail()
		}
		if !ok {
			throw("TypeError", "must be real number, not %s", typeName(v))
		}
		if sp.precision < 0 {
			sp.precision = 6
		}
		return sp.float(f)
	}
	throw("ValueError", "unsupported format character '%c' (0x%x)", sp.verb, sp.verb)
	return ""
}

func toInt(f float64) int64 {
	switch {
	case math.IsNaN(f):
		throw("ValueError", "cannot convert float NaN to integer")
	case math.IsInf(f, 0):
		throw("OverflowError", "cannot convert float infinity to integer")
	case math.Abs(f) >= 1<<63:
		throw("OverflowError", "%s does not fit an integer of 64 bits", reprFloat(f))
	}
	return int64(f)
}

func cut(s string, precision int) string {
	if precision < 0 || utf8.RuneCountInString(s) <= precision {
		return s
	}
	return string([]rune(s)[:precision])
}

// pad fills up to the width; sign is what stands before the fill of =.
func (sp *spec) pad(sign, s string) string {
	n := sp.width - utf8.RuneCountInString(sign) - utf8.RuneCountInString(s)
	if n <= 0 {
		return sign + s
	}
	switch sp.align {
	case '<':
		return sign + s + strings.Repeat(sp.fill, n)
	case '^':
		return strings.Repeat(sp.fill, n/2) + sign + s + strings.Repeat(sp.fill, n-n/2)
	case '=':
		return sign + strings.Repeat(sp.fill, n) + s
	}
	return strings.Repeat(sp.fill, n) + sign + s
}

func (sp *spec) signOf(negative bool) string {
	switch {
	case negative:
		return "-"
	case sp.sign == '+' || sp.sign == ' ':
		return string(sp.sign)
	}
	return ""
}

func (sp *spec) integer(n int64) string {
	base, prefix := 10, ""
	switch sp.verb {
	case 'x', 'X':
		base, prefix = 16, "0x"
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	}
	digits := strings.TrimPrefix(strconv.FormatInt(n, base), "-")
	if !sp.alternate {
		prefix = ""
	}
	if sp.verb == 'X' {
		digits, prefix = strings.ToUpper(digits), strings.ToUpper(prefix)
	}
	if sp.precision > len(digits) { // only % has one here
		digits = strings.Repeat("0", sp.precision-len(digits)) + digits
	}
	return sp.pad(sp.signOf(n < 0)+prefix, sp.group(digits))
}

// group puts commas between thousands.
func (sp *spec) group(digits string) string {
	if sp.comma == 0 {
		return digits
	}
	whole, rest, dot := strings.Cut(digits, ".")
	var b strings.Builder
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(sp.comma)
		}
		b.WriteByte(whole[i])
	}
	if dot {
		b.WriteString("." + rest)
	}
	return b.String()
}

func (sp *spec) float(f float64) string {
	negative := math.Signbit(f) && !math.IsNaN(f)
	f = math.Abs(f)
	verb, suffix := sp.verb, ""
	if verb == '%' {
		f, verb, suffix = f*100, 'f', "%"
	}
	var s string
	switch {
	case math.IsNaN(f):
		s = "nan"
	case math.IsInf(f, 0):
		s = "inf"
	default:
		switch verb | 0x20 {
		case 'g':
			s = formatG(f, sp.precision, sp.alternate)
		default:
			s = strconv.FormatFloat(f, verb|0x20, min(sp.precision, 400), 64)
		}
	}
	if verb == 'E' || verb == 'F' || verb == 'G' {
		s = strings.ToUpper(s)
	}
	return sp.pad(sp.signOf(negative), sp.group(s)+suffix)
}

// formatG is C's %g: the shorter of two ways, without zeros at the end.
func formatG(f float64, precision int, keep bool) string {
	precision = min(max(precision, 1), 400)
	e := strconv.FormatFloat(f, 'e', precision-1, 64)
	mantissa, exponent, _ := strings.Cut(e, "e")
	x, _ := strconv.Atoi(exponent)
	if f == 0 {
		x = 0
	}
	trim := func(s string) string {
		if keep || !strings.Contains(s, ".") {
			return s
		}
		return strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if x < -4 || x >= precision {
		return trim(mantissa) + "e" + exponent
	}
	return trim(strconv.FormatFloat(f, 'f', precision-1-x, 64))
}

// formatMethod is str.format or str.format_map.
func formatMethod(s, name string, safe bool) any {
	return method(name, func(in *interp, args []any, kw *Dict) any {
		if name == "format_map" {
			if len(args) != 1 {
				throw("TypeError", "format_map() takes exactly one argument (%d given)", len(args))
			}
			d, ok := args[0].(*Dict)
			if !ok {
				throw("TypeError", "format_map() takes a mapping, not %s", typeName(args[0]))
			}
			args, kw = nil, d
		}
		f := &formatter{in: in, args: args, kw: kw, safe: safe}
		if safe {
			return Markup(f.format(s, 2))
		}
		return f.format(s, 2)
	})
}

type formatter struct {
	in   *interp
	args []any
	kw   *Dict
	auto int  // the next {}; -1: fields are numbered by hand
	safe bool // what fields hold is escaped
}

func (f *formatter) format(s string, depth int) string {
	if depth < 0 {
		throw("ValueError", "Max string recursion exceeded")
	}
	out := &buffer{in: f.in}
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			out.write(s)
			break
		}
		out.write(s[:i])
		if i+1 < len(s) && s[i+1] == s[i] {
			out.write(s[i : i+1])
			s = s[i+2:]
			continue
		}
		if s[i] == '}' {
			throw("ValueError", "Single '}' encountered in format string")
		}
		end := fieldEnd(s, i+1)
		if end < 0 {
			if i+1 >= len(s) {
				throw("ValueError", "Single '{' encountered in format string")
			}
			throw("ValueError", "expected '}' before end of string")
		}
		out.write(f.field(s[i+1:end], depth))
		s = s[end+1:]
	}
	return out.b.String()
}

func fieldEnd(s string, at int) int {
	depth := 1
	for ; at < len(s); at++ {
		switch s[at] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return at
			}
		}
	}
	return -1
}

// field writes one {...}.
func (f *formatter) field(field string, depth int) string {
	name, format := field, ""
	if i := strings.IndexByte(field, ':'); i >= 0 && !strings.Contains(field[:i], "[") {
		name, format = field[:i], field[i+1:]
	} else if j := strings.IndexByte(field, ']'); j >= 0 {
		if i := strings.IndexByte(field[j:], ':'); i >= 0 {
			name, format = field[:j+i], field[j+i+1:]
		}
	}
	name, conversion, converted := strings.Cut(name, "!")
	v := f.value(name)
	if converted {
		switch conversion {
		case "s":
			v = f.in.str(v)
		case "r", "a":
			v = f.in.repr(v)
		default:
			throw("ValueError", "Unknown conversion specifier %s", conversion)
		}
	}
	_, markup := v.(Markup)
	if markup && f.safe && format != "" {
		throw("ValueError", "Unsupported format specification for Markup.")
	}
	s := f.in.formatValue(v, f.format(format, depth-1))
	if f.safe && !markup {
		return f.in.escape(s)
	}
	return s
}

// value finds what a field names, such as 0.name[key].
func (f *formatter) value(name string) any {
	i := strings.IndexAny(name, ".[")
	first, rest := name, ""
	if i >= 0 {
		first, rest = name[:i], name[i:]
	}
	var v any
	n, err := strconv.Atoi(first)
	switch {
	case first == "":
		if f.auto < 0 {
			throw("ValueError", "cannot switch from manual field specification to automatic field numbering")
		}
		v = f.arg(f.auto)
		f.auto++
	case err == nil:
		if f.auto > 0 {
			throw("ValueError", "cannot switch from automatic field numbering to manual field specification")
		}
		f.auto = -1
		v = f.arg(n)
	default:
		var ok bool
		if v, ok = f.kw.Get(first); !ok {
			throw("KeyError", "%s", reprString(first))
		}
	}
	for rest != "" {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			v, rest = f.in.getAttr(v, rest[1:end]), rest[end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 0 {
			throw("ValueError", "Missing ']' in format string")
		}
		var key any = rest[1:end]
		if n, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil {
			key = n
		}
		v, rest = f.in.getItem(v, key), rest[end+1:]
	}
	return v
}

func (f *formatter) arg(i int) any {
	if i < 0 || i >= len(f.args) {
		throw("IndexError", "tuple index out of range")
	}
	return f.args[i]
}

// formatValue is Python's format(v, spec).
func (in *interp) formatValue(v any, format string) string {
	if format == "" {
		return in.str(v)
	}
	sp := in.parseSpec(format)
	if s, ok := text(v); ok {
		if sp.verb != 0 && sp.verb != 's' {
			throw("ValueError", "Unknown format code '%c' for object of type 'str'", sp.verb)
		}
		if sp.sign != 0 {
			throw("ValueError", "Sign not allowed in string format specifier")
		}
		if sp.comma != 0 {
			throw("ValueError", "Cannot specify '%c' with 's'.", sp.comma)
		}
		if sp.align == 0 || sp.align == '=' {
			sp.align = '<'
		}
		return sp.pad("", cut(s, sp.precision))
	}
	n, f, isInt, ok := number(v)
	if !ok {
		throw("TypeError", "unsupported format string passed to %s.__format__", typeName(v))
	}
	if sp.align == 0 {
		sp.align = '>'
	}
	switch {
	case isInt && strings.IndexByte("dxXobn\x00", sp.verb) >= 0:
		if sp.precision >= 0 {
			throw("ValueError", "Precision not allowed in integer format specifier")
		}
		return sp.integer(n)
	case isInt && sp.verb == 'c':
		return sp.pad("", string(rune(n)))
	case strings.IndexByte("eEfFgG%n", sp.verb) >= 0 && sp.verb != 0:
		if sp.precision < 0 {
			sp.precision = 6
		}
		if sp.verb == 'n' {
			sp.verb = 'g'
		}
		return sp.float(f)
	case sp.verb == 0:
		if sp.precision >= 0 {
			sp.verb = 'g'
			return sp.float(f)
		}
		s := strings.TrimPrefix(reprFloat(f), "-")
		return sp.pad(sp.signOf(math.Signbit(f)), sp.group(s))
	}
	throw("ValueError", "Unknown format code '%c' for object of type '%s'", sp.verb, typeName(v))
	return ""
}

func isAlign(c byte) bool { return c == '<' || c == '>' || c == '^' || c == '=' }

func (in *interp) parseSpec(s string) spec {
	sp := spec{fill: " ", precision: -1}
	if _, n := utf8.DecodeRuneInString(s); n < len(s) && isAlign(s[n]) {
		sp.fill, sp.align, s = s[:n], s[n], s[n+1:]
	} else if isAlign(s[0]) {
		sp.align, s = s[0], s[1:]
	}
	take := func(set string) byte {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	num := func() int {
		i := 0
		for i < len(s) && decimal(s[i]) {
			i++
		}
		n, err := strconv.ParseInt("0"+s[:i], 10, 64)
		if err != nil {
			n = math.MaxInt64
		}
		s = s[i:]
		return in.bounded(n)
	}
	sp.sign = take("+- ")
	sp.alternate = take("#") != 0
	if take("0") != 0 && sp.align == 0 {
		sp.fill, sp.align = "0", '='
	}
	sp.width = num()
	sp.comma = take(",_")
	if take(".") != 0 {
		if s == "" || !decimal(s[0]) {
			throw("ValueError", "Format specifier missing precision")
		}
		sp.precision = num()
	}
	if s != "" {
		sp.verb, s = s[0], s[1:]
	}
	if s != "" {
		throw("ValueError", "Invalid format specifier")
	}
	return sp
}
