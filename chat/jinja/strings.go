package jinja

// The methods of str.

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

var strMethods map[string]strMethod

func init() {
	plain := func(f func(string) string) strMethod { return func(s string, _ *arguments) any { return f(s) } }
	is := func(ok func(rune) bool) strMethod {
		return func(s string, _ *arguments) any { return s != "" && strings.IndexFunc(s, not(ok)) < 0 }
	}
	strMethods = map[string]strMethod{
		"upper": plain(pyUpper), "lower": plain(strings.ToLower), "casefold": plain(strings.ToLower),
		"capitalize": plain(capitalize), "title": plain(pyTitle), "swapcase": plain(swapcase),
		"isalpha": is(unicode.IsLetter), "isspace": is(pySpace), "isdigit": is(unicode.IsDigit),
		"isdecimal": is(unicode.IsDigit), "isnumeric": is(unicode.IsNumber),
		"isalnum":      is(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
		"isascii":      func(s string, _ *arguments) any { return strings.IndexFunc(s, notASCII) < 0 },
		"isupper":      func(s string, _ *arguments) any { return isUpper(s) },
		"islower":      func(s string, _ *arguments) any { return isLower(s) },
		"istitle":      func(s string, _ *arguments) any { return s == pyTitle(s) && strings.ToLower(s) != pyUpper(s) },
		"isidentifier": func(s string, _ *arguments) any { return isIdentifier(s) },
		"isprintable": func(s string, _ *arguments) any {
			return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
		},
		"strip":  func(s string, a *arguments) any { return strip(s, a.or("chars", nil), true, true) },
		"lstrip": func(s string, a *arguments) any { return strip(s, a.or("chars", nil), true, false) },
		"rstrip": func(s string, a *arguments) any { return strip(s, a.or("chars", nil), false, true) },
		"split":  func(s string, a *arguments) any { return split(s, a, false) },
		"rsplit": func(s string, a *arguments) any { return split(s, a, true) },
		"splitlines": func(s string, a *arguments) any {
			return strList(splitLines(s, a.truth("keepends", false)))
		},
		"startswith":   func(s string, a *arguments) any { return affix(s, a, "startswith", strings.HasPrefix) },
		"endswith":     func(s string, a *arguments) any { return affix(s, a, "endswith", strings.HasSuffix) },
		"replace":      replaceMethod,
		"join":         func(s string, a *arguments) any { return joinMethod(s, a) },
		"find":         func(s string, a *arguments) any { return find(s, a, strings.Index) },
		"rfind":        func(s string, a *arguments) any { return find(s, a, strings.LastIndex) },
		"index":        func(s string, a *arguments) any { return found(find(s, a, strings.Index)) },
		"rindex":       func(s string, a *arguments) any { return found(find(s, a, strings.LastIndex)) },
		"count":        countMethod,
		"partition":    func(s string, a *arguments) any { return partition(s, a, false) },
		"rpartition":   func(s string, a *arguments) any { return partition(s, a, true) },
		"removeprefix": func(s string, a *arguments) any { return strings.TrimPrefix(s, a.string("prefix", "")) },
		"removesuffix": func(s string, a *arguments) any { return strings.TrimSuffix(s, a.string("suffix", "")) },
		"center":       func(s string, a *arguments) any { return justify(s, a, 'c') },
		"ljust":        func(s string, a *arguments) any { return justify(s, a, 'l') },
		"rjust":        func(s string, a *arguments) any { return justify(s, a, 'r') },
		"zfill":        zfill,
		"expandtabs":   expandTabs,
	}
}

func not(ok func(rune) bool) func(rune) bool { return func(r rune) bool { return !ok(r) } }

func notASCII(r rune) bool { return r > 127 }

// pyUpper is upper case with the characters that become two.
func pyUpper(s string) string {
	return strings.ToUpper(strings.ReplaceAll(s, "ß", "SS"))
}

func capitalize(s string) string {
	if s == "" {
		return s
	}
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToTitle(s[:n]) + strings.ToLower(s[n:])
}

func cased(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) }

func pyTitle(s string) string {
	inside := false
	return strings.Map(func(r rune) rune {
		if !cased(r) {
			inside = false
			return r
		}
		if inside {
			return unicode.ToLower(r)
		}
		inside = true
		return unicode.ToTitle(r)
	}, s)
}

