package schedule

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"
)

var (
	coarse = []int{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512}
	wide   = append(slices.Clone(coarse), 1024, 2048, 4096, 8192)
	fine   = []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16}
)

// TestTimes: what steps of more rows take is measured where it can be, along a line where it is
// not, and a guess before.
func TestTimes(t *testing.T) {
	times := NewTimes(fine, false)
	if got := times.Cost(4); math.Abs(got-2.2) > 1e-9 {
		t.Errorf("nothing known: %v", got)
	}
	times.Note(5, 1, 200)
	times.Note(1, 1, 100)
	for guesses, want := range map[int]float64{4: 2, 2: 1.5, 8: 3} {
		if got := times.Cost(guesses); math.Abs(got-want) > 1e-9 {
			t.Errorf("%d guesses: %v, not %v", guesses, got, want)
		}
	}
	if got, want := times.Known(), map[int]time.Duration{1: 100, 5: 200}; !maps.Equal(got, want) {
		t.Errorf("%v are known, wanted are %v", got, want)
	}
	times.Note(4, 4, 100) // four sequences: a token of each costs a quarter of the step
	if got := times.Cost(1); math.Abs(got-5) > 1e-9 {
		t.Errorf("a guess beside three others: %v", got)
	}
}

// TestMost: rows of prompts fill the largest bucket that takes little longer, one that takes too long is tried once in
// a while, and a stall counts little.
func TestMost(t *testing.T) {
	times := NewTimes(coarse, true)
	if got := times.Most(60, 500); got != 96 { // the bucket of the fewest rows is filled
		t.Errorf("nothing is known: %d rows", got)
	}
	for _, n := range coarse {
		times.Note(n, 1, card(n))
	}
	for base, want := range map[int]int{1: 24, 16: 32, 60: 96, 64: 96, 128: 256, 200: 512, 256: 512} {
		if got := times.Most(base, 500); got != want {
			t.Errorf("beside %d rows: %d, wanted are %d", base, got, want)
		}
	}
	if got := times.Most(64, 10); got != 96 {
		t.Errorf("10 rows beside 64: %d", got)
	}
	tried := 0
	for range 10 * again {
		if times.Most(64, 500) == 128 {
			tried++
		}
	}
	if tried < 9 || tried > 11 {
		t.Errorf("too many rows were tried %d times in %d", tried, 10*again)
	}
	times.Note(96, 1, 100*time.Second)
	times.Note(96, 1, card(96))
	times.Note(96, 1, card(96))
	if got := times.Most(64, 500); got != 96 && got != 128 {
		t.Errorf("behind a stall: %d rows", got)
	}
}

// TestFill: a step that is filled with prompts is of a bucket that they nearly fill, and takes at most so long.
func TestFill(t *testing.T) {
	list := []int{1, 64, 256, 384, 512, 1024, 2048, 8192}
	times := NewTimes(list, true)
	for want, rows := range map[int]int{0: 64, 100: 164, 5000: 256} {
		if got := times.Fill(64, want); got != rows {
			t.Errorf("nothing is known: %d rows beside %d of prompts, wanted are %d", got, want, rows)
		}
	}
	for want, rows := range map[int]int{100: 100, 2048: 2048, 5000: 2048} {
		if got := times.Fill(0, want); got != rows {
			t.Errorf("nobody decodes: %d rows of %d, wanted are %d", got, want, rows)
		}
	}
	times.Note(2048, 1, 60*time.Millisecond) // none of fewer rows takes longer, and 8192 take up to 240
	for want, rows := range map[int]int{5000: 2048, 1984: 2048, 1400: 1024, 1500: 1564, 400: 464} {
		if got := times.Fill(64, want); got != rows {
			t.Errorf("fast: %d rows beside %d of prompts, wanted are %d", got, want, rows)
		}
	}
	times = NewTimes(list, true)
	times.Note(256, 1, 90*time.Millisecond) // so that 512 take up to 180
	for want, rows := range map[int]int{5000: 384, 10: 74} {
		if got := times.Fill(64, want); got != rows {
			t.Errorf("slow: %d rows beside %d of prompts, wanted are %d", got, want, rows)
		}
	}
	times.Note(256, 1, 20*time.Second)
	if got := times.Fill(300, 5000); got != 384 {
		t.Errorf("slower than anything: %d rows beside 300, wanted are 384", got)
	}
}

// card is about what a step of a model of 8 billion weights takes on a card.
func card(rows int) time.Duration {
	at := []int{1, 64, 128, 256, 512, 2048, 8192}
	ms := []float64{5.6, 10.3, 13.4, 17, 21, 50, 192}
	i := max(1, min(len(at)-1, slices.IndexFunc(at, func(n int) bool { return rows <= n })))
	x := ms[i-1] + (ms[i]-ms[i-1])*float64(rows-at[i-1])/float64(at[i]-at[i-1])
	return time.Duration(x * float64(time.Millisecond))
}

// load is what a closed loop of users sees.
type load struct {
	p50, p99, first50, first99 time.Duration // between tokens, to the first one
	rate                       float64       // tokens a second of virtual time
}

