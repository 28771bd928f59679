package grammar

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
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

// suite reads the benchmark; of n schemas one where the test is short.
func suite(t testing.TB, n int) []suiteCase {
	t.Helper()
	f, err := os.Open(testfiles.Shared(t, "data", "jsonschema", "maskbench-eighth.tar.xz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := xz.NewReader(bufio.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	var out []suiteCase
	seen := 0
	for r := tar.NewReader(x); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(h.Name) != ".json" {
			continue
		}
		if seen++; testing.Short() && seen%n != 0 {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		c := suiteCase{name: filepath.Base(h.Name)}
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
		out = append(out, c)
	}
	return out
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
	cases := suite(t, 6)
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
func qwen(t testing.TB) (*Vocabulary, *tokenizer.Tokenizer) {
	t.Helper()
	tok, err := tokenizer.Load(testfiles.Shared(t, "data", "tokenizers", "qwen2.5"))
	if err != nil {
		t.Fatal(err)
	}
	return NewVocabulary(tok), tok
}

// TestSuiteMasks reads valid instances with masks: no token of one is ever masked.
func TestSuiteMasks(t *testing.T) {
	v, _ := qwen(t)
	set := make([]uint32, v.Words())
	tokens := 0
	for i, c := range suite(t, 24) {
		if !testing.Short() && i%8 != 0 {
			continue
		}
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
