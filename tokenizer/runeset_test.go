package tokenizer

import (
	"maps"
	"testing"
	"unicode"

	"golang.org/x/text/cases"
)

// TestFullFoldings: the characters that fold to several are those of Unicode's full case folding.
func TestFullFoldings(t *testing.T) {
	fold := cases.Fold()
	want := map[rune]string{}
	for r := range unicode.MaxRune + 1 {
		if s := fold.String(string(r)); len([]rune(s)) > 1 && r != unicode.ReplacementChar {
			want[r] = s
		}
	}
	got := folding()
	if !maps.Equal(got.single, want) || len(want) < 100 {
		t.Errorf("%d characters fold to several, %d should", len(got.single), len(want))
	}
	for r, s := range want {
		if got.single[r] != s {
			t.Errorf("%q folds to %+q, not %+q", r, got.single[r], s)
		}
		if !got.many[s].has(r) {
			t.Errorf("%q is none of those that %+q stands for", r, s)
		}
	}
}
