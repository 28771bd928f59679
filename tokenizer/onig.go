// Oniguruma's dialect of regular expressions, which tokenizer.json's patterns
// are written in (its Ruby syntax, as Hugging Face's tokenizers set it).
// A pattern is parsed as Oniguruma parses it and written again with only what
// the engine here and Oniguruma mean alike: sets are spelt out, possessive
// repeats become atomic groups. What has no equal is refused by name.

package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/dlclark/regexp2/v2"
)

// compileOnig reads a pattern of a tokenizer.json.
func compileOnig(pattern string) (*regexp2.Regexp, error) {
	text, err := translateOnig(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	re, err := compile(text)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: written as %w", pattern, err)
	}
	return re, nil
}

func translateOnig(pattern string) (string, error) {
	p := &onig{in: []rune(pattern)}
	p.named = p.countGroups()
	text, err := p.alternatives(0)
	if err == nil && p.at < len(p.in) {
		err = fmt.Errorf("character %d: ')' without '('", p.at)
	}
	return text, err
}

// onig parses one pattern.
type onig struct {
	in    []rune
	at    int
	named bool // there are named groups, so plain ones do not capture
	total int  // groups that capture
	open  int  // of these, seen so far
	names map[string]int
	onigOptions
}

type onigOptions struct {
	fold   bool // i
	dotAll bool // m
	extend bool // x
}

// maxDepth bounds groups and classes within one another.
const maxDepth = 200

// atom is one part of a branch.
type atom struct {
	text  string
	char  rune // a literal without case, where folds
	folds bool
}

func (p *onig) refuse(at int, construct string) error {
	return fmt.Errorf("character %d: %s is not supported", at, construct)
}

// countGroups counts the groups that capture and says whether they have names.
func (p *onig) countGroups() (named bool) {
	plain, names, class := 0, 0, 0
	for i := 0; i < len(p.in); i++ {
		rest := p.in[i+1:]
		switch p.in[i] {
		case '\\':
			i++
		case '[':
			class++
		case ']':
			class = max(0, class-1)
		case '(':
			switch {
			case class > 0 || len(rest) > 0 && rest[0] == '*':
			case len(rest) == 0 || rest[0] != '?':
				plain++
			case len(rest) > 2 && (rest[1] == '<' && rest[2] != '=' && rest[2] != '!' || rest[1] == '\''):
				names++
			}
		}
	}
	if p.total = plain; names > 0 {
		p.total = names
	}
	return names > 0
}

// alternatives parses up to the end of the group.
func (p *onig) alternatives(depth int) (string, error) {
	if depth > maxDepth {
		return "", errors.New("groups nest too deep")
	}
	var b strings.Builder
	for {
		branch, err := p.branch(depth)
		if err != nil {
			return "", err
		}
		b.WriteString(branch)
		if p.at >= len(p.in) || p.in[p.at] != '|' {
			return b.String(), nil
		}
		p.at++
		b.WriteByte('|')
	}
}

func (p *onig) branch(depth int) (string, error) {
	var atoms []atom
	for p.at < len(p.in) {
		c := p.in[p.at]
		if c == '|' || c == ')' {
			break
		}
		if skipped, err := p.ignored(); err != nil {
			return "", err
		} else if skipped {
			continue
		}
		a, isolated, err := p.atom(depth)
		if err != nil {
			return "", err
		}
		if isolated { // (?i) holds to the end of the group, over its other branches
			rest, err := p.alternatives(depth + 1)
			if err != nil {
				return "", err
			}
			return joinAtoms(atoms) + "(?:" + rest + ")", nil
		}
		if a, err = p.repeats(a); err != nil {
			return "", err
		}
		atoms = append(atoms, a)
	}
	return joinAtoms(atoms), nil
}

// joinAtoms writes a branch. Literals without case that stand next to one
// another may be one character: (?i:ss) matches "ß".
func joinAtoms(atoms []atom) string {
	var b strings.Builder
	for i := 0; i < len(atoms); {
		end := i
		for end < len(atoms) && atoms[end].folds {
			end++
		}
		if end == i {
			b.WriteString(atoms[i].text)
			i++
			continue
		}
		b.WriteString(foldLiterals(atoms[i:end]))
		i = end
	}
	return b.String()
}

