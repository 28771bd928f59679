// Classes and escapes of Oniguruma's patterns.

package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// class reads what follows '[' outside of classes.
func (p *onig) class(depth int) (atom, error) {
	negated := p.at < len(p.in) && p.in[p.at] == '^'
	set, err := p.classSet(depth)
	if err != nil {
		return atom{}, err
	}
	if negated { // without case, a class is folded before it is turned round
		set = set.not()
	}
	if p.fold {
		set = set.folded()
	}
	if negated {
		return atom{text: set.not().text()}, nil
	}
	text := set.text()
	if p.fold {
		var more []string
		for r, s := range folding().single {
			if set.has(r) {
				more = append(more, p.foldString(s))
			}
		}
		if slices.Sort(more); len(more) > 0 {
			text = "(?:" + text + "|" + strings.Join(slices.Compact(more), "|") + ")"
		}
	}
	return atom{text: text}, nil
}

// classSet reads a class up to its ']', with all that is in it.
func (p *onig) classSet(depth int) (runeSet, error) {
	start := p.at - 1
	if depth > maxDepth {
		return nil, errors.New("classes nest too deep")
	}
	negated := p.take("^")
	var all, set runeSet
	joined := false // there was an &&
	for first := true; ; first = false {
		if p.at >= len(p.in) {
			return nil, fmt.Errorf("character %d: '[' without ']'", start)
		}
		if p.in[p.at] == ']' && !first {
			p.at++
			break
		}
		if p.take("&&") {
			if set = set.tidy(); joined {
				set = all.and(set)
			}
			all, set, joined = set, nil, true
			continue
		}
		part, err := p.classPart(depth)
		if err != nil {
			return nil, err
		}
		set = append(set, part...)
	}
	if set = set.tidy(); joined {
		set = all.and(set)
	}
	if negated {
		set = set.not()
	}
	return set, nil
}

// classPart reads a character, a range, a nested class or a named set.
func (p *onig) classPart(depth int) (runeSet, error) {
	start, c := p.at, p.in[p.at]
	p.at++
	switch {
	case c == '[' && p.at < len(p.in) && p.in[p.at] == ':':
		if set, ok, err := p.posix(); ok || err != nil {
			return set, err
		}
		return p.classSet(depth + 1)
	case c == '[':
		return p.classSet(depth + 1)
	case c == '\\':
		set, ok, err := p.classEscape(start)
		if err != nil {
			return nil, err
		}
		if ok {
			if p.rangeFollows() {
				return nil, p.refuse(p.at, "a range that begins with a set")
			}
			return set, nil
		}
		if c, err = p.charEscape(start); err != nil {
			return nil, err
		}
	}
	if !p.rangeFollows() {
		return spans(c, c), nil
	}
	p.at++
	end := p.in[p.at]
	p.at++
	switch {
	case end == '[':
		return nil, p.refuse(p.at-1, "a range that ends with a set")
	case end == '\\':
		_, ok, err := p.classEscape(p.at - 1)
		if err == nil && ok {
			err = p.refuse(start, "a range that ends with a set")
		}
		if err != nil {
			return nil, err
		}
		if end, err = p.charEscape(start); err != nil {
			return nil, err
		}
	}
	if end < c {
		return nil, fmt.Errorf("character %d: the range %q to %q is empty", start, c, end)
	}
	if p.rangeFollows() {
		return nil, p.refuse(p.at, "a range that begins with a range")
	}
	return spans(c, end), nil
}

// rangeFollows says that '-' and an end of a range come next.
func (p *onig) rangeFollows() bool {
	if p.at+1 >= len(p.in) || p.in[p.at] != '-' || p.in[p.at+1] == ']' {
		return false
	}
	return !(p.in[p.at+1] == '&' && p.at+2 < len(p.in) && p.in[p.at+2] == '&')
}

// posix reads ":alpha:]" and ":^alpha:]".
func (p *onig) posix() (runeSet, bool, error) {
	rest := string(p.in[p.at+1 : min(len(p.in), p.at+24)])
	end := strings.Index(rest, ":]")
	if end < 0 {
		return nil, false, nil
	}
	name := rest[:end]
	if strings.ContainsFunc(name, func(r rune) bool { return r != '^' && !unicode.IsLetter(r) }) {
		return nil, false, nil
	}
	set, ok := posixSet(strings.TrimPrefix(name, "^"))
	if !ok {
		return nil, false, p.refuse(p.at-1, "[:"+name+":]")
	}
	p.at += 1 + end + 2
	if strings.HasPrefix(name, "^") {
		set = set.not()
	}
	return set, true, nil
}

