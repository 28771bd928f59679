package backends

// Levels gives, for each of n pieces of work in order, the length of the longest chain of conflicts before it. Work of
// one level can run at once, or in any order; work that is in conflict keeps its order when levels do.
// conflict says whether two of them touch the same memory and not both read it; later comes first.
func Levels(n int, conflict func(later, earlier int) bool) []int {
	level := make([]int, n)
	for i := range level {
		for j := i - 1; j >= 0; j-- {
			if level[j] >= level[i] && conflict(i, j) {
				level[i] = level[j] + 1
			}
		}
	}
	return level
}

// EqualSteps is the number of launches in each step of a program, false where they are not those of equal steps.
func (p *Program) EqualSteps() (per int, ok bool) {
	steps := max(p.Steps, 1)
	return len(p.Launches) / steps, len(p.Launches)%steps == 0
}