// foldLiterals writes a run of literals, from its end to its beginning.
func foldLiterals(run []atom) string {
	folded := make([]string, len(run))
	for i, a := range run {
		folded[i] = foldRune(a.char)
	}
	tail := make([]string, len(run)+1) // what matches run[i:]
	for i := len(run) - 1; i >= 0; i-- {
		tail[i] = run[i].text + tail[i+1]
		joined := folded[i]
		for n := 2; n <= 3 && i+n <= len(run); n++ {
			joined += folded[i+n-1]
			if set, ok := folding().many[joined]; ok {
				tail[i] = "(?:" + tail[i] + "|" + set.text() + tail[i+n] + ")"
			}
		}
	}
	return tail[0]
}

// foldRune gives the one character that stands for all of r's kind in
// folding's strings.
func foldRune(r rune) string {
	best := r
	for o := simpleFold(r); o != r; o = simpleFold(o) {
		if unicode.IsLower(o) && (!unicode.IsLower(best) || o < best) {
			best = o
		}
	}
	return string(best)
}

// literal is a character that means itself.
func (p *onig) literal(r rune) atom {
	if !p.fold {
		return atom{text: literalRune(r)}
	}
	set := spans(r, r).folded()
	text := set.text()
	if len(set) == 1 && set[0].lo == set[0].hi {
		text = literalRune(r)
	}
	if s, ok := folding().single[r]; ok {
		return atom{text: "(?:" + text + "|" + p.foldString(s) + ")"}
	}
	return atom{text: text, char: r, folds: true}
}

// foldString matches the characters of s without case.
func (p *onig) foldString(s string) string {
	var run []atom
	for _, r := range s {
		run = append(run, atom{text: spans(r, r).folded().text(), char: r, folds: true})
	}
	return foldLiterals(run)
}

// ignored skips a comment, or space where that means nothing: neither is between an atom and its repeat.
func (p *onig) ignored() (bool, error) {
	start, c := p.at, p.in[p.at]
	switch {
	case p.extend && c == '#':
		for p.at < len(p.in) && p.in[p.at] != '\n' {
			p.at++
		}
	case p.extend && unicode.IsSpace(c) && c < 0x80:
		p.at++
	case p.take("(?#"):
		for p.at < len(p.in) && p.in[p.at] != ')' {
			if p.in[p.at] == '\\' {
				p.at++
			}
			p.at++
		}
		if p.at >= len(p.in) {
			return false, fmt.Errorf("character %d: '(' without ')'", start)
		}
		p.at++
	default:
		return false, nil
	}
	return true, nil
}

// repeats reads what follows an atom: * + ? {n,m}, each lazy or possessive.
func (p *onig) repeats(a atom) (atom, error) {
	for p.at < len(p.in) {
		if skipped, err := p.ignored(); err != nil {
			return a, err
		} else if skipped {
			continue
		}
		low, high, size := 0, -1, 1
		interval := false
		switch p.in[p.at] {
		case '*':
		case '+':
			low = 1
		case '?':
			high = 1
		case '{':
			if low, high, size = p.interval(); size == 0 {
				return a, nil // a brace that means itself
			}
			interval = true
		default:
			return a, nil
		}
		if low > 100000 || high > 100000 {
			return a, fmt.Errorf("character %d: a repeat of more than 100000", p.at)
		}
		p.at += size
		suffix, atomic := "", false
		if high >= 0 && low > high { // Ruby's {3,2}
			low, high, atomic = high, low, true
		}
		if p.at < len(p.in) && !atomic {
			switch next := p.in[p.at]; {
			case next == '?' && !(interval && low == high):
				suffix = "?"
				p.at++
			case next == '+' && !interval:
				atomic = true
				p.at++
			}
		}
		text, err := p.repeated(a.text, low, high, suffix)
		if err != nil {
			return a, err
		}
		if atomic {
			text = "(?>" + text + ")"
		}
		a = atom{text: "(?:" + text + ")"}
	}
	return a, nil
}

// anywhere holds at every place, and the engine does not know it.
const anywhere = `(?:\b|\B)`

// repeated writes a repeat of text; high -1 has no end. The engine backtracks
// into an atomic group that a count repeats, so such a count is written out; and it
// takes a repeat of one such group alone for that group, which gives no round back.
func (p *onig) repeated(text string, low, high int, suffix string) (string, error) {
	atomic := strings.Contains(text, "(?>")
	if atomic {
		text += anywhere
	}
	text = "(?:" + text + ")"
	if !atomic || high < 0 && low <= 1 || high == 1 {
		count := "{" + strconv.Itoa(low) + ","
		if high >= 0 {
			count += strconv.Itoa(high)
		}
		return text + count + "}" + suffix, nil
	}
	if low > 16 || high > 16 {
		return "", p.refuse(p.at, "a possessive or atomic part repeated more than 16 times")
	}
	out := strings.Repeat(text, low)
	if high < 0 {
		return out + text + "*" + suffix, nil
	}
	return out + strings.Repeat("(?:"+text, high-low) + strings.Repeat(")?"+suffix, high-low), nil
}

