package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/testfiles"
)

// sim is a device of which only what the scheduler must get right is left: a page
// holds, for each position, the sum of all tokens up to it, and a slot that of all
// tokens computed. So a row finds out whether what it reads is its own past.
type sim struct {
	c     *Scheduler
	opt   Options
	now   time.Time
	pages [][]uint64
	host  [][]uint64
	slots []uint64
	live  []*Seq
	runs  *Batch // a step whose results are not in yet

	disk  map[Hash][]uint64
	stage [][]uint64 // fetched
}

const emptySum = 0xcbf29ce484222325

func add(sum uint64, token int32) uint64 {
	sum = (sum ^ uint64(uint32(token))) * 0x9e3779b97f4a7c15
	return sum ^ sum>>29
}

func newSim(t testing.TB, opt Options) *sim {
	t.Helper()
	d := &sim{now: time.Unix(0, 0)}
	opt.Clock = func() time.Time { return d.now }
	if opt.Fetch != nil { // a kind that has a disk
		d.disk = map[Hash][]uint64{}
		opt.Fetch = func(_ *Seq, h Hash) (int32, bool) {
			data, ok := d.disk[h]
			if ok {
				d.stage = append(d.stage, data)
			}
			return int32(len(d.stage) - 1), ok
		}
		opt.Learned = func(_ *Seq, page int32, h Hash) {
			if h[0]%4 > 0 { // some are missing
				d.disk[h] = slices.Clone(d.pages[page])
			}
		}
	}
	c, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	d.c, d.opt = c, c.opt
	grid := func(n int) [][]uint64 {
		g := make([][]uint64, n)
		for i := range g {
			g[i] = make([]uint64, opt.PageSize)
		}
		return g
	}
	d.pages, d.host, d.slots = grid(opt.Pages), grid(opt.HostPages), make([]uint64, opt.Slots)
	return d
}

func (d *sim) add(r Request) ([]*Seq, error) {
	seqs, err := d.c.Add(r)
	d.live = append(d.live, seqs...)
	return seqs, err
}

// text is what a sequence's next token is: of its past and its number among the
// choices alone. Small, so that guesses are right sometimes.
func text(sum uint64, s *Seq) int32 { return int32((sum ^ s.User.(uint64)) % 3) }

func (d *sim) moves(b *Batch) {
	for _, m := range b.Moves {
		switch m.Kind {
		case CopyPage:
			copy(d.pages[m.To], d.pages[m.From])
		case PageLoad:
			copy(d.pages[m.To], d.stage[m.From])
		case PageOut:
			copy(d.host[m.To], d.pages[m.From])
		case PageIn:
			copy(d.pages[m.To], d.host[m.From])
		case CopyState:
			d.slots[m.To] = emptySum
			if m.From >= 0 {
				d.slots[m.To] = d.slots[m.From]
			}
		}
	}
}

// step computes b, whose unknown tokens are in before's results.
func (d *sim) step(b *Batch, before []int32) (results []Result, chosen []int32, err error) {
	d.moves(b)
	chosen = make([]int32, len(b.Rows))
	rows := 0
	for i, run := range b.Runs {
		s := run.Seq
		if run.First != rows {
			return nil, nil, fmt.Errorf("run %d begins at row %d, not %d", i, run.First, rows)
		}
		rows += run.Rows
		sum := uint64(emptySum)
		tokens := append([]int32(nil), s.tokens...)
		for _, r := range b.Rows[run.First : run.First+run.Rows] {
			if int(r.Pos) >= len(tokens) {
				tok := r.Token
				if tok < 0 {
					tok = before[r.From]
				}
				tokens = append(tokens, tok)
			}
		}
		for pos := range run.Start {
			sum = add(sum, tokens[pos])
			if got := d.pages[s.pages[pos/d.opt.PageSize]][pos%d.opt.PageSize]; got != sum {
				return nil, nil, fmt.Errorf("sequence %d: position %d of %d is not its own past", s.id, pos, run.Start)
			}
		}
		if d.opt.Slots > 0 && d.slots[s.slot] != sum {
			return nil, nil, fmt.Errorf("sequence %d: slot %d is not its state at %d", s.id, s.slot, run.Start)
		}
		var res Result
		right := true
		for j, r := range b.Rows[run.First : run.First+run.Rows] {
			if int(r.Run) != i || int(r.Pos) != run.Start+j || r.Page != s.pages[int(r.Pos)/d.opt.PageSize] {
				return nil, nil, fmt.Errorf("sequence %d: row %d of run %d is %+v", s.id, j, i, r)
			}
			if d.c.pool.refs[r.Page] != 1 || d.c.pool.known[r.Page] {
				return nil, nil, fmt.Errorf("sequence %d writes to page %d, which has %d owners", s.id, r.Page,
					d.c.pool.refs[r.Page])
			}
			tok := tokens[r.Pos]
			sum = add(sum, tok)
			d.pages[r.Page][int(r.Pos)%d.opt.PageSize] = sum
			if !r.Want {
				continue
			}
			next := text(sum, s)
			chosen[run.First+j] = next
			if right {
				res.Tokens = append(res.Tokens, next)
			}
			right = right && j+1 < run.Rows && tokens[int(r.Pos)+1] == next
		}
		if d.opt.Slots > 0 {
			d.slots[s.slot] = sum
			if run.Keep >= 0 {
				d.slots[run.Keep] = sum
			}
		}
		results = append(results, res)
	}
	if rows != len(b.Rows) {
		return nil, nil, fmt.Errorf("the runs have %d rows, the batch %d", rows, len(b.Rows))
	}
	return results, chosen, nil
}

