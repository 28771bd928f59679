package schedule

import "time"

// Seq is one sequence: its tokens, what of them is computed, and where it lies.
// Its slices are its own: read them, do not keep or change them.
type Seq struct {
	User any

	tokens   []int32
	prompt   int  // of them, given
	max      int  // len(tokens) at most
	lost     int  // of them, those that a preemption took
	computed int  // positions whose keys and values lie in the pages
	planned  int  // the same, with the steps that run
	pending  int  // tokens that running steps choose
	drafting bool // the step that runs has guesses of it
	epoch    int  // counts the times its pages were taken away
	row      int32

	root    Hash
	chain   Hash // of page chained−1
	chained int
	pages   []int32
	hosted  []int32 // host pages, while it waits with its pages moved
	slot    int32

	key      *key
	priority int
	arrival  time.Time
	id       uint64
	lead     *Seq   // whose prompt it shares
	forks    []*Seq // those that wait for its prompt
	where    place
	fills    bool // it is in key.filling
	take     int  // rows given by the Plan under way
	guess    int  // where its guesses begin, in the Plan under way
	ran      bool
	nodraft  bool
	toEnd    bool // until the context is full
	all      bool // logits of all of the prompt's rows are wanted
	stop     Stop
	cached   int
}

type place uint8

const (
	waiting place = iota
	forking       // waits for its lead's prompt
	running
	ended
)

// Tokens are the prompt and what was chosen since.
func (s *Seq) Tokens() []int32 { return s.tokens }

// Prompt counts the tokens that were given.
func (s *Seq) Prompt() int { return s.prompt }

// Computed counts the positions whose keys and values are there.
func (s *Seq) Computed() int { return s.computed }

// Cached counts the prompt's positions that were known when it first ran.
func (s *Seq) Cached() int { return s.cached }

// Pages are the numbers of its pages, in order of position.
func (s *Seq) Pages() []int32 { return s.pages }

// Running says that it has pages and gets rows.
func (s *Seq) Running() bool { return s.where == running }

// Ended says why it ended, NotEnded where it has not.
func (s *Seq) Ended() Stop { return s.stop }

// ID numbers sequences in the order of arrival, from 1.
func (s *Seq) ID() uint64 { return s.id }

// before says that s is older than o, where a priority counts as an age: whom
// memory is taken from last.
func (s *Seq) before(o *Seq, aging time.Duration) bool {
	a := s.arrival.Add(time.Duration(s.priority) * aging)
	b := o.arrival.Add(time.Duration(o.priority) * aging)
	if !a.Equal(b) {
		return a.Before(b)
	}
	return s.id < o.id
}