func swapcase(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

func isUpper(s string) bool {
	return strings.IndexFunc(s, cased) >= 0 && strings.IndexFunc(s, unicode.IsLower) < 0
}

func isLower(s string) bool {
	return strings.IndexFunc(s, cased) >= 0 && strings.IndexFunc(s, unicode.IsUpper) < 0
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r)) {
			return false
		}
	}
	return s != ""
}

func strList(all []string) *List {
	l := &List{make([]any, len(all))}
	for i, s := range all {
		l.Items[i] = s
	}
	return l
}

// strip takes characters off the ends: whitespace where none are named.
func strip(s string, chars any, left, right bool) string {
	cut := pySpace
	if chars != nil {
		set, ok := text(chars)
		if !ok {
			throw("TypeError", "strip arg must be None or str")
		}
		cut = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

func split(s string, a *arguments, right bool) any {
	sep := a.or("sep", nil)
	most := int(a.integer("maxsplit", -1))
	a.in.charge(len(s) + 16*len(s)/4)
	if sep == nil {
		return strList(splitSpace(s, most, right))
	}
	by, ok := text(sep)
	if !ok {
		throw("TypeError", "must be str or None, not %s", typeName(sep))
	}
	if by == "" {
		throw("ValueError", "empty separator")
	}
	a.in.charge(16 * strings.Count(s, by))
	if !right || most < 0 {
		if most >= 0 {
			most++
		}
		return strList(strings.SplitN(s, by, most))
	}
	parts := []string{}
	for ; most > 0; most-- {
		i := strings.LastIndex(s, by)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(by):])
		s = s[:i]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return strList(parts)
}

// splitSpace splits at runs of whitespace, at most so often.
func splitSpace(s string, most int, right bool) []string {
	if most < 0 {
		return strings.FieldsFunc(s, pySpace)
	}
	parts := []string{}
	if right {
		s = strings.TrimRightFunc(s, pySpace)
		for s != "" {
			i := strings.LastIndexFunc(s, pySpace)
			if most == 0 || i < 0 {
				parts = append(parts, s)
				break
			}
			_, n := utf8.DecodeRuneInString(s[i:])
			parts = append(parts, s[i+n:])
			s, most = strings.TrimRightFunc(s[:i], pySpace), most-1
		}
		slices.Reverse(parts)
		return parts
	}
	s = strings.TrimLeftFunc(s, pySpace)
	for s != "" {
		i := strings.IndexFunc(s, pySpace)
		if most == 0 || i < 0 {
			parts = append(parts, s)
			break
		}
		parts = append(parts, s[:i])
		s, most = strings.TrimLeftFunc(s[i:], pySpace), most-1
	}
	return parts
}

// splitLines splits at what Python takes for ends of lines.
func splitLines(s string, keep bool) []string {
	lines := []string{}
	for s != "" {
		i := strings.IndexFunc(s, func(r rune) bool {
			return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
		})
		if i < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		end := i
		if keep {
			end += n
		}
		lines = append(lines, s[:end])
		s = s[i+n:]
	}
	return lines
}

// window cuts out what a search looks at; the result's offset is in characters.
func window(s string, a *arguments) (part string, offset int, ok bool) {
	if len(a.args) <= a.at {
		return s, 0, true
	}
	chars := []rune(s)
	from, to := bounds(len(chars), a)
	if from > to {
		return "", from, false
	}
	return string(chars[from:to]), from, true
}

func affix(s string, a *arguments, name string, has func(string, string) bool) any {
	v := a.need("prefix")
	s, _, ok := window(s, a)
	if t, isTuple := v.(*Tuple); isTuple {
		for _, x := range t.Items {
			part, isText := text(x)
			if !isText {
				throw("TypeError", "tuple for %s must only contain str, not %s", name, typeName(x))
			}
			if ok && has(s, part) {
				return true
			}
		}
		return false
	}
	part, isText := text(v)
	if !isText {
		throw("TypeError", "%s first arg must be str or a tuple of str, not %s", name, typeName(v))
	}
	return ok && has(s, part)
}

func replaceMethod(s string, a *arguments) any {
	if n := len(a.args); n < 2 {
		throw("TypeError", "replace() takes at least 2 positional arguments (%d given)", n)
	}
	get := func(name string, n int) string {
		v := a.need(name)
		t, ok := text(v)
		if !ok {
			throw("TypeError", "replace() argument %d must be str, not %s", n, typeName(v))
		}
		return t
	}
	if a.safe {
		a.args = slices.Clone(a.args)
		for i := range 2 {
			a.args[i] = a.in.escape(a.args[i])
		}
	}
	before, after := get("old", 1), get("new", 2)
	return a.in.replace(s, before, after, int(a.integer("count", -1)))
}

// replace is str.replace; it bounds what comes out.
func (in *interp) replace(s, before, after string, n int) string {
	times := strings.Count(s, before)
	if n >= 0 {
		times = min(times, n)
	}
	if len(after) > 0 && times > in.limits.Bytes/len(after) {
		throw("LimitError", "a replacement is too large")
	}
	in.charge(len(s) + times*len(after))
	return strings.Replace(s, before, after, n)
}

func joinMethod(s string, a *arguments) any {
	items := a.in.collect(a.need("iterable"))
	parts := make([]string, len(items))
	n := 0
	for i, v := range items {
		t, ok := text(v)
		if a.safe {
			t, ok = a.in.escape(v), true
		}
		if !ok {
			throw("TypeError", "sequence item %d: expected str instance, %s found", i, typeName(v))
		}
		parts[i] = t
		n += len(t) + len(s)
	}
	a.in.charge(n)
	return strings.Join(parts, s)
}

func find(s string, a *arguments, index func(string, string) int) int64 {
	v := a.need("sub")
	part, ok := text(v)
	if !ok {
		throw("TypeError", "%s() argument 1 must be str, not %s", strings.TrimPrefix(a.what, "str."), typeName(v))
	}
	s, offset, ok := window(s, a)
	i := index(s, part)
	if !ok || i < 0 {
		return -1
	}
	return int64(offset + utf8.RuneCountInString(s[:i]))
}

func found(i int64) any {
	if i < 0 {
		throw("ValueError", "substring not found")
	}
	return i
}

func countMethod(s string, a *arguments) any {
	v := a.need("sub")
	part, isText := text(v)
	if !isText {
		throw("TypeError", "%s() argument 1 must be str, not %s", strings.TrimPrefix(a.what, "str."), typeName(v))
	}
	s, _, ok := window(s, a)
	if !ok {
		return int64(0)
	}
	return int64(strings.Count(s, part))
}

func partition(s string, a *arguments, right bool) any {
	sep := a.string("sep", "")
	if sep == "" {
		throw("ValueError", "empty separator")
	}
	i := strings.Index(s, sep)
	if right {
		i = strings.LastIndex(s, sep)
	}
	switch {
	case i >= 0:
		return tuple(s[:i], sep, s[i+len(sep):])
	case right:
		return tuple("", "", s)
	}
	return tuple(s, "", "")
}

func justify(s string, a *arguments, how byte) any {
	width := a.width(a.integer("width", 80))
	fill := a.string("fillchar", " ")
	if utf8.RuneCountInString(fill) != 1 {
		throw("TypeError", "The fill character must be exactly one character long")
	}
	pad := width - utf8.RuneCountInString(s)
	if pad <= 0 {
		return s
	}
	left := 0
	switch how {
	case 'r':
		left = pad
	case 'c':
		left = pad/2 + pad&width&1
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, pad-left)
}

func zfill(s string, a *arguments) any {
	pad := a.width(a.integer("width", 0)) - utf8.RuneCountInString(s)
	if pad <= 0 {
		return s
	}
	sign := ""
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		sign, s = s[:1], s[1:]
	}
	return sign + strings.Repeat("0", pad) + s
}

func expandTabs(s string, a *arguments) any {
	size := int(a.integer("tabsize", 8))
	if size > 0 {
		a.width(int64(size) * int64(strings.Count(s, "\t")))
	}
	var b strings.Builder
	column := 0
	for _, r := range s {
		switch {
		case r == '\t' && size > 0:
			n := size - column%size
			b.WriteString(strings.Repeat(" ", n))
			column += n
		case r == '\t':
		case r == '\n' || r == '\r':
			b.WriteRune(r)
			column = 0
		default:
			b.WriteRune(r)
			column++
		}
	}
	return b.String()
}