// check looks at all that must hold between two steps.
func (d *sim) check() error {
	p := d.c.pool
	owners := make([]int32, len(p.refs))
	slots := map[int32]int{}
	hosts := map[int32]int{}
	running := 0
	d.live = slices.DeleteFunc(d.live, func(s *Seq) bool { return s.where == ended })
	for _, s := range d.live {
		for _, g := range s.pages {
			owners[g]++
		}
		for _, h := range s.hosted {
			hosts[h]++
		}
		if s.slot >= 0 {
			slots[s.slot]++
		}
		if s.where == running0 {
			running++
		} else if len(s.pages) > 0 || s.slot >= 0 {
			return fmt.Errorf("sequence %d waits and has %d pages", s.id, len(s.pages))
		}
	}
	if running != len(d.c.running) {
		return fmt.Errorf("%d run, the list has %d", running, len(d.c.running))
	}
	for i := 1; i < len(d.c.running); i++ {
		if !d.c.running[i-1].before(d.c.running[i], d.opt.Aging) {
			return fmt.Errorf("the running are out of order at %d", i)
		}
	}
	free := map[int32]int{}
	for _, g := range p.free {
		free[g]++
	}
	unused := 0
	for g := p.next[len(p.refs)]; int(g) != len(p.refs); g = p.next[g] {
		free[g]++
		if unused++; !p.known[g] {
			return fmt.Errorf("page %d is kept and unknown", g)
		}
	}
	if unused != p.unused {
		return fmt.Errorf("%d pages are unused and known, the count is %d", unused, p.unused)
	}
	for g, n := range owners {
		if p.refs[g] != n {
			return fmt.Errorf("page %d has %d owners and %d references", g, n, p.refs[g])
		}
		if n == 0 && free[int32(g)] != 1 || n > 0 && free[int32(g)] != 0 {
			return fmt.Errorf("page %d has %d owners and is %d times free", g, n, free[int32(g)])
		}
		if p.known[g] && p.index.find(&p.index.hash[g]) != int32(g) {
			return fmt.Errorf("page %d is known and not found", g)
		}
		if p.state[g] >= 0 {
			slots[p.state[g]]++
		}
	}
	for _, s := range p.slots {
		slots[s]++
	}
	if d.runs != nil {
		for _, run := range d.runs.Runs {
			if run.Keep >= 0 {
				slots[int32(run.Keep)]++
			}
		}
	}
	for _, h := range p.host {
		hosts[h]++
	}
	if err := once(slots, p.all, "slot"); err != nil {
		return err
	}
	return once(hosts, d.opt.HostPages, "host page")
}

const running0 = running

func once(m map[int32]int, n int, what string) error {
	for i := range n {
		if m[int32(i)] != 1 {
			return fmt.Errorf("%s %d has %d owners", what, i, m[int32(i)])
		}
	}
	return nil
}

// drain runs steps until nothing waits or runs.
func (d *sim) drain(budget int) error {
	for range 1 << 20 {
		if d.c.Idle() {
			return d.check()
		}
		if err := d.one(budget); err != nil {
			return err
		}
	}
	return fmt.Errorf("no end: %+v", d.c.Stats())
}

func (d *sim) one(budget int) error {
	b := d.c.Plan(budget)
	if len(b.Rows) == 0 {
		return fmt.Errorf("nothing to do, and it is not idle: %+v\n%s", d.c.Stats(), d.dump())
	}
	if len(b.Rows) > budget {
		return fmt.Errorf("%d rows, the budget is %d", len(b.Rows), budget)
	}
	res, _, err := d.step(b, nil)
	if err != nil {
		return err
	}
	d.now = d.now.Add(10 * time.Millisecond)
	d.c.Done(b, res)
	return nil
}

