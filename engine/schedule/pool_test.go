package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func seqOf(tokens ...int32) *Seq { return &Seq{tokens: tokens, slot: -1} }

func TestForkCopiesOnWrite(t *testing.T) {
	p := NewPool(6, 4, 0, 0)
	a := seqOf(make([]int32, 12)...)
	p.Grow(a, 0, 6)
	a.computed, a.planned = 6, 6
	p.Learn(a, -1)
	b := seqOf(a.tokens...)
	p.Fork(a, b, 6)
	if !slices.Equal(a.pages, b.pages) || p.Free() != 4 {
		t.Fatalf("a fork has %v of %v, %d are free", b.pages, a.pages, p.Free())
	}
	second := a.pages[1]
	if n := p.Need(b, 6, 7); n != 1 {
		t.Errorf("writing to a shared page needs %d pages", n)
	}
	p.Grow(b, 6, 7)
	if got := p.Moves(nil); len(got) != 1 || got[0] != (Move{CopyPage, second, b.pages[1]}) || b.pages[0] != a.pages[0] {
		t.Errorf("moves %v, pages %v and %v", got, a.pages, b.pages)
	}
	p.Grow(a, 6, 7)
	if got := p.Moves(nil); len(got) != 0 || a.pages[1] != second {
		t.Errorf("the last owner of a page copied it: %v", got)
	}
	p.Release(a)
	p.Release(b)
	if p.Free() != 6 || p.unused != 1 {
		t.Errorf("%d pages are free, %d of them known", p.Free(), p.unused)
	}
}

func TestGrowChangesNothingWhereItFails(t *testing.T) {
	p := NewPool(3, 4, 0, 0)
	a, b := seqOf(make([]int32, 20)...), seqOf(make([]int32, 20)...)
	p.Grow(a, 0, 7)
	p.Fork(a, b, 7)
	if p.Grow(b, 7, 13) || len(p.Moves(nil)) != 0 || len(b.pages) != 2 || p.Free() != 1 {
		t.Errorf("3 pages needed, 1 free: b has %v, %d are free", b.pages, p.Free())
	}
}

// TestTruncateForgetsWhatIsWritten: a page behind the cut is given back; one that
// is cut and then written anew is known no more.
func TestTruncateForgetsWhatIsWritten(t *testing.T) {
	p := NewPool(8, 4, 0, 0)
	a := seqOf(1, 2, 3, 4, 5, 6, 7, 8, 9)
	p.Grow(a, 0, 9)
	a.computed = 9
	p.Learn(a, -1)
	p.Truncate(a, 6)
	if len(a.pages) != 2 || a.computed != 6 || a.chained != 1 {
		t.Fatalf("%d pages, %d computed, %d chained", len(a.pages), a.computed, a.chained)
	}
	b := seqOf(1, 2, 3, 4, 5, 6, 7, 8, 9)
	if n, _ := p.Match(b); n != 8 {
		t.Errorf("%d positions are known before they are written anew", n)
	}
	p.Release(b)
	copy(a.tokens[6:], []int32{70, 80, 90})
	p.Grow(a, 6, 9)
	b.tokens = []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	if n, _ := p.Match(b); n != 4 {
		t.Errorf("%d positions are known after they are written anew", n)
	}
	p.Release(b)
	a.computed = 9
	p.Learn(a, -1)
	c := seqOf(1, 2, 3, 4, 5, 6, 70, 80, 90)
	if n, _ := p.Match(c); n != 8 {
		t.Errorf("%d positions of the new text are known", n)
	}
}

// TestOldestLeavesFirst: pages nobody uses are given away in the order in which
// they were last used, a sequence's end before its beginning.
func TestOldestLeavesFirst(t *testing.T) {
	p := NewPool(4, 2, 0, 0)
	texts := [][]int32{{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}}
	for _, text := range texts {
		s := seqOf(text[:4]...)
		p.Grow(s, 0, 4)
		s.computed = 4
		p.Learn(s, -1)
		p.Release(s)
	}
	s := seqOf(texts[0]...)
	if n, _ := p.Match(s); n != 4 { // used again
		t.Fatalf("%d positions known", n)
	}
	p.Release(s)
	known := func(text []int32) int {
		s := seqOf(text...)
		n, _ := p.Match(s)
		// Looking is using: put back in the same order by looking at all, oldest first.
		p.Release(s)
		return n
	}
	w := seqOf(0, 0)
	p.Grow(w, 0, 2)
	if a, b := known(texts[1]), known(texts[0]); a != 2 || b != 4 {
		t.Errorf("after one page was taken %d of the older and %d of the newer are known", a, b)
	}
}

func TestIndexAgainstMap(t *testing.T) {
	const pages = 50
	x := newIndex(pages)
	m := map[Hash]int32{}
	r := rand.New(rand.NewPCG(1, 1))
	has := make([]bool, pages)
	for range 20000 {
		g := int32(r.IntN(pages))
		if has[g] {
			x.remove(g)
			delete(m, x.hash[g])
			has[g] = false
		} else {
			h := Hash{byte(r.IntN(200)), 0, 0, 0, 0, 0, 0, 0, byte(r.IntN(3))} // many homes are equal
			if _, ok := m[h]; ok {
				continue
			}
			x.put(g, &h)
			m[h], has[g] = g, true
		}
		for h, want := range m {
			if got := x.find(&h); got != want {
				t.Fatalf("page %d found as %d", want, got)
			}
		}
	}
}

// FuzzOperations: no order of arrivals, cancels, steps and aborted steps breaks what must hold.
func FuzzOperations(f *testing.F) {
	f.Add(byte(0), []byte{0, 10, 5, 1, 30, 0, 60, 9, 1, 200, 2, 1, 1, 7})
	f.Add(byte(1), []byte{0, 60, 29, 0, 60, 29, 0, 61, 29, 1, 40, 1, 40, 2, 0, 1, 9, 3, 1, 20})
	f.Add(byte(2), []byte{0, 33, 9, 1, 3, 3, 0, 33, 9, 1, 40, 2, 1, 1, 7})
	f.Fuzz(func(t *testing.T, kind byte, ops []byte) {
		names := []string{"plain", "swap", "states", "draft", "one", "disk"}
		opt := kinds()[names[int(kind)%len(names)]]
		opt.Queue = 50
		d := newSim(t, opt)
		next := func() int {
			if len(ops) == 0 {
				return 0
			}
			v := int(ops[0])
			ops = ops[1:]
			return v
		}
		for steps := 0; len(ops) > 0 && steps < 500; steps++ {
			switch next() % 4 {
			case 0:
				n := next()
				p := make([]int32, n%64)
				for i := range p {
					p[i] = int32(n >> 6 * (i % 3))
				}
				_, _ = d.add(Request{Prompt: p, Max: next() % 40, Choices: n % 3, Key: string(rune('a' + n%3)),
					Priority: n%5 - 2, User: uint64(n)})
			case 1:
				if n := 1 + next()%64; !d.c.Idle() {
					if err := d.one(n); err != nil {
						t.Fatal(err)
					}
				}
			case 2:
				if n := next(); len(d.live) > 0 {
					d.c.Cancel(d.live[n%len(d.live)])
				}
			case 3:
				b := d.c.Plan(1 + next()%64)
				d.moves(b)
				d.c.Abort(b)
			}
			if err := d.check(); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.drain(32); err != nil {
			t.Fatal(err)
		}
	})
}
