package parse

// What stands between the tags of a call: JSON, a name with JSON, parameters, or Python.

import (
	"encoding/json"
	"slices"
	"strings"
)

func (p *Parser) newBody(t tag) body {
	c := p.f.calls
	switch c.Body {
	case "named":
		return &namedBody{c: c, opened: t.text}
	case "params":
		return &paramsBody{c: c, opened: t.text}
	case "python":
		return &pythonBody{c: c, opened: t.text, bare: p.atStart(&t)}
	}
	b := &jsonBody{c: c, opened: t.text, bare: p.atStart(&t) && strings.HasSuffix(t.text, "{")}
	if b.bare {
		b.write(p, "{")
		b.all = "{"
	}
	return b
}

// value scans one JSON value byte by byte.
type value struct {
	depth        int
	str, esc     bool
	begun, plain bool // plain: a number or a word, which ends before what is behind it
}

// push takes a byte: in says that it belongs to the value, done that the value ends with it, or before it.
func (v *value) push(c byte) (in, done bool) {
	switch {
	case v.str:
		switch {
		case v.esc:
			v.esc = false
		case c == '\\':
			v.esc = true
		case c == '"':
			v.str = false
			return true, v.depth == 0
		}
		return true, false
	case !v.begun && strings.IndexByte(" \n\r\t", c) >= 0:
		return false, false
	}
	first := !v.begun
	v.begun = true
	switch c {
	case '"':
		v.str = true
		return true, false
	case '{', '[':
		v.depth++
		return true, false
	case '}', ']':
		if v.depth == 0 {
			return false, true
		}
		v.depth--
		return true, v.depth == 0
	}
	if v.depth > 0 {
		return true, false
	}
	if v.plain = v.plain || first; strings.IndexByte(", \n\r\t<", c) >= 0 {
		return false, true
	}
	return true, false
}

// namedBody is NAME sep {…} close.
type namedBody struct {
	c      *calls
	opened string
	head   string
	named  bool
	v      value
	given  bool   // some of the arguments came
	behind string // what came behind the arguments, up to the closing tag
	ended  bool
}

func (b *namedBody) write(p *Parser, text string) (string, bool) {
	if !b.named {
		b.head += text
		i := strings.Index(b.head, b.c.Sep)
		if i < 0 {
			return "", false
		}
		text = b.head[i+len(b.c.Sep):]
		name := b.c.nameIn(b.head[:i])
		if name == "" {
			p.literal(b.opened + b.head[:i+len(b.c.Sep)])
			return text, true
		}
		p.begin(name)
		b.named = true
	}
	if !b.ended {
		from, to := -1, 0
		for i := range len(text) {
			in, done := b.v.push(text[i])
			if in {
				if from < 0 {
					from = i
				}
				to = i + 1
			}
			if b.ended = done; done {
				if !in {
					to = i
				} else {
					to = i + 1
				}
				break
			}
		}
		if from >= 0 {
			p.arguments(text[from:to])
			b.given = true
		}
		if !b.ended {
			return "", false
		}
		if !b.given {
			p.arguments("{}")
		}
		text = text[max(to, 0):]
	}
	return skipTo(&b.behind, text, b.c.Close)
}

func (b *namedBody) end(p *Parser) {
	if !b.named {
		p.literal(b.opened + b.head)
	}
}

// nameIn finds the name in what stands before the arguments.
func (c *calls) nameIn(head string) string {
	m := c.head.FindStringSubmatch(head)
	if m == nil {
		return strings.TrimSpace(head)
	}
	return m[c.head.SubexpIndex("name")]
}

// skipTo skips text up to a closing tag, of which a part may have come before.
func skipTo(behind *string, text, tag string) (rest string, done bool) {
	if tag == "" {
		return text, true
	}
	*behind += text
	if i := strings.Index(*behind, tag); i >= 0 {
		return (*behind)[i+len(tag):], true
	}
	return "", false
}

// jsonBody is {"name": …, "arguments": {…}}, or a list of these.
type jsonBody struct {
	c         *calls
	opened    string
	bare      bool
	all       string // everything so far, for what turns out to be no call
	list      bool
	depth     int // 0: outside, 1: in an object's keys
	v         *value
	key, text string
	afterKey  bool
	valued    bool // the key has its value: a comma or the end comes
	name      string
	given     bool   // the name was given
	waiting   string // arguments that came before the name
	sent      bool
	ended     bool
	behind    string
}

var argumentKeys = []string{"arguments", "parameters", "args", "input"}

