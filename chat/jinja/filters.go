package jinja

// The builtin filters of text and numbers; those of sequences are in filters_seq.go.

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type filterFunc func(in *interp, v any, a *arguments) any

var filters map[string]filterFunc

func init() {
	str := func(f func(string) string) filterFunc {
		return func(in *interp, v any, a *arguments) any {
			a.done()
			if m, ok := v.(Markup); ok {
				return Markup(f(string(m)))
			}
			return f(in.str(v))
		}
	}
	filters = map[string]filterFunc{
		"upper": str(pyUpper), "lower": str(strings.ToLower), "capitalize": str(capitalize), "title": filterTitle,
		"trim": filterTrim, "string": filterString, "safe": filterSafe, "escape": filterEscape, "e": filterEscape,
		"forceescape": filterForceEscape, "striptags": filterStripTags, "replace": filterReplace,
		"center": filterCenter, "indent": filterIndent, "truncate": filterTruncate, "wordcount": filterWordCount,
		"wordwrap": filterWordWrap, "format": filterFormat, "urlencode": filterURLEncode, "urlize": filterURLize,
		"xmlattr": filterXMLAttr, "pprint": filterPPrint, "tojson": tojson, "filesizeformat": filterFileSize,
		"abs": filterAbs, "int": filterInt, "float": filterFloat, "round": filterRound,
		"default": filterDefault, "d": filterDefault, "attr": filterAttr,
		"length": filterLength, "count": filterLength, "first": filterFirst, "last": filterLast,
		"random": filterRandom, "list": filterList, "reverse": filterReverse, "join": filterJoin, "sum": filterSum,
		"min": filterMinMax(false), "max": filterMinMax(true), "sort": filterSort, "dictsort": filterDictSort,
		"unique": filterUnique, "groupby": filterGroupBy, "batch": filterBatch, "slice": filterSlice,
		"items": filterItems, "map": filterMap,
		"select": selecting(true, false), "reject": selecting(false, false),
		"selectattr": selecting(true, true), "rejectattr": selecting(false, true),
	}
}

func filterArgument(format string, args ...any) { throw("FilterArgumentError", format, args...) }

// soft gives a value's text, and says whether it counts as escaped.
func (in *interp) soft(v any) (s string, markup bool) {
	if m, ok := v.(Markup); ok {
		return string(m), true
	}
	return in.str(v), false
}

func marked(s string, markup bool) any {
	if markup {
		return Markup(s)
	}
	return s
}

// escape gives the text of a value with the characters that HTML gives a meaning to replaced.
func (in *interp) escape(v any) string {
	if m, ok := v.(Markup); ok {
		return string(m)
	}
	s := in.str(v)
	in.charge(len(s))
	return html.EscapeString(s)
}

func filterEscape(in *interp, v any, a *arguments) any {
	a.done()
	return Markup(in.escape(v))
}

func filterForceEscape(in *interp, v any, a *arguments) any {
	a.done()
	return Markup(in.escape(in.str(v)))
}

func filterSafe(in *interp, v any, a *arguments) any {
	a.done()
	return Markup(in.str(v))
}

func filterString(in *interp, v any, a *arguments) any {
	a.done()
	s, m := in.soft(v)
	return marked(s, m)
}

func filterTitle(in *interp, v any, a *arguments) any {
	a.done()
	var b strings.Builder
	begin := true
	for _, r := range in.str(v) {
		switch {
		case strings.ContainsRune("-({[<", r) || pySpace(r):
			begin = true
			b.WriteRune(r)
		case begin:
			b.WriteString(pyUpper(string(r)))
			begin = false
		default:
			b.WriteString(strings.ToLower(string(r)))
		}
	}
	return b.String()
}

func filterTrim(in *interp, v any, a *arguments) any {
	chars := a.or("chars", nil)
	a.done()
	s, m := in.soft(v)
	return marked(strip(s, chars, true, true), m)
}

