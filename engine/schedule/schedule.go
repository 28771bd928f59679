// Package schedule decides which rows the next step of many sequences has, and
// in which pages their keys and values lie. It knows no device, starts no
// goroutine and reads no clock but the one handed in, so that all of it can be
// tested by simulation.
//
// The words: a page holds the keys and values of Options.PageSize positions of
// every paged state of a model; a Seq is one request's tokens and pages; a Batch
// is what one step computes; Plan makes one, Done takes its results.
package schedule

import (
	"errors"
	"fmt"
	"time"
)

// Options are a Scheduler's sizes and rules.
type Options struct {
	Pages     int // pages on the device; at least 1
	PageSize  int // positions a page; at least 1
	Context   int // positions that one sequence has at most; 0: as many as the pages hold
	Slots     int // slots of fixed-size states; 0: the model has none
	HostPages int // pages of host memory for sequences that wait; 0: such are recomputed

	Running int           // sequences that run at once at most; 0: 256
	Queue   int           // sequences that wait at most; 0: 1024
	Quantum int           // tokens that a key gets each round; 0: 256
	Aging   time.Duration // waiting so long counts as one priority; 0: 10 s
	Every   int           // pages between kept states of a sequence (Slots > 0); 0: 8

	// Times are those of steps: while most sequences decode, prompts get no more rows in one than makes it little
	// longer. nil: they get what the budget leaves.
	Times *Times

	Clock func() time.Time // nil: priorities do not age
	// Swap says whether a sequence that must give its pages back has them moved to
	// host memory rather than computed again. nil: never.
	Swap func(positions, pages int) bool
	// Draft appends guesses of the tokens that follow s to dst, at most most. It must not keep
	// dst. nil: none. Sequences of models with fixed-size states are not asked.
	Draft func(s *Seq, dst []int32, most int) []int32
	// Fetch says whether the page of a hash, which s needs and which is not known, is to be had from
	// elsewhere, and names it for a Move. nil: none is. Models with fixed-size states do not ask.
	Fetch func(s *Seq, h Hash) (from int32, ok bool)
	// Learned is told of each page of s that is full, computed and known from now on. nil: nobody is.
	Learned func(s *Seq, page int32, h Hash)
	// Verified is told of each step with guesses how many there were and how many were right. nil: nobody is.
	Verified func(s *Seq, tried, accepted int)
}

// Row is one token of a step. The row's keys and values go to position
// Pos%PageSize of Page.
type Row struct {
	Run   int32 // which of the batch's runs it belongs to
	Pos   int32
	Page  int32
	Token int32 // −1: the token chosen from row From of the batch before
	From  int32
	Want  bool // its logits are wanted,
	Known bool // for the probability of the token that follows in the prompt
}

// Run is the rows of one sequence in a batch: consecutive rows at consecutive positions.
type Run struct {
	Seq   *Seq
	First int // first row
	Rows  int
	Start int // position of the first row
	Draft int // how many of the last rows hold guessed tokens
	Slot  int // where its states of one size lie in this step, −1: nowhere; when it is cancelled it has none
	Keep  int // slot to which the sequence's state is copied after the step; −1: none
	epoch int
	wants bool
}

// Move is an order to be carried out before a step's rows.
type Move struct {
	Kind     Kind
	From, To int32
}

// Kind is what a Move moves.
type Kind uint8

// What a Move moves.
const (
	CopyPage  Kind = iota // from page to page
	PageOut               // from page to host page
	PageIn                // from host page to page
	CopyState             // from slot to slot; From −1: slot To is cleared
	PageLoad              // from what Options.Fetch named, to page
)

func (k Kind) String() string { return [...]string{"copy", "out", "in", "state", "load"}[k] }

// Batch is one step. Its moves are carried out first, one after the other: a later
// one may read what an earlier one wrote, or write what an earlier one read. Then
// the rows, then the runs' Keep. It is valid until the second Plan after the one
// that made it.
type Batch struct {
	Moves  []Move
	Rows   []Row
	Runs   []Run
	Wanted int // rows with Want
}

// Empty says that there is nothing to do.
func (b *Batch) Empty() bool {
	return len(b.Rows)+len(b.Moves) == 0
}

func (b *Batch) reset() {
	clear(b.Runs) // ended sequences are not held
	b.Moves, b.Rows, b.Runs, b.Wanted = b.Moves[:0], b.Rows[:0], b.Runs[:0], 0
}

