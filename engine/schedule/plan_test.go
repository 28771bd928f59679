package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func prompt(r *rand.Rand, n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(r.IntN(1000))
	}
	return p
}

// steady makes a scheduler in which n sequences decode.
func steady(t testing.TB, n int) (*Scheduler, []Result) {
	c, err := New(Options{Pages: n * 80, PageSize: 16, Running: n})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		if _, err := c.Add(Request{Prompt: prompt(r, 100), Key: fmt.Sprint(i % 8)}); err != nil {
			t.Fatal(err)
		}
	}
	results := make([]Result, n)
	for {
		b := c.Plan(512)
		if len(b.Rows) == n && b.Wanted == n {
			for i := range results {
				results[i].Tokens = []int32{7}
			}
			c.Done(b, results)
			return c, results
		}
		some := make([]Result, len(b.Runs))
		for i, run := range b.Runs {
			if b.Rows[run.First+run.Rows-1].Want {
				some[i].Tokens = []int32{7}
			}
		}
		c.Done(b, some)
	}
}

func TestNothingIsAllocatedAStep(t *testing.T) {
	c, results := steady(t, 256)
	if n := testing.AllocsPerRun(200, func() { c.Done(c.Plan(512), results) }); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}

func BenchmarkPlan256(b *testing.B) {
	c, results := steady(b, 256)
	steps := 0
	for b.Loop() {
		c.Done(c.Plan(512), results)
		if steps++; steps == 1000 {
			b.StopTimer()
			c, results = steady(b, 256)
			steps = 0
			b.StartTimer()
		}
	}
}