func filterStripTags(in *interp, v any, a *arguments) any {
	a.done()
	s := in.str(v)
	for _, pair := range [][2]string{{"<!--", "-->"}, {"<", ">"}} {
		for {
			i := strings.Index(s, pair[0])
			if i < 0 {
				break
			}
			in.step()
			j := strings.Index(s[i:], pair[1])
			if j < 0 {
				break
			}
			in.charge(len(s))
			s = s[:i] + s[i+j+len(pair[1]):]
		}
	}
	return html.UnescapeString(strings.Join(strings.FieldsFunc(s, pySpace), " "))
}

func filterReplace(in *interp, v any, a *arguments) any {
	before, after := a.need("old"), a.need("new")
	n := -1
	if c := a.or("count", nil); c != nil {
		i, _, _, _ := number(c)
		n = int(i)
	}
	a.done()
	return in.replace(in.str(v), in.str(before), in.str(after), n)
}

func filterCenter(in *interp, v any, a *arguments) any {
	s, m := in.soft(v)
	width := a.integer("width", 80)
	a.done()
	return marked(justify(s, &arguments{in: in, args: []any{width}}, 'c').(string), m)
}

func filterIndent(in *interp, v any, a *arguments) any {
	width := a.or("width", int64(4))
	first, blank := a.truth("first", false), a.truth("blank", false)
	a.done()
	by, ok := text(width)
	if !ok {
		n, _, isInt, ok := number(width)
		if !ok || !isInt {
			throw("TypeError", "can't multiply sequence by non-int of type '%s'", typeName(width))
		}
		by = strings.Repeat(" ", in.bounded(max(n, 0)))
	}
	s, m := text(v)
	switch v := v.(type) {
	case *List:
		noAttribute(v, "splitlines")
	case *Tuple:
		throw("TypeError", "can only concatenate tuple (not \"str\") to tuple")
	case *Undefined:
		v.fail()
	}
	if !m {
		throw("TypeError", "unsupported operand type(s) for +=: '%s' and 'str'", typeName(v))
	}
	_, m = v.(Markup)
	lines := splitLines(s+"\n", false)
	in.charge(len(s) + len(lines)*len(by))
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == 0 && first || i > 0 && (blank || line != "") {
			b.WriteString(by)
		}
		b.WriteString(line)
	}
	return marked(b.String(), m)
}

func filterTruncate(in *interp, v any, a *arguments) any {
	length := a.integer("length", 255)
	kill := a.truth("killwords", false)
	end := a.string("end", "...")
	leeway := int64(5)
	if l := a.or("leeway", nil); l != nil {
		leeway, _, _, _ = number(l)
	}
	a.done()
	s, m := text(v)
	size, hasLen := in.length(v)
	if !hasLen {
		throw("TypeError", "object of type '%s' has no len()", typeName(v))
	}
	isText := m
	_, m = v.(Markup)
	n := int64(utf8.RuneCountInString(end))
	if length < n {
		throw("AssertionError", "expected length >= %d, got %d", n, length)
	}
	if leeway < 0 {
		throw("AssertionError", "expected leeway >= 0, got %d", leeway)
	}
	chars := []rune(s)
	if int64(size) <= length+leeway {
		return v
	}
	if !isText {
		if head := in.slice(v, nil, length-n, nil); kill {
			return in.binary("+", head, end)
		}
		noAttribute(v, "rsplit")
	}
	s = string(chars[:length-n])
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !kill {
		s = s[:i]
	}
	return marked(s+end, m)
}

func wordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

func filterWordCount(in *interp, v any, a *arguments) any {
	a.done()
	return int64(len(strings.FieldsFunc(in.str(v), func(r rune) bool { return !wordRune(r) })))
}

// filterWordWrap breaks each line at words, as textwrap does with whitespace kept.
func filterWordWrap(in *interp, v any, a *arguments) any {
	width := int(a.integer("width", 79))
	long := a.truth("break_long_words", true)
	with := a.or("wrapstring", nil)
	a.truth("break_on_hyphens", true)
	a.done()
	if width <= 0 {
		throw("ValueError", "invalid width %d (must be > 0)", width)
	}
	sep := "\n"
	if with != nil {
		sep = in.str(with)
	}
	s, ok := text(v)
	if !ok {
		noAttribute(v, "splitlines")
	}
	var all []string
	for _, line := range splitLines(s, false) {
		all = append(all, strings.Join(wrapLine(line, width, long), sep))
	}
	in.charge(len(all) * len(sep))
	return strings.Join(all, sep)
}

