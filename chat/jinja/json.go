package jinja

// JSON in and out: FromJSON keeps the order of keys, tojson writes as Python's json.dumps does.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// FromJSON reads a JSON text as a value: objects as *Dict in the order of their keys, numbers as int64 where they
// have neither point nor exponent.
func FromJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := readJSON(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("behind the JSON value, at byte %d, there is more", d.InputOffset())
	}
	return v, nil
}

func readJSON(d *json.Decoder, depth int) (any, error) {
	if depth > 200 {
		return nil, fmt.Errorf("the JSON value is nested more than 200 deep")
	}
	t, err := d.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		if !strings.ContainsAny(string(t), ".eE") {
			if n, err := strconv.ParseInt(string(t), 10, 64); err == nil {
				return n, nil
			}
		}
		f, err := strconv.ParseFloat(string(t), 64)
		if err != nil && !math.IsInf(f, 0) {
			return nil, err
		}
		return f, nil
	case json.Delim:
		if t == '[' {
			l := &List{Items: []any{}}
			for d.More() {
				v, err := readJSON(d, depth+1)
				if err != nil {
					return nil, err
				}
				l.Items = append(l.Items, v)
			}
			_, err := d.Token()
			return l, err
		}
		o := NewDict()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := readJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			o.Set(key, v)
		}
		_, err := d.Token()
		return o, err
	}
	return t, nil
}

// ToJSON writes a value as json.dumps does by itself, with characters beyond ASCII as they are.
func ToJSON(v any) (s string, err error) {
	defer catch(&err, nil)
	w := &jsonWriter{in: &interp{limits: Limits{}.orDefault()}, item: ", ", key: ": "}
	w.value(v, 0)
	return w.b.String(), nil
}

// jsonWriter writes one value.
type jsonWriter struct {
	in        *interp
	b         strings.Builder
	ascii     bool
	pretty    bool
	indent    string
	item, key string
	sort      bool
}

// tojson is the filter of transformers: json.dumps(x, ensure_ascii, indent, separators, sort_keys).
func tojson(in *interp, v any, a *arguments) any {
	w := &jsonWriter{in: in, item: ", ", key: ": "}
	w.ascii = a.truth("ensure_ascii", false)
	if indent := a.or("indent", nil); indent != nil {
		w.pretty, w.item = true, ","
		if s, ok := text(indent); ok {
			w.indent = s
		} else if n, _, isInt, ok := number(indent); ok && isInt {
			w.indent = strings.Repeat(" ", in.bounded(max(n, 0)))
		} else {
			throw("TypeError", "can't multiply sequence by non-int of type '%s'", typeName(indent))
		}
	}
	if sep := a.or("separators", nil); sep != nil {
		parts := in.collect(sep)
		if len(parts) != 2 {
			throw("ValueError", "separators are two texts, not %d", len(parts))
		}
		w.item, w.key = in.str(parts[0]), in.str(parts[1])
	}
	w.sort = a.truth("sort_keys", false)
	a.done()
	w.value(v, 0)
	return w.b.String()
}

func (w *jsonWriter) newline(depth int) {
	if w.pretty {
		w.in.charge(1 + depth*len(w.indent))
		w.b.WriteByte('\n')
		for range depth {
			w.b.WriteString(w.indent)
		}
	}
}

func (w *jsonWriter) value(v any, depth int) {
	w.in.step()
	if w.b.Len() > w.in.limits.Output {
		throw("LimitError", "a JSON text has more than %d bytes", w.in.limits.Output)
	}
	switch v := v.(type) {
	case nil:
		w.b.WriteString("null")
	case bool:
		w.b.WriteString(strconv.FormatBool(v))
	case int64:
		w.b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		w.b.WriteString(jsonFloat(v))
	case string:
		w.quote(v)
	case Markup:
		w.quote(string(v))
	case *List:
		w.list(v.Items, depth)
	case *Tuple:
		w.list(v.Items, depth)
	case *Dict:
		w.dict(v, depth)
	default:
		throw("TypeError", "Object of type %s is not JSON serializable", typeName(v))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return reprFloat(f)
}

func (w *jsonWriter) list(items []any, depth int) {
	if len(items) == 0 {
		w.b.WriteString("[]")
		return
	}
	defer w.in.enter()()
	w.b.WriteByte('[')
	for i, v := range items {
		if i > 0 {
			w.b.WriteString(w.item)
		}
		w.newline(depth + 1)
		w.value(v, depth+1)
	}
	w.newline(depth)
	w.b.WriteByte(']')
}

func (w *jsonWriter) dict(d *Dict, depth int) {
	if d.Len() == 0 {
		w.b.WriteString("{}")
		return
	}
	defer w.in.enter()()
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	if w.sort {
		slices.SortStableFunc(order, func(i, j int) int { return w.in.compareValues(d.keys[i], d.keys[j], "<") })
	}
	w.b.WriteByte('{')
	for n, i := range order {
		if n > 0 {
			w.b.WriteString(w.item)
		}
		w.newline(depth + 1)
		switch k := d.keys[i].(type) {
		case string:
			w.quote(k)
		case Markup:
			w.quote(string(k))
		case nil, bool, int64, float64:
			w.b.WriteByte('"')
			w.value(k, depth)
			w.b.WriteByte('"')
		default:
			throw("TypeError", "keys must be str, int, float, bool or None, not %s", typeName(k))
		}
		w.b.WriteString(w.key)
		w.value(d.values[i], depth+1)
	}
	w.newline(depth)
	w.b.WriteByte('}')
}

func (w *jsonWriter) quote(s string) {
	w.in.charge(len(s))
	w.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.b.WriteByte('\\')
			w.b.WriteRune(r)
		case r == '\n':
			w.b.WriteString(`\n`)
		case r == '\r':
			w.b.WriteString(`\r`)
		case r == '\t':
			w.b.WriteString(`\t`)
		case r == '\b':
			w.b.WriteString(`\b`)
		case r == '\f':
			w.b.WriteString(`\f`)
		case r < 0x20 || w.ascii && r > 0x7e && r <= 0xffff:
			fmt.Fprintf(&w.b, `\u%04x`, r)
		case w.ascii && r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&w.b, `\u%04x\u%04x`, hi, lo)
		default:
			w.b.WriteRune(r)
		}
	}
	w.b.WriteByte('"')
}
