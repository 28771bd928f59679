package jinja

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/testfiles"
)

// TestPublicTemplates renders chat templates of public models with conversations, and compares with what
// transformers' own environment made of them, errors included.
func TestPublicTemplates(t *testing.T) {
	dir := testfiles.Shared(t, "data/chat")
	data, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Cases    map[string]json.RawMessage
		Expected map[string]map[string]struct{ Text, Error *string }
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range want.Expected {
		names = append(names, name)
	}
	sort.Strings(names)
	compared := 0
	for _, name := range names {
		source, err := os.ReadFile(filepath.Join(dir, "templates", name))
		if err != nil {
			t.Fatal(err)
		}
		tmpl, err := Parse(string(source))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for c, w := range want.Expected[name] {
			compared++
			vars, err := FromJSON(want.Cases[c])
			if err != nil {
				t.Fatal(err)
			}
			d := vars.(*Dict)
			for k, v := range map[string]any{"tools": nil, "documents": nil, "bos_token": "<s>", "eos_token": "</s>"} {
				if _, ok := d.Get(k); !ok {
					d.Set(k, v)
				}
			}
			got, err := tmpl.Render(Env{Vars: d, Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
			switch {
			case w.Error != nil && err == nil:
				t.Errorf("%s, %s: text, want the error %s", name, c, *w.Error)
			case w.Error != nil && err.Error() != *w.Error:
				t.Errorf("%s, %s: error %v, want %s", name, c, err, *w.Error)
			case w.Error == nil && err != nil:
				t.Errorf("%s, %s: error %v", name, c, err)
			case w.Error == nil && got != *w.Text:
				t.Errorf("%s, %s:\n got %q\nwant %q", name, c, got, *w.Text)
			}
		}
	}
	if compared < 600 {
		t.Errorf("only %d renderings were compared", compared)
	}
}