// noAttribute is what Python says where a filter uses a value in a way that it does not have.
func noAttribute(v any, name string) {
	if u, ok := v.(*Undefined); ok {
		u.fail()
	}
	throw("AttributeError", "'%s' object has no attribute '%s'", typeName(v), name)
}

// chunks divides a line into words, which end behind a hyphen between letters, and runs of spaces.
func chunks(line string) []string {
	var all []string
	begin := 0
	chars := []rune(line)
	for i := range chars {
		space := chars[i] == ' ' || chars[i] == '\t'
		before := i > 0 && (chars[i-1] == ' ' || chars[i-1] == '\t')
		hyphen := i > 1 && i < len(chars) && chars[i-1] == '-' && unicode.IsLetter(chars[i-2]) && unicode.IsLetter(chars[i])
		if i > begin && (space != before || hyphen) {
			all = append(all, string(chars[begin:i]))
			begin = i
		}
	}
	if begin < len(chars) {
		all = append(all, string(chars[begin:]))
	}
	return all
}

func wrapLine(line string, width int, long bool) []string {
	words := chunks(line)
	var lines []string
	for len(words) > 0 {
		var cur []string
		n := 0
		if len(lines) > 0 && strings.TrimSpace(words[0]) == "" {
			words = words[1:]
		}
		for len(words) > 0 && n+utf8.RuneCountInString(words[0]) <= width {
			n += utf8.RuneCountInString(words[0])
			cur, words = append(cur, words[0]), words[1:]
		}
		if len(words) > 0 && utf8.RuneCountInString(words[0]) > width {
			if long {
				chars := []rune(words[0])
				cur = append(cur, string(chars[:width-n]))
				words[0] = string(chars[width-n:])
			} else if len(cur) == 0 {
				cur, words = append(cur, words[0]), words[1:]
			}
		}
		if k := len(cur); k > 0 && strings.TrimSpace(cur[k-1]) == "" {
			cur = cur[:k-1]
		}
		if len(cur) > 0 {
			lines = append(lines, strings.Join(cur, ""))
		}
	}
	return lines
}

func filterFormat(in *interp, v any, a *arguments) any {
	if len(a.args) > 0 && a.kw.Len() > 0 {
		filterArgument("can't handle positional and keyword arguments at the same time")
	}
	s, m := in.soft(v)
	if a.kw.Len() > 0 {
		return marked(in.percent(s, a.kw, m), m)
	}
	return marked(in.percent(s, tuple(a.args...), m), m)
}

// quoteURL replaces the bytes that a part of a URL cannot hold.
func quoteURL(s string, query bool) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || decimal(c) || strings.IndexByte("_.-~", c) >= 0,
			c == '/' && !query:
			b.WriteByte(c)
		case c == ' ' && query:
			b.WriteByte('+')
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func filterURLEncode(in *interp, v any, a *arguments) any {
	a.done()
	next, iterable := in.tryIter(v)
	if _, ok := text(v); ok || !iterable {
		return quoteURL(in.str(v), false)
	}
	if d, ok := v.(*Dict); ok {
		next = in.iter(&dictView{d, "items"})
	}
	var parts []string
	for x, ok := next(); ok; x, ok = next() {
		pair := in.collect(x)
		if len(pair) != 2 {
			throw("ValueError", "not enough values to unpack (expected 2, got %d)", len(pair))
		}
		parts = append(parts, quoteURL(in.str(pair[0]), true)+"="+quoteURL(in.str(pair[1]), true))
	}
	return strings.Join(parts, "&")
}

