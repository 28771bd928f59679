package engine

import (
	"slices"
	"testing"
)

// Changes of the table that lie near each other are one write, in whatever order they came.
func TestJoinedChanges(t *testing.T) {
	far := 3*nearTable + 5
	for _, c := range []struct{ in, want []span }{
		{nil, nil},
		{[]span{{7, 8}}, []span{{7, 8}}},
		{[]span{{130, 131}, {2, 3}, {66, 70}}, []span{{2, 131}}},
		{[]span{{far, far + 1}, {0, 4}, {far + 9, far + 10}}, []span{{0, 4}, {far, far + 10}}},
		{[]span{{0, 100}, {5, 6}}, []span{{0, 100}}},
	} {
		if got := joined(slices.Clone(c.in)); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, not %v", c.in, got, c.want)
		}
	}
}