// classEscape reads an escape that stands for a set, in a class or outside.
func (p *onig) classEscape(start int) (runeSet, bool, error) { return p.setEscape(start, false) }

// setEscape is classEscape; alone says that it stands outside.
func (p *onig) setEscape(start int, alone bool) (runeSet, bool, error) {
	if p.at >= len(p.in) {
		return nil, false, errors.New("ends with a backslash")
	}
	var set runeSet
	c := p.in[p.at]
	switch unicode.ToLower(c) {
	case 'w':
		if set = setWord(); alone {
			set = setWordAlone()
		}
	case 'd':
		set = tables("Nd")
	case 's':
		set = setSpace()
	case 'h':
		set = setHex
	case 'p':
		return p.propertyEscape(start, alone)
	default:
		return nil, false, nil
	}
	p.at++
	if unicode.IsUpper(c) {
		set = set.not()
	}
	return set, true, nil
}

// propertyEscape reads p{Name}, P{Name} and p{^Name}.
func (p *onig) propertyEscape(start int, alone bool) (runeSet, bool, error) {
	negated := p.in[p.at] == 'P'
	if p.at+1 >= len(p.in) || p.in[p.at+1] != '{' {
		return nil, false, nil // \p alone is a p
	}
	p.at += 2
	if p.take("^") {
		negated = !negated
	}
	from := p.at
	for p.at < len(p.in) && p.in[p.at] != '}' {
		p.at++
	}
	name := string(p.in[from:p.at])
	if p.at >= len(p.in) {
		return nil, false, fmt.Errorf("character %d: \\p{ without }", start)
	}
	p.at++
	set, ok := property(name, alone)
	if !ok {
		return nil, false, p.refuse(start, fmt.Sprintf(`\p{%s}`, name))
	}
	if negated {
		set = set.not()
	}
	return set, true, nil
}

// charEscape reads an escape that stands for one character.
func (p *onig) charEscape(start int) (rune, error) {
	if p.at >= len(p.in) {
		return 0, errors.New("ends with a backslash")
	}
	c := p.in[p.at]
	p.at++
	switch c {
	case 't', 'n', 'v', 'r', 'f', 'a', 'e', 'b':
		return map[rune]rune{'t': '\t', 'n': '\n', 'v': '\v', 'r': '\r', 'f': '\f', 'a': '\a', 'e': 0x1B, 'b': '\b'}[c], nil
	case 'M':
		return 0, p.refuse(start, `\M, a meta character,`)
	case 'c', 'C':
		if c == 'C' && !p.take("-") || p.at >= len(p.in) || p.in[p.at] == '\\' {
			return 0, p.refuse(start, `this control character`)
		}
		p.at++
		if p.in[p.at-1] == '?' {
			return 0x7F, nil
		}
		return p.in[p.at-1] & 0x9F, nil
	case 'x':
		if p.take("{") {
			r, n := p.digits(16, 8)
			if n == 0 || !p.take("}") || r > unicode.MaxRune {
				return 0, p.refuse(start, `this \x{…}`)
			}
			return r, nil
		}
		r, n := p.digits(16, 2)
		if n == 0 {
			return 0, p.refuse(start, `\x without digits`)
		}
		if r >= 0x80 {
			return 0, p.refuse(start, fmt.Sprintf(`\x%02X, a byte of a longer character,`, r))
		}
		return r, nil
	case 'u':
		r, n := p.digits(16, 4)
		if n < 4 {
			return 0, p.refuse(start, `\u with fewer than four digits`)
		}
		return r, nil
	case '0', '1', '2', '3', '4', '5', '6', '7':
		p.at--
		r, _ := p.digits(8, 3)
		if r >= 0x80 {
			return 0, p.refuse(start, fmt.Sprintf(`\%o, a byte of a longer character,`, r))
		}
		return r, nil
	}
	return c, nil
}

// digits reads up to n digits.
func (p *onig) digits(base, n int) (rune, int) {
	from := p.at
	for p.at < len(p.in) && p.at-from < n {
		if _, err := strconv.ParseUint(string(p.in[p.at]), base, 8); err != nil {
			break
		}
		p.at++
	}
	v, _ := strconv.ParseUint(string(p.in[from:p.at]), base, 32)
	return rune(min(v, unicode.MaxRune+1)), p.at - from
}