// filterURLize links words that are addresses with a scheme or www.
func filterURLize(in *interp, v any, a *arguments) any {
	limit := a.or("trim_url_limit", nil)
	nofollow := a.truth("nofollow", false)
	target, rel := a.or("target", nil), a.or("rel", nil)
	a.or("extra_schemes", nil)
	a.done()
	rels := "noopener"
	if nofollow {
		rels = "nofollow noopener"
	}
	if rel != nil {
		rels = strings.TrimSpace(in.str(rel) + " " + rels)
	}
	attrs := ` rel="` + html.EscapeString(rels) + `"`
	if target != nil {
		attrs += ` target="` + html.EscapeString(in.str(target)) + `"`
	}
	var b strings.Builder
	s := html.EscapeString(in.str(v))
	for s != "" {
		i := strings.IndexFunc(s, pySpace)
		word := s
		if i >= 0 {
			word = s[:i]
		}
		url := strings.TrimRight(word, ".,!?")
		full := url
		if strings.HasPrefix(url, "www.") {
			full = "https://" + url
		}
		if strings.HasPrefix(full, "https://") || strings.HasPrefix(full, "http://") {
			shown := url
			if n, _, _, ok := number(limit); ok && utf8.RuneCountInString(url) > int(n) && n >= 0 {
				shown = string([]rune(url)[:n]) + "..."
			}
			b.WriteString(`<a href="` + full + `"` + attrs + `>` + shown + `</a>` + word[len(url):])
		} else {
			b.WriteString(word)
		}
		s = s[len(word):]
		rest := strings.TrimLeftFunc(s, pySpace)
		b.WriteString(s[:len(s)-len(rest)])
		s = rest
	}
	return b.String()
}

func filterXMLAttr(in *interp, v any, a *arguments) any {
	space := a.truth("autospace", true)
	a.done()
	d, ok := v.(*Dict)
	if !ok {
		noAttribute(v, "items")
	}
	var parts []string
	for i, k := range d.keys {
		if _, undefined := d.values[i].(*Undefined); undefined || d.values[i] == nil {
			continue
		}
		name := in.str(k)
		if strings.ContainsAny(name, " \t\n\r\f\v/>=") {
			throw("ValueError", "Invalid character in attribute name: %s", reprString(name))
		}
		parts = append(parts, html.EscapeString(name)+`="`+in.escape(d.values[i])+`"`)
	}
	s := strings.Join(parts, " ")
	if space && s != "" {
		s = " " + s
	}
	return s
}

// filterPPrint is repr with the keys of dicts in order; what is wider than 80 columns is not broken.
func filterPPrint(in *interp, v any, a *arguments) any {
	a.truth("verbose", false)
	a.done()
	return in.repr(in.sortedKeys(v))
}

func (in *interp) sortedKeys(v any) any {
	in.step()
	defer in.enter()()
	switch v := v.(type) {
	case *List:
		out := &List{make([]any, len(v.Items))}
		for i, x := range v.Items {
			out.Items[i] = in.sortedKeys(x)
		}
		return out
	case *Dict:
		out := NewDict()
		for _, k := range in.sorted(append([]any{}, v.keys...), in.repr2, false) {
			x, _ := v.Get(k)
			out.Set(k, in.sortedKeys(x))
		}
		return out
	}
	return v
}

func (in *interp) repr2(v any) any { return in.str(v) }

func filterFileSize(in *interp, v any, a *arguments) any {
	binary := a.truth("binary", false)
	a.done()
	n := in.toFloat(v)
	base, unit := 1000.0, "B"
	if binary {
		base, unit = 1024, "iB"
	}
	switch {
	case n == 1:
		return "1 Byte"
	case n < base:
		return strconv.FormatInt(toInt(n), 10) + " Bytes"
	}
	prefixes := "kMGTPEZY"
	if binary {
		prefixes = "KMGTPEZY"
	}
	size := base
	for i := range len(prefixes) {
		if size *= base; n < size || i == len(prefixes)-1 {
			return strconv.FormatFloat(base*n/size, 'f', 1, 64) + " " + prefixes[i:i+1] + unit
		}
	}
	return ""
}

// toFloat is Python's float().
func (in *interp) toFloat(v any) float64 {
	if s, ok := text(v); ok {
		f, err := parsePyFloat(s)
		if err {
			throw("ValueError", "could not convert string to float: %s", reprString(s))
		}
		return f
	}
	if u, ok := v.(*Undefined); ok {
		u.fail()
	}
	_, f, _, ok := number(v)
	if !ok {
		throw("TypeError", "float() argument must be a string or a real number, not '%s'", typeName(v))
	}
	return f
}