// interval reads {n}, {n,}, {,m} and {n,m}: size 0 where it is none of these.
func (p *onig) interval() (low, high, size int) {
	i := p.at + 1
	number := func() (int, bool) {
		n, from := 0, i
		for i < len(p.in) && '0' <= p.in[i] && p.in[i] <= '9' && i-from < 7 {
			n = n*10 + int(p.in[i]-'0')
			i++
		}
		return n, i > from
	}
	low, hasLow := number()
	high, hasHigh := low, hasLow
	if i < len(p.in) && p.in[i] == ',' {
		i++
		if high, hasHigh = number(); !hasHigh {
			high = -1
		}
	}
	if !hasLow && !hasHigh || i >= len(p.in) || p.in[i] != '}' {
		return 0, 0, 0
	}
	return low, high, i + 1 - p.at
}

// atom reads one character, class, escape or group.
func (p *onig) atom(depth int) (a atom, isolated bool, err error) {
	start, c := p.at, p.in[p.at]
	p.at++
	switch c {
	case '(':
		return p.group(depth)
	case '[':
		a, err = p.class(depth)
		return a, false, err
	case '\\':
		a, err = p.escape(start)
		return a, false, err
	case '.':
		if p.dotAll {
			return atom{text: `[\s\S]`}, false, nil
		}
		return atom{text: `[^\n]`}, false, nil
	case '^':
		return atom{text: `(?:\A|(?<=\n)(?!\z))`}, false, nil
	case '$':
		return atom{text: `(?=\n|\z)`}, false, nil
	case '*', '+', '?':
		return a, false, fmt.Errorf("character %d: nothing stands before %q", start, c)
	}
	return p.literal(c), false, nil
}

// take skips s where the pattern goes on with it.
func (p *onig) take(s string) bool {
	n := len([]rune(s))
	if p.at+n > len(p.in) || string(p.in[p.at:p.at+n]) != s {
		return false
	}
	p.at += n
	return true
}

// group reads what follows '('.
func (p *onig) group(depth int) (atom, bool, error) {
	start := p.at - 1
	saved := p.onigOptions
	open := "(?:"
	switch {
	case p.take("?:"):
	case p.take("?="), p.take("?!"), p.take("?>"), p.take("?<="), p.take("?<!"):
		open = "(" + string(p.in[start+1:p.at])
	case p.take("?~"):
		return atom{}, false, p.refuse(start, "(?~…), absence,")
	case p.take("?("):
		return atom{}, false, p.refuse(start, "(?(…)…), a condition,")
	case p.take("?{"), p.take("*"):
		return atom{}, false, p.refuse(start, "a callout")
	case p.take("?<"), p.take("?'"):
		name, err := p.name(start, map[rune]rune{'<': '>', '\'': '\''}[p.in[p.at-1]])
		if err != nil {
			return atom{}, false, err
		}
		if p.open++; p.names == nil {
			p.names = map[string]int{}
		}
		if _, taken := p.names[name]; taken {
			return atom{}, false, p.refuse(start, "a name given to two groups")
		}
		p.names[name] = p.open
		open = fmt.Sprintf("(?<g%d>", p.open)
	case p.take("?"):
		isolated, err := p.options(start)
		if err != nil || isolated {
			return atom{}, isolated, err
		}
	case !p.named:
		p.open++
		open = fmt.Sprintf("(?<g%d>", p.open)
	}
	text, err := p.alternatives(depth + 1)
	if err != nil {
		return atom{}, false, err
	}
	if p.at >= len(p.in) {
		return atom{}, false, fmt.Errorf("character %d: '(' without ')'", start)
	}
	if strings.HasPrefix(open, "(?<") && strings.ContainsAny(open, "=!") && strings.Contains(text, "(?>") {
		return atom{}, false, p.refuse(start, "look-behind at something possessive or atomic") // matched from its end here
	}
	p.at++
	p.onigOptions = saved
	return atom{text: open + text + ")"}, false, nil
}

