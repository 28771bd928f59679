// Reading requests: sizes are bounded, bad JSON is told with its place, and fields that nobody
// knows are taken and named in a header.

package serve

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// ignoredHeader names the fields of a request that did nothing.
const ignoredHeader = "X-Greta-Ignored-Fields"

// known are the JSON names of a struct's fields with their types, embedded ones included.
var known sync.Map // reflect.Type → map[string]reflect.Type

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if m, ok := known.Load(t); ok {
		return m.(map[string]reflect.Type)
	}
	m := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(m, fieldsOf(f.Type))
		case name != "" && name != "-":
			m[name] = f.Type
		}
	}
	known.Store(t, m)
	return m
}

// bodyWait is how long a body may take to come.
const bodyWait = time.Minute

// boundBody gives the connection so long for what it says it sends. A body that nobody reads, or only a part of, is
// bound too: net/http wants to see its end before it answers, and would wait for as long as the client likes.
func (s *Server) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // writers that have no connection know no deadline
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyWait))
	}
}

// readBody reads a request's JSON object into v, a pointer to a struct, and names unknown fields in
// the answer's header.
func readBody(w http.ResponseWriter, r *http.Request, most int64, v any) error {
	if r.ContentLength > most {
		return &http.MaxBytesError{Limit: most}
	}
	body, err := wholeBody(http.MaxBytesReader(w, r.Body, most), r.Header.Get("Content-Encoding"), most)
	if err != nil {
		var big *http.MaxBytesError
		var own *Error
		if errors.As(err, &big) || errors.As(err, &own) {
			return err
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return &Error{Status: 408, Type: "timeout_error", Code: "timeout", Message: "the body did not come in time"}
		}
		return badRequest("", "the body could not be read: "+err.Error())
	}
	// From here on a client that leaves is noticed, and one that waits is not. Some writers know no deadline.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return parseBody(w.Header(), body, v)
}

// wholeBody reads a body of one of the encodings that clients send, which may have so many bytes without it.
func wholeBody(r io.Reader, encoding string, most int64) ([]byte, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return io.ReadAll(r)
	case "gzip", "x-gzip":
	default:
		return nil, &Error{Status: 415, Type: "invalid_request_error", Code: "unsupported_encoding",
			Message: fmt.Sprintf("the body has the Content-Encoding %q; there are gzip and identity", clip(encoding, 50))}
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(z, most+1))
	if err == nil && int64(len(body)) > most {
		return nil, &http.MaxBytesError{Limit: most}
	}
	return body, err
}

// deepest is how far JSON values of a request may lie in each other.
const deepest = 200

func parseBody(h http.Header, body []byte, v any) error {
	if err := checkDepth(body); err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(body, &keys); err != nil {
		return jsonError(body, err)
	}
	if keys == nil {
		return badRequest("", "the body must be a JSON object, it is null")
	}
	if !utf8.Valid(body) { // which encoding/json reads as something else
		return badRequest("", "the body is not UTF-8")
	}
	known := fitting{ignored: map[string]bool{}}
	changed, err := known.object(keys, fieldsOf(reflect.TypeOf(v).Elem()), "")
	if err != nil {
		return err
	}
	if changed {
		body, _ = json.Marshal(keys) // which was JSON
	}
	if err := json.Unmarshal(body, v); err != nil {
		return jsonError(body, err)
	}
	addIgnored(h, slices.Collect(maps.Keys(known.ignored))...)
	return nil
}

// fitting walks over a request's JSON beside the type that it will be read into.
type fitting struct {
	ignored map[string]bool // fields that no type has, by their path without places in arrays
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// value gives what is to be read of a value that lies at a path: without the fields whose names a type has but for the
// case of letters, which encoding/json takes for these, and with integers written as such: 10.0 is one. It refuses
// nulls in arrays. What is read elsewhere, by types of
// their own, and what is of another kind than the type, it leaves as it is.
func (f *fitting) value(raw json.RawMessage, t reflect.Type, at string) (json.RawMessage, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return raw, nil
	}
	switch {
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return integral(raw), nil
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.String:
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return raw, nil
		}
		changed := false
		for i, v := range list {
			inner, err := f.value(v, t.Elem(), at)
			if err != nil {
				return nil, err
			}
			list[i], changed = inner, changed || !bytes.Equal(inner, v)
		}
		if changed {
			raw, _ = json.Marshal(list)
		}
	case t.Kind() == reflect.Struct:
		var o map[string]json.RawMessage
		if json.Unmarshal(raw, &o) != nil {
			return raw, nil
		}
		if changed, err := f.object(o, fieldsOf(t), at); err != nil || changed {
			again, _ := json.Marshal(o) // which was JSON
			return again, err
		}
	}
	return raw, nil
}

// integral writes a number that is an integer, such as 10.0 or 1e1, without point and exponent.
func integral(raw json.RawMessage) json.RawMessage {
	text := string(bytes.TrimSpace(raw))
	if !strings.ContainsAny(text, ".eE") || len(text) > 400 {
		return raw
	}
	// No exponent makes more digits than this of a number that fits.
	if f, err := strconv.ParseFloat(text, 64); err != nil || math.Abs(f) > 1e19 || f != 0 && math.Abs(f) < 1 {
		return raw
	}
	_, exp, _ := strings.Cut(strings.ToLower(text), "e")
	if n, err := strconv.Atoi(exp); exp != "" && (err != nil || n > 1000 || n < -1000) {
		return raw
	}
	if r, ok := new(big.Rat).SetString(text); ok && r.IsInt() {
		return json.RawMessage(r.Num().String())
	}
	return raw
}