// alone is what a sequence of a prompt says.
func alone(prompt []int32, user uint64, n int) []int32 {
	sum := uint64(emptySum)
	for _, t := range prompt {
		sum = add(sum, t)
	}
	var out []int32
	for range n {
		t := text(sum, &Seq{User: user})
		out = append(out, t)
		sum = add(sum, t)
	}
	return out
}

// guesses drafts what is right about every other time.
func guesses(s *Seq, dst []int32, most int) []int32 {
	sum := uint64(emptySum)
	for _, t := range s.tokens {
		sum = add(sum, t)
	}
	for i := range min(most, 4) {
		t := text(sum, s)
		if (sum>>40)%3 == 0 {
			t = (t + 1) % 3
		}
		dst = append(dst, t)
		sum = add(sum, t)
		_ = i
	}
	return dst
}

func kinds() map[string]Options {
	return map[string]Options{
		"plain": {Pages: 40, PageSize: 4, Running: 12, Queue: 1 << 20},
		"swap": {Pages: 24, PageSize: 4, Running: 12, HostPages: 30, Queue: 1 << 20, Swap: func(int,
			int) bool {
			return true
		}},
		"states": {Pages: 40, PageSize: 4, Running: 8, Slots: 14, Every: 3, Queue: 1 << 20},
		"draft":  {Pages: 32, PageSize: 4, Running: 12, Queue: 1 << 20, Draft: guesses},
		"disk": {Pages: 40, PageSize: 4, Running: 12, Queue: 1 << 20,
			Fetch: func(*Seq, Hash) (int32, bool) { return 0, false }},
		"one": {Pages: 9, PageSize: 16, Running: 1, Queue: 1 << 20},
	}
}

// TestRandomArrivals lets thousands of requests come, be cancelled and share
// prompts, and checks everything after every step.
func TestRandomArrivals(t *testing.T) {
	for name, opt := range kinds() {
		t.Run(name, func(t *testing.T) {
			d := newSim(t, opt)
			r := rand.New(rand.NewPCG(1, uint64(len(name))))
			prefix := make([]int32, 60)
			for i := range prefix {
				prefix[i] = int32(r.IntN(3))
			}
			want := map[*Seq][]int32{}
			left := 800
			if testfiles.Exhaustive() {
				left = 3000
			}
			total := 0
			for left > 0 || !d.c.Idle() {
				for left > 0 && r.IntN(3) == 0 {
					left--
					prompt := append([]int32(nil), prefix[:r.IntN(50)]...)
					for range 1 + r.IntN(12) {
						prompt = append(prompt, int32(r.IntN(3)))
					}
					max := 1 + r.IntN(30)
					user := r.Uint64()
					seqs, err := d.add(Request{Prompt: prompt, Max: max, Choices: 1 + r.IntN(3)*r.IntN(2), Priority: r.IntN(3) - 1,
						Key: fmt.Sprint("k", r.IntN(4)), Root: Root("m", "f16", "", ""), User: user})
					if err != nil {
						t.Fatal(err)
					}
					total += len(seqs)
					for _, s := range seqs {
						want[s] = alone(prompt, user, max)
					}
				}
				if r.IntN(20) == 0 && len(d.live) > 0 {
					s := d.live[r.IntN(len(d.live))]
					d.c.Cancel(s)
				}
				if d.c.Idle() {
					d.now = d.now.Add(time.Second)
					continue
				}
				if err := d.one(1 + r.IntN(40)); err != nil {
					t.Fatal(err)
				}
				if err := d.check(); err != nil {
					t.Fatal(err)
				}
			}
			st := d.c.Stats()
			for s, text := range want {
				got := s.tokens[s.prompt:]
				if s.stop == NotEnded || s.stop == StopMax && len(got) != len(text) || !slices.Equal(got, text[:len(got)]) {
					t.Fatalf("sequence %d (%v) says %v, alone it says %v", s.id, s.stop, got, text)
				}
			}
			if name == "disk" && st.PrefixLoaded == 0 {
				t.Error("nothing came from the disk")
			}
			if st.PagesUsed != 0 {
				t.Errorf("%d pages are not free in the end", st.PagesUsed)
			}
			if len(d.c.ring) > 4 {
				t.Errorf("%d keys are remembered", len(d.c.ring))
			}
			t.Logf("%d sequences: %+v", total, st)
		})
	}
}

// dump tells who has what, for failures.
func (d *sim) dump() string {
	o := ""
	for _, s := range d.c.running {
		o += fmt.Sprintf("sequence %d: %d tokens of %d, %d planned, %d computed, fills %v, %d pages, priority %d\n",
			s.id, len(s.tokens), s.max, s.planned, s.computed, s.fills, len(s.pages), s.priority)
	}
	for _, k := range d.c.ring {
		o += fmt.Sprintf("key %s: deficit %d, %d wait, %d fill\n", k.name, k.deficit, len(k.waiting), len(k.filling))
	}
	return o
}
