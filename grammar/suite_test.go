package grammar

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ulikunitz/xz"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tokenizer"
)

// suiteCase is one schema of the benchmark with its instances.
type suiteCase struct {
	name   string
	Schema json.RawMessage `json:"schema"`
	Tests  []struct {
		Valid bool            `json:"valid"`
		Data  json.RawMessage `json:"data"`
	} `json:"tests"`
}

// suite gives one of n of the benchmark's schemas.
func suite(t testing.TB, n int) []suiteCase {
	t.Helper()
	all, err := wholeSuite(testfiles.Shared(t, "data", "jsonschema", "maskbench-eighth.tar.xz"))
	if err != nil {
		t.Fatal(err)
	}
	var out []suiteCase
	for i := n - 1; i < len(all); i += n {
		out = append(out, all[i])
	}
	return out
}

var wholeSuite = once(func(path string) (all []suiteCase, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x, err := xz.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(x); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if filepath.Ext(h.Name) != ".json" {
			continue
		}
		c := suiteCase{name: filepath.Base(h.Name)}
		if err := json.NewDecoder(r).Decode(&c); err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		all = append(all, c)
	}
})

// once keeps what tests read of a file: they change none of it.
func once[T any](read func(path string) (T, error)) func(string) (T, error) {
	var (
		do   sync.Once
		kept T
		err  error
	)
	return func(path string) (T, error) {
		do.Do(func() { kept, err = read(path) })
		return kept, err
	}
}

// accepts reads a whole text.
func (m *machine) accepts(text string) bool {
	end, at := m.read(m.start, text)
	return at < 0 && m.configs[end].accept
}

// TestSuite compiles every schema of the benchmark's eighth: what compiles accepts
// every valid instance, in more than one spelling, and refuses every invalid one;
// what does not is refused by keyword.
func TestSuite(t *testing.T) {
	n := 8
	if testfiles.Exhaustive() {
		n = 1
	}
	cases := suite(t, n)
	right, refused, nameless := 0, map[string]int{}, 0
	for _, c := range cases {
		m, err := build(Schema(string(c.Schema)), Options{}, nil)
		if err != nil {
			var r *Refused
			if errors.As(err, &r) {
				refused[r.Keyword]++
			} else {
				nameless++
				t.Logf("%s: %v", c.name, err)
			}
			continue
		}
		ok := true
		for i, x := range c.Tests {
			var compact, wide bytes.Buffer
			if json.Compact(&compact, x.Data) != nil || json.Indent(&wide, x.Data, "\n", "\t") != nil {
				t.Fatal("the benchmark holds no JSON")
			}
			for _, text := range []string{string(x.Data), compact.String(), wide.String()} {
				if m.accepts(text) != x.Valid {
					t.Errorf("%s: instance %d is valid: %v, accepted: %v", c.name, i, x.Valid, !x.Valid)
					ok = false
				}
			}
		}
		if ok {
			right++
		}
	}
	t.Logf("%d of %d right, refused %v, %d too complex", right, len(cases), refused, nameless)
	if want := len(cases) * 96 / 100; right < want {
		t.Errorf("%d of %d schemas are right, %d are wanted", right, len(cases), want)
	}
}

// qwen is a vocabulary of 151,665 tokens.
func qwen(t testing.TB) *Vocabulary {
	t.Helper()
	v, err := wholeQwen(testfiles.Shared(t, "data", "tokenizers", "qwen2.5"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

var wholeQwen = once(func(path string) (*Vocabulary, error) {
	tok, err := tokenizer.Load(path)
	if err != nil {
		return nil, err
	}
	return NewVocabulary(tok), nil
})

// TestSuiteMasks reads valid instances with masks: no token of one is ever masked.
func TestSuiteMasks(t *testing.T) {
	n := 48
	if testfiles.Exhaustive() {
		n = 8
	}
	v := qwen(t)
	set := make([]uint32, v.Words())
	tokens := 0
	for _, c := range suite(t, n) {
		g, err := Compile(v, Schema(string(c.Schema)), Options{})
		if err != nil {
			continue
		}
		for _, x := range c.Tests {
			if !x.Valid {
				continue
			}
			k := g.NewMask()
			for _, id := range v.Spell(string(x.Data)) {
				if err := k.Allowed(set); err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				if set[id>>5]>>(id&31)&1 == 0 {
					t.Fatalf("%s: token %d (%q) is masked in a valid instance", c.name, id, v.words[id])
				}
				if err := k.Accept(id); err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				tokens++
			}
			if may, err := k.MayEnd(); err != nil || !may {
				t.Fatalf("%s: a valid instance may not end: %v", c.name, err)
			}
		}
	}
	if tokens < 500 {
		t.Errorf("only %d tokens were read", tokens)
	}
}
