package backends

import (
	"slices"
	"testing"
)

// Levels are those of the longest chain: 0 and 1 touch nothing of each other, 2 both, 3 only 0, 4 both 2 and 3.
func TestLevels(t *testing.T) {
	conflicts := map[[2]int]bool{{2, 0}: true, {2, 1}: true, {3, 0}: true, {4, 2}: true, {4, 3}: true}
	got := Levels(5, func(later, earlier int) bool {
		if later <= earlier {
			t.Errorf("asked whether %d comes behind %d", later, earlier)
		}
		return conflicts[[2]int{later, earlier}]
	})
	if want := []int{0, 0, 1, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("levels %v, want %v", got, want)
	}
	if Levels(0, nil) == nil || len(Levels(1, nil)) != 1 {
		t.Error("no work, or one piece of it")
	}
}

func TestEqualSteps(t *testing.T) {
	for _, c := range []struct {
		launches, steps, per int
		ok                   bool
	}{{6, 0, 6, true}, {6, 3, 2, true}, {7, 3, 2, false}, {0, 1, 0, true}} {
		p := &Program{Launches: make([]Launch, c.launches), Steps: c.steps}
		if per, ok := p.EqualSteps(); per != c.per || ok != c.ok {
			t.Errorf("%d launches, %d steps: %d, %v", c.launches, c.steps, per, ok)
		}
	}
}