func parsePyFloat(s string) (f float64, bad bool) {
	s = strings.TrimFunc(s, pySpace)
	if strings.ContainsAny(s, "xXpP") || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") ||
		strings.Contains(s, "__") {
		return 0, true
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err != nil && !math.IsInf(f, 0)
}

func filterAbs(in *interp, v any, a *arguments) any {
	a.done()
	i, f, isInt, ok := number(v)
	switch {
	case !ok:
		throw("TypeError", "bad operand type for abs(): '%s'", typeName(v))
	case isInt && i < 0:
		return intOp("-", 0, i)
	case isInt:
		return i
	}
	return math.Abs(f)
}

func filterInt(in *interp, v any, a *arguments) any {
	or := a.or("default", int64(0))
	base := a.integer("base", 10)
	a.done()
	if u, ok := v.(*Undefined); ok {
		u.fail()
	}
	if s, ok := text(v); ok {
		s = strings.TrimFunc(s, pySpace)
		if n, ok := parsePyInt(s, int(base)); ok {
			return n
		}
		f, bad := parsePyFloat(s)
		if bad || math.IsInf(f, 0) || math.IsNaN(f) || math.Abs(f) >= 1<<63 {
			return or
		}
		return int64(f)
	}
	i, f, isInt, ok := number(v)
	switch {
	case !ok || !isInt && (math.IsNaN(f) || math.IsInf(f, 0)):
		return or
	case isInt:
		return i
	}
	return toInt(f)
}

func parsePyInt(s string, base int) (int64, bool) {
	sign := ""
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		sign, s = s[:1], s[1:]
	}
	if len(s) > 1 && s[0] == '0' {
		if p := map[byte]int{'x': 16, 'o': 8, 'b': 2}[s[1]|0x20]; p != 0 && (base == p || base == 0) {
			base, s = p, s[2:]
		}
	}
	if base < 2 || base > 36 || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") ||
		strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		return 0, false
	}
	n, err := strconv.ParseInt(sign+strings.ReplaceAll(s, "_", ""), base, 64)
	return n, err == nil
}

func filterFloat(in *interp, v any, a *arguments) any {
	or := a.or("default", 0.0)
	a.done()
	if s, ok := text(v); ok {
		if f, bad := parsePyFloat(s); !bad {
			return f
		}
		return or
	}
	if _, _, _, ok := number(v); !ok {
		if _, undefined := v.(*Undefined); !undefined {
			return or
		}
	}
	return in.toFloat(v)
}

func filterRound(in *interp, v any, a *arguments) any {
	precision := a.integer("precision", 0)
	how := a.string("method", "common")
	a.done()
	if how != "common" && how != "ceil" && how != "floor" {
		filterArgument("method must be common, ceil or floor")
	}
	i, f, isInt, ok := number(v)
	if !ok {
		throw("TypeError", "type %s doesn't define __round__ method", typeName(v))
	}
	if precision > 300 || precision < -300 {
		throw("OverflowError", "a precision of %d is too large", precision)
	}
	if how != "common" {
		scale := math.Pow(10, float64(precision))
		if how == "ceil" {
			return math.Ceil(f*scale) / scale
		}
		return math.Floor(f*scale) / scale
	}
	if isInt && precision >= 0 {
		return i
	}
	if precision >= 0 { // the decimal that is nearest, with ties as they are stored
		f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(precision), 64), 64)
		return f
	}
	scale := math.Pow(10, float64(-precision))
	r := math.RoundToEven(f/scale) * scale
	if isInt {
		return toInt(r)
	}
	return r
}

func filterDefault(in *interp, v any, a *arguments) any {
	or := a.or("default_value", "")
	falsy := a.truth("boolean", false)
	a.done()
	if _, ok := v.(*Undefined); ok || falsy && !in.truth(v) {
		return or
	}
	return v
}

func filterAttr(in *interp, v any, a *arguments) any {
	name := in.str(a.need("name"))
	a.done()
	if u, ok := v.(*Undefined); ok {
		u.fail()
	}
	if x, ok := in.attribute(v, name); ok {
		return x
	}
	return &Undefined{of: v, hasOf: true, name: name}
}