// object does so with an object, and says whether that is another now.
func (f *fitting) object(o map[string]json.RawMessage, fields map[string]reflect.Type, at string) (changed bool,
	err error) {
	for k, v := range o {
		path := strings.TrimPrefix(at+"."+k, ".")
		t := fields[k]
		if t == nil {
			if string(v) != "null" {
				f.ignored[headerName(path)] = true
			}
			if isName(fields, k) {
				delete(o, k)
				changed = true
			}
			continue
		}
		if i := nullIn(v); i >= 0 {
			path = fmt.Sprintf("%s[%d]", path, i)
			return false, badRequest(path, path+" is null; a value is expected")
		}
		inner, err := f.value(v, t, path)
		if err != nil {
			return false, err
		}
		o[k], changed = inner, changed || !bytes.Equal(inner, v)
	}
	return changed, nil
}

// nullIn finds the first null among an array's values, which encoding/json would take for an empty value; -1: none.
func nullIn(raw json.RawMessage) int {
	var list []json.RawMessage
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '[' || !bytes.Contains(raw, []byte("null")) ||
		json.Unmarshal(raw, &list) != nil {
		return -1
	}
	for i, v := range list {
		if string(v) == "null" {
			return i
		}
	}
	return -1
}

// isName says whether a field is called so but for the case of letters.
func isName(fields map[string]reflect.Type, name string) bool {
	for f := range fields {
		if strings.EqualFold(f, name) {
			return true
		}
	}
	return false
}

// headerName makes a field's name fit for a header.
func headerName(k string) string {
	clean := strings.Map(func(r rune) rune {
		if r < 0x21 || r > 0x7e || r == ',' {
			return '?'
		}
		return r
	}, k)
	return clean[:min(len(clean), 64)]
}

// mostIgnored bounds how many fields a header names.
const mostIgnored = 50

// addIgnored says that fields did nothing.
func addIgnored(h http.Header, names ...string) {
	if len(names) == 0 {
		return
	}
	if old := h.Get(ignoredHeader); old != "" {
		names = append(strings.Split(old, ", "), names...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	h.Set(ignoredHeader, strings.Join(names[:min(len(names), mostIgnored)], ", "))
}

// checkDepth refuses JSON that lies deeper in itself than anything that is meant.
func checkDepth(body []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > deepest {
				return badRequest("", fmt.Sprintf("the JSON is nested deeper than %d levels", deepest))
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

func jsonError(body []byte, err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	var own *Error
	switch {
	case errors.As(err, &own):
		return own
	case len(bytes.TrimSpace(body)) == 0:
		return badRequest("", "the body is empty; a JSON object is expected")
	case errors.As(err, &syntax):
		at := min(int(syntax.Offset), len(body))
		line := 1 + bytes.Count(body[:at], []byte("\n"))
		return badRequest("", fmt.Sprintf("the body is not JSON: %v at byte %d, line %d", syntax, at, line))
	case errors.As(err, &typ):
		field := typ.Field
		for _, embedded := range []string{"samplingFields.", "structuredFields."} {
			field = strings.TrimPrefix(field, embedded)
		}
		if field == "" {
			return badRequest("", fmt.Sprintf("the body must be a JSON object, it is %s", article(typ.Value)))
		}
		if at, ok := valueAt(body, field); ok && (at[0] == '[' && !strings.HasPrefix(typ.Value, "array") ||
			at[0] == '{' && !strings.HasPrefix(typ.Value, "object")) {
			return badRequest(field, fmt.Sprintf("each value in %s must be %s, one is %s", field, typeName(typ.Type),
				article(typ.Value)))
		}
		if number, ok := strings.CutPrefix(typ.Value, "number "); ok && isNumber(typ.Type) {
			if typeName(typ.Type) == "an integer" && strings.ContainsAny(number, ".eE") {
				return badRequest(field, fmt.Sprintf("%s must be an integer, it is %s", field, clip(number, 50)))
			}
			return badRequest(field, fmt.Sprintf("%s is out of range: it is %s", field, clip(number, 50)))
		}
		return badRequest(field, fmt.Sprintf("%s must be %s, it is %s", field, typeName(typ.Type), article(typ.Value)))
	}
	return badRequest("", "the body is not JSON: "+err.Error())
}

// valueAt finds what an object has under a path of names with dots; of what lies in arrays it finds nothing.
func valueAt(body json.RawMessage, path string) (json.RawMessage, bool) {
	for _, name := range strings.Split(path, ".") {
		var o map[string]json.RawMessage
		if json.Unmarshal(body, &o) != nil {
			return nil, false
		}
		body = o[name]
	}
	return body, len(body) > 0
}

// tokenIDs reads an array of tokens. What encoding/json takes for 0, a null, is none.
func tokenIDs(raw json.RawMessage) (ids []int32, ok bool) {
	if raw, _ = new(fitting).value(raw, reflect.TypeOf(ids), ""); len(raw) == 0 {
		return nil, false
	}
	err := json.Unmarshal(raw, &ids)
	return ids, err == nil && ids != nil && !bytes.Contains(raw, []byte("null"))
}

// isNumber says whether numbers are read into a type.
func isNumber(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64
}

// given says whether a field has something in it; null and an empty list are nothing.
func given(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null" && string(raw) != "[]"
}

func article(kind string) string {
	word, _, _ := strings.Cut(kind, " ")
	switch word {
	case "object", "array":
		return "an " + word
	case "number", "string":
		return "a " + kind
	case "bool":
		return "a boolean"
	}
	return kind
}

func typeName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "an integer"
}
