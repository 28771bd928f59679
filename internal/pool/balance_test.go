package pool

import (
	"sync/atomic"
	"testing"
	"time"
)

// region notes one that took so long, of which the caller did mine of ten units and waited for so long.
func (b *balance) region(at time.Time, took, waited time.Duration, mine int) (end time.Time) {
	b.units, b.mine = b.units+10, b.mine+mine
	end = at.Add(took)
	if waited > 0 {
		b.wait(end.Add(-waited), end)
	}
	return end
}

// Regions are shared as long as that is faster: what was waited is held against what others did.
func TestBalance(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		name         string
		took, waited time.Duration
		mine         int
		alone        bool
	}{
		{"nobody waits", 5 * time.Millisecond, 0, 5, false},
		{"a third is waiting, half is done by others", 6 * time.Millisecond, 2 * time.Millisecond, 5, false},
		{"most is waiting", 20 * time.Millisecond, 15 * time.Millisecond, 7, true},
		{"others do little, and a third is waiting", 15 * time.Millisecond, 5 * time.Millisecond, 9, true},
		{"others do hardly anything", 15 * time.Millisecond, 100 * time.Microsecond, 9, true},
		{"others do some", 15 * time.Millisecond, 100 * time.Microsecond, 7, false},
		{"of many, others do nearly all", 20 * time.Millisecond, 15 * time.Millisecond, 1, false},
	} {
		b := balance{since: start}
		at := start
		for range 5 {
			if at = b.region(at, c.took, c.waited, c.mine); b.alone(func() time.Time { return at }) {
				break
			}
		}
		if got := !b.until.IsZero(); got != c.alone {
			t.Errorf("%s: alone %v, want %v", c.name, got, c.alone)
		}
	}
}

// Each time that sharing loses again the caller is alone for longer, up to a bound, and where it gains for less.
func TestBalanceTries(t *testing.T) {
	at := time.Unix(1000, 0)
	now := func() time.Time { return at }
	b := balance{since: at}
	var rests []time.Duration
	try := func(took, waited time.Duration, mine int) {
		at = b.region(at, took, waited, mine)
		if b.alone(now) {
			rests = append(rests, b.until.Sub(at))
			at = b.until
			if b.alone(now) {
				t.Fatal("alone when its time is over")
			}
		}
	}
	for range 7 {
		try(20*time.Millisecond, 18*time.Millisecond, 9)
	}
	for i, want := range []int{2, 4, 8, 16, 32, 32, 32} {
		if i >= len(rests) || rests[i] != time.Duration(want)*20*time.Millisecond {
			t.Fatalf("alone for %v, want 2, 4, 8, 16, 32, 32 and 32 times 20 ms", rests)
		}
	}
	try(20*time.Millisecond, time.Millisecond, 5) // gains
	try(20*time.Millisecond, 18*time.Millisecond, 9)
	if last := rests[len(rests)-1]; len(rests) != 8 || last != 32*20*time.Millisecond {
		t.Errorf("after one try that gained alone for %v, want 640 ms", rests)
	}
	try(time.Minute, time.Millisecond, 5) // the load has gone
	try(20*time.Millisecond, 18*time.Millisecond, 9)
	if last := rests[len(rests)-1]; len(rests) != 9 || last != firstRest*20*time.Millisecond {
		t.Errorf("after a minute without a loss alone for %v, want 40 ms", last)
	}
	// What was not asked for is no gain: an hour before a loss counts as a tenth of a second.
	b = balance{since: at}
	at = at.Add(time.Hour)
	if b.region(at, time.Second, 90*time.Millisecond, 5); b.until.IsZero() {
		t.Error("an idle hour pays for a loss")
	}
}

// A caller that waited too long for a worker computes the next regions by itself, all the same when they are
// divided for measuring, and shares them again when its time is over.
func TestAloneAfterLoss(t *testing.T) {
	p := newPool(2, time.Second)
	defer p.Close()
	var at atomic.Int64
	clock := func() time.Time { return time.Unix(1000, at.Load()) }
	p.weigh.since, p.now = clock(), clock
	var hold atomic.Bool
	started := make(chan struct{}, 1)
	c := newCounter(2, 8)
	c.body = func(worker, chunk int) {
		switch {
		case worker == 1 && hold.CompareAndSwap(true, false):
			started <- struct{}{}
			for !p.waiting.Load() { // the caller has given up polling
				time.Sleep(10 * time.Microsecond)
			}
			at.Add(int64(50 * time.Millisecond))
		case worker == 0 && hold.Load():
			<-started // so that the worker has a chunk
		}
	}
	hold.Store(true)
	p.Run(c, 8)
	if p.weigh.until.IsZero() {
		t.Fatalf("%v of 50 ms were waited for, and regions are still shared", p.weigh.waited)
	}
	before := c.ran[1].Load()
	for range 20 {
		p.Run(c, 8)
		p.RunSmall(c, 8)
	}
	if n := c.ran[1].Load(); n != before {
		t.Errorf("a worker ran %d chunks while the caller was to be alone", n-before)
	}
	var computed atomic.Int32 // alone, Do would be called
	var again Redo = &redone{got: make([]atomic.Int32, 8), mine: make([]int, 2),
		slow: func(int, int) { computed.Add(1) }}
	if p.RunRedo(&again, 8, nil); computed.Load() < 8 {
		t.Errorf("%d of 8 chunks that can be computed twice were shared", computed.Load())
	}
	both := newCounter(2, 64)
	meet := make(chan struct{})
	both.body = func(worker, chunk int) { // each waits for the other once
		if worker == 0 && both.ran[0].Load() == 1 {
			<-meet
		} else if worker == 1 && both.ran[1].Load() == 1 {
			meet <- struct{}{}
		}
	}
	p.RunAll(both, 64)
	both.check(t, 1)
	at.Add(int64(time.Hour))
	hold.Store(true)
	p.Run(c, 8)
	if c.ran[1].Load() == before {
		t.Error("the time alone is over, and the worker has no chunk")
	}
	c.check(t, 42)
}
