package sorting

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSort: what is less comes first, and equal ones stay as they were.
func TestSort(t *testing.T) {
	type pair struct{ key, place int }
	byKey := func(a, b pair) int { return cmp.Compare(a.key, b.key) }
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		list := make([]pair, n)
		for i := range list {
			list[i] = pair{rnd.IntN(1 + n/3), i}
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, byKey)
		if Sort(list, byKey); !slices.Equal(list, want) {
			t.Fatalf("%d pairs are sorted as %v", n, list)
		}
	}
}
