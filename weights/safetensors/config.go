package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/pyjson"
)

const (
	maxConfig  = 64 << 20
	maxNesting = 32
)

// config is a JSON document flattened to dotted keys.
type config struct {
	keys   []string
	values map[string]any
	nulls  map[string]bool
}

func (c *config) set(key string, v any) {
	if _, have := c.values[key]; !have {
		c.keys = append(c.keys, key)
	}
	c.values[key] = v
}

// readConfig adds the JSON object in the file at path to c, its keys below
// prefix; a missing file adds nothing.
func (c *config) readConfig(path, prefix string) error {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Size() > maxConfig {
		return fmt.Errorf("%s: %d bytes; expected at most %d of a configuration", path, st.Size(), maxConfig)
	}
	b, err := plainfile.Read(path)
	if err != nil {
		return err
	}
	if err := c.parse(b, prefix); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// parse flattens a JSON object: nested objects give dotted keys, null is
// absent but for Null, an array of one kind of scalars is a slice, any other array is
// flattened by index.
func (c *config) parse(b []byte, prefix string) error {
	dec := json.NewDecoder(bytes.NewReader(pyjson.Replace(b, `"\u0001NaN"`, `"\u0001+Inf"`, `"\u0001-Inf"`)))
	dec.UseNumber()
	t, err := dec.Token()
	if err != nil || t != json.Delim('{') {
		return configError(dec, err, "expected a JSON object")
	}
	if err := c.object(dec, prefix, 0); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return configError(dec, nil, "expected nothing after the JSON object")
	}
	return nil
}

func configError(dec *json.Decoder, err error, what string) error {
	if err == nil {
		return fmt.Errorf("byte %d: %s", dec.InputOffset(), what)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("byte %d: %s: %w", dec.InputOffset(), what, err)
}

func (c *config) object(dec *json.Decoder, prefix string, depth int) error {
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return configError(dec, err, "expected a key")
		}
		if err := c.value(dec, prefix+key, depth); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return configError(dec, err, "expected the end of an object")
	}
	return nil
}

func (c *config) value(dec *json.Decoder, key string, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("byte %d: nested deeper than %d", dec.InputOffset(), maxNesting)
	}
	t, err := dec.Token()
	if err != nil {
		return configError(dec, err, "expected the value of "+strconv.Quote(key))
	}
	switch t {
	case nil:
		if c.nulls == nil {
			c.nulls = map[string]bool{}
		}
		c.nulls[key] = true
		return nil
	case json.Delim('{'):
		return c.object(dec, key+".", depth+1)
	case json.Delim('['):
		return c.array(dec, key, depth+1)
	}
	v, err := scalar(t)
	if err != nil {
		return fmt.Errorf("byte %d: %q: %w", dec.InputOffset(), key, err)
	}
	c.set(key, v)
	return nil
}

// array sets the key to a slice where every element is the same kind of
// scalar; numbers that are not all integers are floats.
func (c *config) array(dec *json.Decoder, key string, depth int) error {
	var items []any
	flat := &config{values: map[string]any{}}
	n := 0
	for ; dec.More(); n++ {
		if err := flat.value(dec, strconv.Itoa(n), depth); err != nil {
			return err
		}
		if v, ok := flat.values[strconv.Itoa(n)]; ok {
			items = append(items, v)
		}
	}
	if _, err := dec.Token(); err != nil {
		return configError(dec, err, "expected the end of an array")
	}
	if len(items) == n {
		if v, ok := slice(items); ok {
			c.set(key, v)
			return nil
		}
	}
	for _, k := range flat.keys {
		c.set(key+"."+k, flat.values[k])
	}
	return nil
}

func scalar(t json.Token) (any, error) {
	num, ok := t.(json.Number)
	if !ok {
		if s, is := t.(string); is && strings.HasPrefix(s, "\x01") {
			return strconv.ParseFloat(s[1:], 64)
		}
		return t, nil // string or bool
	}
	if n, err := num.Int64(); err == nil {
		return n, nil
	}
	return num.Float64()
}

func slice(items []any) (any, bool) {
	if len(items) == 0 {
		return []string{}, true
	}
	switch items[0].(type) {
	case string:
		return all[string](items)
	case bool:
		return all[bool](items)
	case int64, float64:
		if s, ok := all[int64](items); ok {
			return s, true
		}
		out := make([]float64, len(items))
		for i, v := range items {
			switch v := v.(type) {
			case int64:
				out[i] = float64(v)
			case float64:
				out[i] = v
			default:
				return nil, false
			}
		}
		return out, true
	}
	return nil, false
}

func all[E any](items []any) (any, bool) {
	out := make([]E, len(items))
	for i, v := range items {
		e, ok := v.(E)
		if !ok {
			return nil, false
		}
		out[i] = e
	}
	return out, true
}