func (b *jsonBody) write(p *Parser, text string) (string, bool) {
	if b.ended {
		return skipTo(&b.behind, text, b.c.Close)
	}
	before := b.all
	b.all += text
	for i := 0; i < len(text); i++ {
		again, fail := b.byte(p, text[i])
		if fail && b.given { // the call has begun: what follows is text
			return text[i:], true
		}
		if fail {
			b.all = before + text[:i+1]
			b.give(p)
			return text[i+1:], true
		}
		if again {
			i--
		}
		if b.ended {
			b.all = ""
			return skipTo(&b.behind, text[i+1:], b.c.Close)
		}
	}
	return "", false
}

// give hands on as text what was taken for a call.
func (b *jsonBody) give(p *Parser) {
	if b.bare {
		p.literal(b.all)
		return
	}
	p.literal(b.opened + b.all)
}

func (b *jsonBody) end(p *Parser) {
	if !b.ended && !b.given {
		b.give(p)
	}
}

// byte takes one byte; again says that it is to come once more, fail that this is no call.
func (b *jsonBody) byte(p *Parser, c byte) (again, fail bool) {
	if b.v != nil {
		in, done := b.v.push(c)
		if in {
			b.text += string([]byte{c})
			if !b.afterKey {
				// part of a key
			} else if b.isArguments() && b.given && b.text[0] != '"' {
				p.arguments(string([]byte{c}))
				b.sent = true
			}
		}
		if done {
			fail = b.finished(p)
			return !in, fail
		}
		return false, false
	}
	switch {
	case strings.IndexByte(" \n\r\t", c) >= 0:
	case b.depth == 0 && c == '[' && !b.list:
		b.list = true
	case b.depth == 0 && c == '{':
		b.depth, b.key, b.name, b.given, b.waiting, b.sent = 1, "", "", false, "", false
		b.afterKey, b.valued = false, false
	case b.depth == 0 && c == ',' && b.list:
	case b.depth == 0 && c == ']' && b.list:
		b.ended = true
	case b.depth == 1 && c == '}':
		if b.name == "" {
			return false, true
		}
		if !b.sent {
			p.arguments("{}")
		}
		b.depth = 0
		b.ended = !b.list
	case b.depth == 1 && c == ',':
		b.key, b.afterKey, b.valued = "", false, false
	case b.depth == 1 && c == ':' && b.key != "" && !b.afterKey:
		b.afterKey = true
	case b.depth == 1 && !b.valued && (c == '"' || b.afterKey):
		b.v, b.text = &value{}, ""
		return true, false
	default:
		return false, true
	}
	return false, false
}

func (b *jsonBody) isArguments() bool { return slices.Contains(argumentKeys, b.key) }

// finished is told that a key or a value is whole.
func (b *jsonBody) finished(p *Parser) (fail bool) {
	text := b.text
	if b.v = nil; text == "" {
		return true
	}
	b.valued = b.afterKey
	if !b.afterKey {
		if json.Unmarshal([]byte(text), &b.key) != nil {
			return true
		}
		ours := slices.Contains(b.c.NameKeys, b.key) || b.isArguments() || b.key == "id" || b.key == "type" ||
			b.key == "tool_call_id" || b.key == "function"
		return b.bare && !b.given && b.name == "" && !ours
	}
	switch {
	case slices.Contains(b.c.NameKeys, b.key) && !b.given:
		if json.Unmarshal([]byte(text), &b.name) != nil || b.name == "" {
			return true
		}
		if b.bare && !p.hasTool(b.name) {
			return true
		}
		p.begin(b.name)
		b.given = true
		if b.waiting != "" {
			p.arguments(b.waiting)
			b.sent = true
		}
	case b.isArguments():
		var inner string
		if json.Unmarshal([]byte(text), &inner) == nil && json.Valid([]byte(inner)) {
			text = inner // JSON in a text
		}
		if !b.given {
			b.waiting = text
		} else if b.text[0] == '"' {
			p.arguments(text)
			b.sent = true
		}
	}
	return false
}

// paramsBody is NAME followed by parameters that are tagged.
type paramsBody struct {
	c      *calls
	opened string
	held   string
	name   string
	named  bool
	cut    int // where the name ends in held
	count  int
}

func (b *paramsBody) write(p *Parser, text string) (string, bool) {
	b.held += text
	if !b.named {
		if !b.head(p) {
			return "", false
		}
		if b.name == "" {
			p.literal(b.opened + b.held[:b.cut])
			return b.held[b.cut:], true
		}
	}
	for {
		open, end := strings.Index(b.held, b.c.Param.Open), strings.Index(b.held, b.c.Close)
		if end >= 0 && (open < 0 || end < open) {
			if b.count == 0 {
				p.arguments("{}")
			} else {
				p.arguments("}")
			}
			return b.held[end+len(b.c.Close):], true
		}
		if open < 0 || !b.param(p, open+len(b.c.Param.Open)) {
			return "", false
		}
	}
}