// Result is what a step chose for one run: nothing where no row was wanted, else
// the guesses that were accepted and one token more.
type Result struct {
	Tokens []int32
	Stop   bool // the last token ends the sequence
}

// Stop says why a sequence ended.
type Stop int

// Why a sequence ended.
const (
	NotEnded     Stop = iota
	StopEnd           // Result.Stop
	StopMax           // Request.Max tokens
	StopContext       // the context is full
	StopCanceled      // Cancel
)

func (s Stop) String() string {
	return [...]string{"runs", "end", "max", "context", "canceled"}[s]
}

// Request is what Add takes.
type Request struct {
	Prompt   []int32
	Max      int    // tokens at most; 0: until the context is full
	Choices  int    // sequences that share the prompt; 0: 1
	Key      string // whom to be fair to
	Priority int    // lower first
	Root     Hash   // of model, cache type, adapter and salt: see Root
	NoDraft  bool   // Options.Draft is not asked
	All      bool   // logits of all of the prompt's rows are wanted: none of it is taken as known
	User     any    // whatever the caller wants to find in the Seq
}

// NeverFits refuses a request that could not run even alone.
type NeverFits struct {
	Prompt, Max    int // tokens
	Need, Pages    int // pages needed, pages there are
	PageSize       int
	Context, Asked int // positions a sequence may have, positions asked for
}

func (e *NeverFits) Error() string {
	if e.Asked > e.Context {
		return fmt.Sprintf("a prompt of %d tokens and %d more need %d positions, a sequence has %d at most: "+
			"shorten the prompt, ask for fewer tokens or give a longer context", e.Prompt, e.Max, e.Asked, e.Context)
	}
	return fmt.Sprintf("a prompt of %d tokens and %d more need %d pages of %d positions, there are %d: "+
		"shorten the prompt, ask for fewer tokens or give the caches more memory", e.Prompt, e.Max, e.Need, e.PageSize,
		e.Pages)
}

// QueueFull refuses a request because too many wait.
type QueueFull struct{ Waiting, Most int }

func (e *QueueFull) Error() string {
	return fmt.Sprintf("%d sequences wait, %d may: try again later", e.Waiting, e.Most)
}

// Stats are counts since the beginning, and the present state.
type Stats struct {
	Running, Waiting  int
	WaitingPreempted  int // of the waiting: had run before
	WaitingFork       int // of the waiting: wait for the prompt that they share
	Pages, PagesUsed  int // used: owned by a sequence
	PagesKnown        int // unused, but their content is known
	PrefixQueries     int // prompt tokens that were looked up, each once
	PrefixHits        int // of them, those whose pages were known
	PrefixLoaded      int // of those, the ones that Options.Fetch had
	Preemptions       int
	Swaps             int // of the preemptions, those with pages moved to host memory
	Steps, Rows       int
	Drafts            int // guesses that were checked, of one token or more
	Drafted, Accepted int // tokens of those
	// AcceptedAt counts accepted tokens by their place in a guess, as many as the longest guess had.
	AcceptedAt []int
	Recomputed int // positions that were computed again behind a preemption
	// Sizes counts steps by their rows: of at most 1, 2, 4 and so on, the last of any.
	Sizes [StepSizes]int
}

// StepSizes is the length of Stats.Sizes.
const StepSizes = 14

func (o *Options) defaults() error {
	for _, c := range []struct {
		name     string
		v, least int
	}{
		{"Pages", o.Pages, 1}, {"PageSize", o.PageSize, 1}, {"Context", o.Context, 0}, {"Slots", o.Slots, 0},
		{"HostPages", o.HostPages, 0}, {"Running", o.Running, 0}, {"Queue", o.Queue, 0}, {"Quantum", o.Quantum, 0},
		{"Every", o.Every, 0},
	} {
		if c.v < c.least {
			return fmt.Errorf("schedule: %s is %d, it must be at least %d", c.name, c.v, c.least)
		}
	}
	if o.Aging < 0 {
		return errors.New("schedule: Aging is negative")
	}
	if all := o.Pages * o.PageSize; o.Context == 0 || o.Context > all {
		o.Context = all
	}
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.Running, 256)
	set(&o.Queue, 1024)
	set(&o.Quantum, 256)
	set(&o.Every, 8)
	if o.Aging == 0 {
		o.Aging = 10 * time.Second
	}
	if o.Slots > 0 {
		o.Running = min(o.Running, o.Slots)
	}
	return nil
}