func TestRefusals(t *testing.T) {
	d := newSim(t, Options{Pages: 4, PageSize: 4, Queue: 2})
	var never *NeverFits
	if _, err := d.add(Request{Prompt: make([]int32, 10), Max: 8, User: uint64(0)}); !errors.As(err, &never) ||
		never.Asked != 17 || never.Context != 16 {
		t.Errorf("17 positions of 16: %v", err)
	}
	if _, err := d.add(Request{User: uint64(0)}); err == nil {
		t.Error("an empty prompt was taken")
	}
	if _, err := d.add(Request{Prompt: make([]int32, 10), Max: 7, User: uint64(0)}); err != nil {
		t.Errorf("16 positions of 16: %v", err)
	}
	s, err := d.add(Request{Prompt: make([]int32, 16), User: uint64(0)})
	if err != nil {
		t.Errorf("a prompt that fills the context: %v", err)
	}
	var full *QueueFull
	if _, err := d.add(Request{Prompt: make([]int32, 1), User: uint64(0)}); !errors.As(err, &full) {
		t.Errorf("two wait, two may: %v", err)
	}
	if err := d.drain(8); err != nil {
		t.Fatal(err)
	}
	if s[0].Ended() != StopContext || len(s[0].Tokens()) != 17 {
		t.Errorf("it ended by %v after %d tokens", s[0].Ended(), len(s[0].Tokens()))
	}
	small, err := New(Options{Pages: 4, PageSize: 4, Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := small.Add(Request{Prompt: make([]int32, 12), Max: 6}); !errors.As(err, &never) || never.Need != 5 {
		t.Errorf("5 pages of 4: %v", err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a scheduler without pages was made")
	}
}

// TestDecodeGoesOnBesideAPrompt: while a long prompt is computed, each decoding
// sequence gets a row in every step.
func TestDecodeGoesOnBesideAPrompt(t *testing.T) {
	d := newSim(t, Options{Pages: 400, PageSize: 16})
	for i := range 8 {
		if _, err := d.add(Request{Prompt: []int32{int32(i)}, Max: 300, User: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.one(64); err != nil {
		t.Fatal(err)
	}
	long, err := d.add(Request{Prompt: make([]int32, 2000), Max: 1, Key: "other", User: uint64(9)})
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for long[0].Ended() == NotEnded {
		before := d.c.Stats().Rows
		lengths := make([]int, 8)
		for i := range lengths {
			lengths[i] = len(d.live[i].Tokens())
		}
		if err := d.one(64); err != nil {
			t.Fatal(err)
		}
		steps++
		for i := range lengths {
			if len(d.live[i].Tokens()) != lengths[i]+1 {
				t.Fatalf("sequence %d got no token in step %d of the prompt", i, steps)
			}
		}
		if rows := d.c.Stats().Rows - before; rows != 64 && long[0].Ended() == NotEnded {
			t.Fatalf("step %d has %d rows of 64", steps, rows)
		}
	}
	if want := (2000 + 55) / 56; steps != want {
		t.Errorf("the prompt took %d steps, not %d", steps, want)
	}
}

// TestKeysGetEqualShares: of keys that always have something waiting, no two differ
// in the rows computed for them by more than a quantum each and what one's
// sequences may yet decode after they were let in.
func TestKeysGetEqualShares(t *testing.T) {
	const pages, size, quantum, keys = 64, 16, 64, 3
	d := newSim(t, Options{Pages: pages, PageSize: size, Quantum: quantum, Running: 16, Queue: 1 << 20})
	r := rand.New(rand.NewPCG(3, 4))
	served := make([]int, keys)
	waiting := make([]int, keys)
	worst := 0
	for range 6000 {
		for k := range keys {
			for waiting[k] < 12 { // key 0 asks for long texts, 1 for short, 2 for both
				n, max := 200, 100
				if k == 1 || k == 2 && r.IntN(2) == 0 {
					n, max = 5, 8
				}
				if _, err := d.add(Request{Prompt: prompt(r, n), Max: max, Key: fmt.Sprint(k), User: uint64(k)}); err != nil {
					t.Fatal(err)
				}
				waiting[k]++
			}
		}
		b := d.c.Plan(48)
		for _, run := range b.Runs {
			served[run.Seq.User.(uint64)] += run.Rows
		}
		res, _, err := d.step(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		d.c.Done(b, res)
		if err := d.check(); err != nil {
			t.Fatal(err)
		}
		clear(waiting)
		for _, s := range d.live {
			if s.where == waiting0 {
				waiting[s.User.(uint64)]++
			}
		}
		worst = max(worst, slices.Max(served)-slices.Min(served))
	}
	// Docs: Scheduler's bound.
	if bound := 2*quantum + pages*size; worst > bound {
		t.Errorf("keys differ by %d rows, %d are the bound; served %v", worst, bound, served)
	}
	t.Logf("served %v, worst difference %d", served, worst)
}

const waiting0 = waiting

// TestNobodyStarves: a request of low priority ends although better ones come for ever.
func TestNobodyStarves(t *testing.T) {
	d := newSim(t, Options{Pages: 8, PageSize: 4, Running: 2, Aging: time.Second, Queue: 1 << 20})
	r := rand.New(rand.NewPCG(5, 6))
	low, err := d.add(Request{Prompt: prompt(r, 20), Max: 4, Priority: 5, User: uint64(1)})
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for ; low[0].Ended() == NotEnded; steps++ {
		if steps > 3000 {
			t.Fatalf("after %d steps it still waits: %+v", steps, d.c.Stats())
		}
		for d.c.Stats().Waiting < 4 {
			if _, err := d.add(Request{Prompt: prompt(r, 5), Max: 8, User: uint64(2)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.one(8); err != nil {
			t.Fatal(err)
		}
		if err := d.check(); err != nil {
			t.Fatal(err)
		}
	}
	if steps < 100 {
		t.Errorf("a low priority waited %d steps only", steps)
	}
}

// TestUrgentGoesFirst: a better priority is let in before those that came earlier,
// and takes the pages of worse ones.
func TestUrgentGoesFirst(t *testing.T) {
	d := newSim(t, Options{Pages: 8, PageSize: 4, Running: 4})
	for i := range 2 {
		if _, err := d.add(Request{Prompt: make([]int32, 15), Max: 2, Priority: 1, Root: Hash{byte(i)},
			User: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.one(4); err != nil {
		t.Fatal(err)
	}
	urgent, err := d.add(Request{Prompt: make([]int32, 10), Max: 1, Priority: -9, Root: Hash{9}, User: uint64(9)})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.one(32); err != nil {
		t.Fatal(err)
	}
	if urgent[0].Ended() != StopMax {
		t.Errorf("the urgent one did not run at once: %+v", d.c.Stats())
	}
	if err := d.drain(32); err != nil {
		t.Fatal(err)
	}
}

// TestPlanAhead plans each step while the one before runs: rows then take the
// token that the running step chooses, and the texts are the same.
func TestPlanAhead(t *testing.T) {
	for _, name := range []string{"plain", "swap", "states", "draft", "disk"} {
		opt := kinds()[name]
		d := newSim(t, opt)
		r := rand.New(rand.NewPCG(7, 8))
		want := map[*Seq][]int32{}
		for i := range 200 {
			p := prompt(r, 1+r.IntN(30))
			seqs, err := d.add(Request{Prompt: p, Max: 1 + r.IntN(20), Choices: 1 + i%2, Key: fmt.Sprint(i % 3),
				User: uint64(i)})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range seqs {
				want[s] = alone(p, uint64(i), 20)
			}
		}
		var last *Batch
		var results []Result
		var chosen []int32
		ahead := 0
		for !d.c.Idle() {
			b := d.c.Plan(24)
			for _, row := range b.Rows {
				if row.Token < 0 {
					ahead++
				}
			}
			// The device runs steps in order; the host learns of one while the next is planned.
			res, ch, err := d.step(b, chosen)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if last != nil {
				d.c.Done(last, results)
			}
			last, results, chosen, d.runs = b, res, ch, b
			if err := d.check(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for s, text := range want {
			if got := s.tokens[s.prompt:]; s.stop != StopMax || !slices.Equal(got, text[:len(got)]) ||
				len(got) != s.max-s.prompt {
				t.Fatalf("%s: sequence %d (%v) says %v, alone %v", name, s.id, s.stop, got, text)
			}
		}
		if ahead == 0 && name != "draft" {
			t.Errorf("%s: no row was planned ahead", name)
		}
		if used := d.c.Stats().PagesUsed; used != 0 {
			t.Errorf("%s: %d pages are not free", name, used)
		}
	}
}

// TestAbort: a step that was not computed is planned again.
func TestAbort(t *testing.T) {
	for name, opt := range kinds() {
		d := newSim(t, opt)
		r := rand.New(rand.NewPCG(9, 9))
		for i := range 60 {
			if _, err := d.add(Request{Prompt: prompt(r, 1+r.IntN(20)), Max: 10, User: uint64(i)}); err != nil {
				t.Fatal(err)
			}
		}
		for !d.c.Idle() {
			if r.IntN(3) == 0 {
				b := d.c.Plan(20)
				d.moves(b)
				d.c.Abort(b)
			}
			if err := d.one(20); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := d.check(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

// TestTenThousand: in the end all pages are free.
func TestTenThousand(t *testing.T) {
	d := newSim(t, Options{Pages: 256, PageSize: 16, Running: 64, Queue: 1 << 20})
	r := rand.New(rand.NewPCG(10, 11))
	for i := range 10000 {
		if _, err := d.add(Request{Prompt: prompt(r, 1+r.IntN(40)), Max: 1 + r.IntN(10), Key: fmt.Sprint(i % 5),
			User: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.drain(256); err != nil {
		t.Fatal(err)
	}
	if st := d.c.Stats(); st.PagesUsed != 0 || d.c.pool.Free() != 256 {
		t.Errorf("%+v", st)
	}
}

// TestPrefixIsReused: a second request with the same beginning computes only what
// is new, also after the first has ended; another salt shares nothing; a token is
// counted once.
func TestPrefixIsReused(t *testing.T) {
	d := newSim(t, Options{Pages: 64, PageSize: 16})
	r := rand.New(rand.NewPCG(12, 13))
	long := prompt(r, 200)
	ask := func(salt string, p []int32) *Seq {
		s, err := d.add(Request{Prompt: p, Max: 3, Root: Root("m", "f16", "", salt), User: uint64(1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.drain(64); err != nil {
			t.Fatal(err)
		}
		return s[0]
	}
	for _, c := range []struct {
		salt string
		p    []int32
		want int
	}{
		{"a", long, 0}, {"a", long, 192}, {"b", long, 0}, {"a", slices.Concat(long[:100], []int32{1, 2, 3}), 96}, {"a",
			long[:192], 176}, {"a", long[1:], 0},
	} {
		if got := ask(c.salt, c.p).Cached(); got != c.want {
			t.Errorf("salt %s, %d tokens: %d cached, not %d", c.salt, len(c.p), got, c.want)
		}
	}
	hashes := Hashes(Root("m", "f16", "", "a"), long, 16)
	if n := d.c.Pool().Known(hashes); n != 12 || len(hashes) != 12 {
		t.Errorf("%d of %d pages are known", n, len(hashes))
	}
	if st := d.c.Stats(); st.PrefixHits != 192+96+176 || st.PrefixQueries != 200*3+103+192+199 {
		t.Errorf("%d of %d tokens hit", st.PrefixHits, st.PrefixQueries)
	}
}

// TestChoicesShareThePrompt: n answers compute the prompt once.
func TestChoicesShareThePrompt(t *testing.T) {
	d := newSim(t, Options{Pages: 64, PageSize: 16})
	r := rand.New(rand.NewPCG(14, 15))
	if _, err := d.add(Request{Prompt: prompt(r, 101), Max: 5, Choices: 4, User: uint64(1)}); err != nil {
		t.Fatal(err)
	}
	if err := d.drain(64); err != nil {
		t.Fatal(err)
	}
	if got, want := d.c.Stats().Rows, 101+3+4*4; got != want {
		t.Errorf("%d rows, not %d", got, want)
	}
}

// TestCancelledRunKeepsItsSlot: a step that runs while its sequence is cancelled writes the states where they lay, and
// copies them from there; it was told to copy them from nowhere.
func TestCancelledRunKeepsItsSlot(t *testing.T) {
	c, err := New(Options{Pages: 16, PageSize: 4, Running: 2, Slots: 4, Every: 1})
	if err != nil {
		t.Fatal(err)
	}
	seqs, err := c.Add(Request{Prompt: prompt(rand.New(rand.NewPCG(1, 2)), 9)})
	if err != nil {
		t.Fatal(err)
	}
	b := c.Plan(4)
	if len(b.Runs) != 1 || b.Runs[0].Keep < 0 || b.Runs[0].Slot < 0 || b.Runs[0].Slot == b.Runs[0].Keep {
		t.Fatalf("%+v", b.Runs)
	}
	slot := b.Runs[0].Slot
	c.Cancel(seqs[0])
	if b.Runs[0].Slot != slot {
		t.Errorf("slot %d became %d", slot, b.Runs[0].Slot)
	}
	c.Done(b, make([]Result, 1))
	if st := c.Stats(); st.Running+st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}