// head reads the name.
func (b *paramsBody) head(p *Parser) bool {
	var i, n int
	if b.c.Sep != "" {
		i, n = strings.Index(b.held, b.c.Sep), len(b.c.Sep)
	} else {
		i = strings.Index(b.held, b.c.Param.Open)
		if j := strings.Index(b.held, b.c.Close); i < 0 || j >= 0 && j < i {
			i = j
		}
	}
	if i < 0 {
		return false
	}
	b.cut = i + n
	if b.name = b.c.nameIn(b.held[:i]); b.name == "" {
		return true
	}
	b.held = b.held[b.cut:]
	p.begin(b.name)
	b.named = true
	return true
}

// param reads one parameter, if it is whole.
func (b *paramsBody) param(p *Parser, at int) bool {
	q := b.c.Param
	rest := b.held[at:]
	i := strings.Index(rest, q.KeyEnd)
	if i < 0 {
		return false
	}
	key, from := strings.TrimSpace(rest[:i]), i+len(q.KeyEnd)
	typed := false
	if q.Value != "" {
		j := strings.Index(rest[from:], q.Value)
		if j < 0 {
			return false
		}
		typed = q.Typed != "" && strings.Contains(rest[from:from+j], q.Typed)
		from += j + len(q.Value)
	}
	text, n, quoted, ok := b.value(rest[from:])
	if !ok {
		return false
	}
	name, _ := json.Marshal(key)
	lead := ", "
	if b.count == 0 {
		lead = "{"
	}
	switch {
	case quoted || q.Typed != "" && !typed:
		text = quote(text)
	case q.Typed != "":
		text = asJSON(text, nil)
	default:
		text = asJSON(text, p.typesOf(b.name, key))
	}
	p.arguments(lead + string(name) + ": " + text)
	b.count++
	b.held = rest[from+n:]
	return true
}

// value reads a parameter's value and its closing tag, n bytes, if they are whole. quoted says that it is a text.
func (b *paramsBody) value(rest string) (text string, n int, quoted, ok bool) {
	q := b.c.Param
	if len(q.Quote) == 2 {
		if len(rest) < len(q.Quote[0]) && strings.HasPrefix(q.Quote[0], rest) {
			return "", 0, false, false
		}
		if inner, is := strings.CutPrefix(rest, q.Quote[0]); is {
			end := strings.Index(inner, q.Quote[1]+q.Close)
			if end < 0 {
				return "", 0, false, false
			}
			return inner[:end], len(rest) - len(inner) + end + len(q.Quote[1]+q.Close), true, true
		}
	}
	end := strings.Index(rest, q.Close)
	if end < 0 {
		return "", 0, false, false
	}
	text = rest[:end]
	if !q.Exact {
		text = strings.TrimSuffix(strings.TrimPrefix(text, "\n"), "\n")
	}
	return text, end + len(q.Close), false, true
}

func (b *paramsBody) end(p *Parser) {
	switch {
	case !b.named:
		p.literal(b.opened + b.held)
	case b.count == 0:
		p.arguments("{}")
	default:
		p.arguments("}")
	}
}

// asJSON writes a parameter that may be of these types, nil: of any. A text is what is of no other of them; templates
// write other values as JSON or as Python does.
func asJSON(text string, types []string) string {
	trimmed := strings.TrimSpace(text)
	plain := json.Valid([]byte(trimmed))
	if types == nil {
		if plain {
			return trimmed
		}
		return quote(text)
	}
	v, ok := trimmed, plain
	if !ok {
		v, ok = pythonLiteral(trimmed)
	}
	kinds := kindsOf(v)
	switch {
	case ok && kinds[0] != "string" && (slices.Contains(types, kinds[0]) || slices.Contains(types, "number") &&
		slices.Contains(kinds, "number")):
		return v
	case slices.Contains(types, "string") || !ok:
		return quote(text)
	}
	return v // of another type than it may be
}

// kindsOf are JSON schema's types of a JSON value.
func kindsOf(v string) []string {
	switch {
	case v == "" || v[0] == '"':
		return []string{"string"}
	case v[0] == '{':
		return []string{"object"}
	case v[0] == '[':
		return []string{"array"}
	case v == "null":
		return []string{"null"}
	case v == "true", v == "false":
		return []string{"boolean"}
	case strings.ContainsAny(v, ".eE"):
		return []string{"number"}
	}
	return []string{"integer", "number"}
}

func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text)
	return strings.TrimSuffix(b.String(), "\n")
}

// typesOf finds the types that a parameter may have in the schema of its tool; nil: any.
func (p *Parser) typesOf(tool, param string) []string {
	for _, t := range p.opt.Tools {
		if t.Name != tool {
			continue
		}
		named, others := paramTypes(t.Schema)
		if types, ok := named[param]; ok {
			return types
		}
		return others
	}
	return nil
}