// options reads (?imx-imx: and (?imx-imx); the latter holds for what follows.
func (p *onig) options(start int) (isolated bool, err error) {
	on := true
	for ; p.at < len(p.in); p.at++ {
		switch c := p.in[p.at]; c {
		case '-':
			on = false
		case 'i':
			p.fold = on
		case 'm':
			p.dotAll = on
		case 'x':
			p.extend = on
		case ':', ')':
			p.at++
			return c == ')', nil
		default:
			return false, p.refuse(start, fmt.Sprintf("the group option %q", c))
		}
	}
	return false, fmt.Errorf("character %d: '(' without ')'", start)
}

func (p *onig) name(start int, end rune) (string, error) {
	from := p.at
	for p.at < len(p.in) && p.in[p.at] != end {
		p.at++
	}
	if p.at >= len(p.in) || p.at == from {
		return "", fmt.Errorf("character %d: a group's name is missing", start)
	}
	p.at++
	return string(p.in[from : p.at-1]), nil
}

// escape reads what follows a backslash outside of classes.
func (p *onig) escape(start int) (atom, error) {
	if p.at >= len(p.in) {
		return atom{}, errors.New("ends with a backslash")
	}
	c := p.in[p.at]
	switch c {
	case 'b', 'B':
		p.at++
		w := setWordAlone().text()
		if c == 'b' {
			return atom{text: "(?:(?<=" + w + ")(?!" + w + ")|(?<!" + w + ")(?=" + w + "))"}, nil
		}
		return atom{text: "(?:(?<=" + w + ")(?=" + w + ")|(?<!" + w + ")(?!" + w + "))"}, nil
	case 'A', 'z', 'Z':
		p.at++
		return atom{text: `\` + string(c)}, nil
	case 'R':
		p.at++
		return atom{text: `(?>\r\n|[\n-\r\u0085\u2028\u2029])`}, nil
	case 'N':
		p.at++
		return atom{text: `[^\n]`}, nil
	case 'O':
		p.at++
		return atom{text: `[\s\S]`}, nil
	case 'X', 'y', 'Y', 'K', 'g', 'M', 'G':
		what := map[rune]string{'G': ", where the search begins,", 'X': ", a text segment,",
			'y': ", a segment's boundary,", 'Y': ", no segment's boundary,",
			'K': ", keep,", 'g': ", a call of a group,", 'M': ", a meta character,"}
		return atom{}, p.refuse(start, `\`+string(c)+what[c])
	case 'k':
		return p.namedReference(start)
	}
	if '1' <= c && c <= '9' {
		if a, ok, err := p.reference(start); ok || err != nil {
			return a, err
		}
	}
	if set, ok, err := p.setEscape(start, true); err != nil {
		return atom{}, err
	} else if ok {
		return atom{text: set.text()}, nil // a set outside of classes knows no case: (?i:\p{Lu}) is no small letter
	}
	r, err := p.charEscape(start)
	return p.literal(r), err
}

// reference reads \1, where so many groups are there; otherwise it may be octal.
func (p *onig) reference(start int) (atom, bool, error) {
	i, n := p.at, 0
	for i < len(p.in) && '0' <= p.in[i] && p.in[i] <= '9' && n < 1000 {
		n = n*10 + int(p.in[i]-'0')
		i++
	}
	if n > p.total && n > 9 {
		return atom{}, false, nil
	}
	if p.named || n > p.open {
		return atom{}, false, p.refuse(start, fmt.Sprintf(`\%d, a reference to a group that is not before it,`, n))
	}
	p.at = i
	return p.referenceTo(n), true, nil
}

func (p *onig) referenceTo(n int) atom {
	text := fmt.Sprintf(`\k<g%d>`, n)
	if p.fold {
		text = "(?i:" + text + ")"
	}
	return atom{text: text}
}

func (p *onig) namedReference(start int) (atom, error) {
	p.at++
	if !p.take("<") && !p.take("'") {
		return atom{}, p.refuse(start, `\k without a name`)
	}
	name, err := p.name(start, map[rune]rune{'<': '>', '\'': '\''}[p.in[p.at-1]])
	if err != nil {
		return atom{}, err
	}
	n, ok := p.names[name]
	if k, err := strconv.Atoi(name); err == nil && !p.named {
		n, ok = k, k >= 1 && k <= p.open
	}
	if !ok {
		return atom{}, p.refuse(start, fmt.Sprintf(`\k<%s>, a reference to a group that is not before it,`, name))
	}
	return p.referenceTo(n), nil
}
