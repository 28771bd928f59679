package bridge

// Arguments of requests: read strictly, and what is wrong with them said in words that are not Go's.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// strict reads a request's arguments; keys that mean nothing are errors.
func strict(args json.RawMessage, into any) error {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(args))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return usagef("the request's arguments: %s", wrongType(wrong))
		}
		return usagef("the request's arguments: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// texts are texts of which none is null, which JSON's reader would take for an empty one.
type texts []string

// UnmarshalJSON reads a list of texts.
func (t *texts) UnmarshalJSON(raw []byte) error {
	if bytes.Contains(raw, []byte("null")) {
		var found []*string
		if json.Unmarshal(raw, &found) == nil {
			for i, s := range found {
				if s == nil {
					return &json.UnmarshalTypeError{Value: fmt.Sprintf("null at index %d", i), Type: reflect.TypeFor[string]()}
				}
			}
		}
	}
	return json.Unmarshal(raw, (*[]string)(t))
}

// ids are token ids of which none is null, which would be taken for 0.
type ids []int32

// UnmarshalJSON reads a list of ids.
func (t *ids) UnmarshalJSON(raw []byte) error {
	if len(raw) > len("null") && bytes.Contains(raw, []byte("null")) {
		return &json.UnmarshalTypeError{Value: "null among them", Type: reflect.TypeFor[int32]()}
	}
	return json.Unmarshal(raw, (*[]int32)(t))
}

// wrongType says which argument is not what it should be: "context is a text, a whole number is expected".
func wrongType(e *json.UnmarshalTypeError) string {
	var path []string
	for _, name := range strings.Split(e.Field, ".") {
		if name != "" && !unicode.IsUpper(rune(name[0])) { // a struct within
			path = append(path, name)
		}
	}
	field := strings.Join(path, ".")
	if field == "" {
		field = "args"
	}
	value := e.Value
	if number, ok := strings.CutPrefix(value, "number "); ok {
		if value = number; len(value) > 40 {
			value = value[:40] + "…"
		}
	} else if word, ok := map[string]string{"string": "a text", "bool": "true or false", "array": "a list",
		"object": "an object", "number": "a number"}[value]; ok {
		value = word
	}
	return fmt.Sprintf("%s is %s, %s is expected", field, value, expected(e.Type))
}

// expected says what a type takes.
func expected(t reflect.Type) string {
	switch k := t.Kind(); k {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number below 2^%d", t.Bits()-1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to 2^%d-1", t.Bits())
	case reflect.Pointer:
		return expected(t.Elem())
	}
	return "an object"
}