// closed lets users ask for texts one after the other, of whom so many run at once, on a device whose steps take what
// card says.
func closed(t *testing.T, users, running, in, out, budget int, times *Times) load {
	t.Helper()
	c, err := New(Options{Pages: running * (in + out + 64) / 32, PageSize: 32, Running: running, Times: times})
	if err != nil {
		t.Fatal(err)
	}
	type ask struct {
		user        int
		begun, last time.Duration
	}
	var now time.Duration
	var gaps, firsts []time.Duration
	number := int32(0)
	add := func(user int) {
		number++
		if _, err := c.Add(Request{Prompt: slices.Repeat([]int32{number}, in), Max: out,
			User: &ask{user: user, begun: now}}); err != nil {
			t.Fatal(err)
		}
	}
	left := make([]int, users)
	for u := range users {
		left[u] = 1
		add(u)
	}
	results, token := make([]Result, running), []int32{1}
	for !c.Idle() {
		b := c.Plan(budget)
		took := card(wide[slices.IndexFunc(wide, func(n int) bool { return len(b.Rows) <= n })])
		now += took
		if times != nil {
			times.Note(len(b.Rows), len(b.Runs), took)
		}
		for i, run := range b.Runs {
			results[i].Tokens = nil
			if !b.Rows[run.First+run.Rows-1].Want {
				continue
			}
			results[i].Tokens = token
			a := run.Seq.User.(*ask)
			if a.last == 0 {
				firsts = append(firsts, now-a.begun)
			} else {
				gaps = append(gaps, now-a.last)
			}
			a.last = now
		}
		c.Done(b, results[:len(b.Runs)])
		for _, run := range b.Runs {
			if u := run.Seq.User.(*ask).user; run.Seq.Ended() != NotEnded && left[u] > 0 {
				left[u]--
				add(u)
			}
		}
	}
	slices.Sort(gaps)
	slices.Sort(firsts)
	at := func(list []time.Duration, q float64) time.Duration { return list[int(q*float64(len(list)-1))] }
	return load{at(gaps, .5), at(gaps, .99), at(firsts, .5), at(firsts, .99),
		float64(len(gaps)+len(firsts)) / now.Seconds()}
}

// TestClosedLoops: with the times of steps, tokens come more evenly beside prompts, of which the last begins no later,
// and hardly fewer a second.
func TestClosedLoops(t *testing.T) {
	for _, c := range []struct {
		users, running, in, out, budget int

		ratio float64 // of the 99th percentile between tokens to the median, at most; 0: as without
		rate  float64 // of that without times, at least
	}{
		{16, 16, 128, 1024, 512, 0, .99},
		{64, 64, 128, 1024, 512, 1.3, .99},
		{128, 128, 128, 1024, 512, 0, .99},
		{256, 256, 128, 1024, 512, 1.3, .99},
		{256, 256, 128, 1024, 8192, 1.3, .99},
		{256, 64, 128, 1024, 512, 1.3, .99}, // those for whom there is no room do not count
		{64, 64, 128, 512, 512, 0, .98},
		{64, 64, 128, 128, 512, 0, .98},
		{64, 64, 1024, 512, 512, 0, .98},
		{16, 16, 1024, 128, 512, 0, .98},
	} {
		list := coarse
		if c.budget > 512 {
			list = wide
		}
		without := closed(t, c.users, c.running, c.in, c.out, c.budget, nil)
		with := closed(t, c.users, c.running, c.in, c.out, c.budget, NewTimes(list, true))
		if again := closed(t, c.users, c.running, c.in, c.out, c.budget, NewTimes(list, true)); again != with {
			t.Errorf("the same times give %+v and %+v", with, again)
		}
		ratio := func(l load) float64 { return float64(l.p99) / float64(l.p50) }
		t.Logf("%d users, %d run, %d + %d: p50 %v, p99 by p50 %.2f for %.2f; first %v, p99 %v for %v, %v; rate %.3f of %.0f",
			c.users, c.running, c.in, c.out, with.p50, ratio(with), ratio(without), with.first50, with.first99,
			without.first50, without.first99, with.rate/without.rate, without.rate)
		most := c.ratio
		if most == 0 {
			most = ratio(without)
		}
		if ratio(with) > most+0.01 || with.rate < c.rate*without.rate ||
			float64(with.first99) > 1.1*float64(without.first99) {
			t.Errorf("with times %+v, without %+v", with, without)
		}
	}
}

// TestPromptsGoOn: however much longer a step takes with rows of prompts, each has some, and none gets fewer tokens.
func TestPromptsGoOn(t *testing.T) {
	times := NewTimes(coarse, true)
	for _, n := range coarse {
		times.Note(n, 1, time.Duration(n*n)*time.Millisecond)
	}
	d := newSim(t, Options{Pages: 800, PageSize: 16, Times: times})
	for i := range 8 {
		if _, err := d.add(Request{Prompt: []int32{int32(i)}, Max: 600, User: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for range giveSteps { // in which nothing was lost
		if err := d.one(64); err != nil {
			t.Fatal(err)
		}
	}
	long, err := d.add(Request{Prompt: make([]int32, 2000), Max: 1, User: uint64(9)})
	if err != nil {
		t.Fatal(err)
	}
	steps, few := 0, 0
	for long[0].Ended() == NotEnded {
		before, tokens := d.c.Stats().Rows, len(d.live[0].Tokens())
		if err := d.one(64); err != nil {
			t.Fatal(err)
		}
		steps++
		rows := d.c.Stats().Rows - before
		if len(d.live[0].Tokens()) != tokens+1 || rows < 8+least && long[0].Ended() == NotEnded {
			t.Fatalf("step %d of the prompt has %d rows", steps, rows)
		}
		if rows < 64 {
			few++
		}
	}
	if steps > 2000/least || few < 10 {
		t.Errorf("the prompt took %d steps, of which %d were short", steps, few)
	}
}
