// JSON with the order of its members, the spelling of its numbers and the place
// of every value, as a schema needs it.

package grammar

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is one JSON value. kind is its first letter: o, a, s, n(umber), t, f, z (null).
type value struct {
	kind    byte
	text    string // of a string, decoded; of a number, as spelt
	items   []*value
	keys    []string
	members map[string]*value
	parent  *value
	name    string // the key or index within parent
}

// path is the value's JSON pointer, as a fragment.
func (v *value) path() string {
	if v.parent == nil {
		return "#"
	}
	return v.parent.path() + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(v.name)
}

func (v *value) get(key string) *value {
	if v == nil || v.kind != 'o' {
		return nil
	}
	return v.members[key]
}

func (v *value) put(key string, m *value) {
	if v.members == nil {
		v.members = map[string]*value{}
	}
	if _, again := v.members[key]; !again {
		v.keys = append(v.keys, key)
	}
	m.parent, m.name = v, key
	v.members[key] = m
}

func (v *value) push(m *value) {
	m.parent, m.name = v, strconv.Itoa(len(v.items))
	v.items = append(v.items, m)
}

// bool gives what a true or false is.
func (v *value) bool() (is, ok bool) {
	return v != nil && v.kind == 't', v != nil && (v.kind == 't' || v.kind == 'f')
}

// maxJSONDepth bounds nesting.
const maxJSONDepth = 500

type jsonReader struct {
	s   string
	pos int
}

func (r *jsonReader) errorf(format string, args ...any) error {
	line, col := lineColumn(r.s, r.pos)
	return fmt.Errorf("JSON, %d:%d: %s", line, col, fmt.Sprintf(format, args...))
}

// lineColumn counts from 1; columns in characters.
func lineColumn(s string, pos int) (line, col int) {
	before := s[:min(pos, len(s))]
	line = strings.Count(before, "\n") + 1
	return line, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
}

func (r *jsonReader) space() {
	for r.pos < len(r.s) && strings.IndexByte(" \t\r\n", r.s[r.pos]) >= 0 {
		r.pos++
	}
}

// parseJSON reads one value and nothing after it.
func parseJSON(s string) (*value, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("JSON: not UTF-8")
	}
	r := &jsonReader{s: strings.TrimPrefix(s, "\ufeff")}
	v, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if r.space(); r.pos < len(r.s) {
		return nil, r.errorf("something after the value")
	}
	return v, nil
}

func (r *jsonReader) value(depth int) (*value, error) {
	r.space()
	if depth > maxJSONDepth {
		return nil, r.errorf("nested deeper than %d", maxJSONDepth)
	}
	if r.pos == len(r.s) {
		return nil, r.errorf("the text ends where a value is expected")
	}
	for word, kind := range map[string]byte{"true": 't', "false": 'f', "null": 'z'} {
		if strings.HasPrefix(r.s[r.pos:], word) {
			r.pos += len(word)
			return &value{kind: kind}, nil
		}
	}
	switch c := r.s[r.pos]; {
	case c == '"':
		s, err := r.string()
		return &value{kind: 's', text: s}, err
	case c == '-' || c >= '0' && c <= '9':
		end := r.pos
		for end < len(r.s) && strings.IndexByte("0123456789+-.eE", r.s[end]) >= 0 {
			end++
		}
		text := r.s[r.pos:end]
		if !json.Valid([]byte(text)) {
			return nil, r.errorf("%q is no number", text)
		}
		r.pos = end
		return &value{kind: 'n', text: text}, nil
	case c == '{':
		return r.object(depth)
	case c == '[':
		return r.array(depth)
	default:
		return nil, r.errorf("%q begins no value", c)
	}
}

func (r *jsonReader) string() (string, error) {
	end := r.pos + 1
	for end < len(r.s) && r.s[end] != '"' {
		if r.s[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(r.s) {
		return "", r.errorf("a string without its end")
	}
	var s string
	if err := json.Unmarshal([]byte(r.s[r.pos:end+1]), &s); err != nil {
		return "", r.errorf("no string: %v", err)
	}
	r.pos = end + 1
	return s, nil
}

func (r *jsonReader) object(depth int) (*value, error) {
	v := &value{kind: 'o'}
	r.pos++
	for first := true; ; first = false {
		r.space()
		if first && r.take('}') {
			return v, nil
		}
		if r.pos == len(r.s) || r.s[r.pos] != '"' {
			return nil, r.errorf("a member's name is expected")
		}
		key, err := r.string()
		if err != nil {
			return nil, err
		}
		if r.space(); !r.take(':') {
			return nil, r.errorf("a : is expected")
		}
		m, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		v.put(key, m)
		r.space()
		if r.take('}') {
			return v, nil
		}
		if !r.take(',') {
			return nil, r.errorf("a , or } is expected")
		}
	}
}

func (r *jsonReader) array(depth int) (*value, error) {
	v := &value{kind: 'a'}
	r.pos++
	for first := true; ; first = false {
		r.space()
		if first && r.take(']') {
			return v, nil
		}
		m, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		v.push(m)
		r.space()
		if r.take(']') {
			return v, nil
		}
		if !r.take(',') {
			return nil, r.errorf("a , or ] is expected")
		}
	}
}

func (r *jsonReader) take(c byte) bool {
	if r.pos < len(r.s) && r.s[r.pos] == c {
		r.pos++
		return true
	}
	return false
}
