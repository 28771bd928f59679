package draft

// Pace decides how many tokens are guessed: as many as make a token cheapest, by the
// share of guesses that were right; none where that loses, but for a try once in a while.
// The zero value knows nothing yet.
type Pace struct {
	right float64 // share of guesses that are right while all before them are, estimated
	known bool
	quiet int // proposals that are left out
	pause int // how many are left out next time
}

const (
	startRight = 0.7  // the estimate before anything is known
	slow       = 0.15 // the weight of a new observation
	firstPause = 4
	mostPause  = 64
)

func (p *Pace) begin() {
	if !p.known {
		*p = Pace{right: startRight, known: true, pause: firstPause}
	}
}

// depth is the number of guesses that makes a token cheapest: with a share r right, n guesses
// give (1−rⁿ⁺¹)/(1−r) tokens a step on average. cost says what a step with so many takes, as a multiple of
// one with none.
func depth(r float64, cost func(guesses int) float64, most int) int {
	best, at := 1.0, 0
	tokens, next := 1.0, 1.0
	for n := 1; n <= most; n++ {
		next *= r
		tokens += next
		if rate := tokens / cost(n); rate > best {
			best, at = rate, n
		}
	}
	return at
}

// Next says how many tokens to guess now, most at most.
func (p *Pace) Next(cost func(guesses int) float64, most int) int {
	p.begin()
	if n := depth(p.right, cost, min(most, Most)); n > 0 {
		return n
	}
	if p.quiet--; p.quiet > 0 {
		return 0
	}
	p.quiet = p.pause
	p.pause = min(2*p.pause, mostPause)
	return min(2, most)
}

// Verified says how many guesses were tried and how many accepted.
func (p *Pace) Verified(cost func(guesses int) float64, tried, accepted int) {
	p.begin()
	for range min(accepted, tried) {
		p.right += slow * (1 - p.right)
	}
	if accepted < tried {
		p.right -= slow * p.right
	} else if depth(p.right, cost, Most) > 0 {
		p.pause, p.quiet = firstPause, 0
	}
}
