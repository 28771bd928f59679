package schedule

import (
	"slices"
	"time"
)

// key is whom the scheduler is fair to: its sequences, and what it has left of
// its turns. Every row that is computed for it is taken from deficit, which may
// fall below zero by rows that were not asked for (decode).
type key struct {
	name    string
	deficit int
	waiting []*Seq // the next one last
	filling []*Seq // run, but their known tokens are not all planned; the next one first
	seqs    int    // waiting, forking and running
	blocked bool   // admits nobody in the Plan under way
	held    bool   // prefills no more in the Plan under way
}

// next is the sequence that the key would prefill next.
func (k *key) next() *Seq {
	if k.held {
		return nil
	}
	if len(k.filling) > 0 {
		return k.filling[0]
	}
	if n := len(k.waiting); n > 0 && !k.blocked {
		return k.waiting[n-1]
	}
	return nil
}

// enter gives the key of a name. A key that comes anew starts where those that
// are there stand, so that nobody pays for what was computed while he was alone.
func (c *Scheduler) enter(name string) *key {
	k := c.keys[name]
	if k == nil {
		k = &key{name: name}
		c.keys[name] = k
		c.ring = append(c.ring, k)
	}
	if k.seqs == 0 {
		best, any := 0, false
		for _, o := range c.ring {
			if o.seqs > 0 && (!any || o.deficit > best) {
				best, any = o.deficit, true
			}
		}
		if any {
			k.deficit = min(k.deficit, best)
		}
	}
	return k
}

// leave forgets a key without sequences that owes nothing.
func (c *Scheduler) leave(k *key) {
	if k.seqs > 0 || k.deficit < 0 {
		return
	}
	delete(c.keys, k.name)
	i := slices.Index(c.ring, k)
	c.ring = slices.Delete(c.ring, i, i+1)
	if c.turn > i {
		c.turn--
	}
}

// wait puts a sequence into its key's queue.
func (c *Scheduler) wait(s *Seq) {
	s.where = waiting
	k := s.key
	at, _ := slices.BinarySearchFunc(k.waiting, s, func(a, b *Seq) int {
		if a.before(b, c.opt.Aging) {
			return 1
		}
		return -1
	})
	k.waiting = slices.Insert(k.waiting, at, s)
	c.nwait++
}

// level is a priority that falls by one each Aging of waiting, but not below least.
func (c *Scheduler) level(s *Seq, now time.Time, least int) int {
	if s.where != waiting || s.priority <= least {
		return s.priority
	}
	return max(least, s.priority-int(now.Sub(s.arrival)/c.opt.Aging))
}

// pick chooses the key that prefills next: among those whose next sequence has the
// lowest level, the first from turn on that has something left. Where none has,
// all get as many rounds as the first needs; but not while another key has something
// left and its next sequence does not fit: those that run go on, on account, and
// nobody is let in before it. So what two keys with sequences waiting all the time
// have computed differs by 2 quanta and the positions of all pages at most.
func (c *Scheduler) pick(now time.Time) *key {
	least, any := 0, false
	for _, k := range c.ring {
		if s := k.next(); s != nil && (!any || s.priority < least) {
			least, any = s.priority, true
		}
	}
	if !any {
		return nil
	}
	level := int(^uint(0) >> 1)
	for _, k := range c.ring {
		if s := k.next(); s != nil {
			level = min(level, c.level(s, now, least))
		}
	}
	for range 2 {
		rounds, owed, fills := -1, false, (*key)(nil)
		for i := range c.ring {
			at := (c.turn + i) % len(c.ring)
			k := c.ring[at]
			s := k.next()
			if fills == nil && s != nil && len(k.filling) > 0 {
				fills = k
			}
			if n := len(k.waiting); n > 0 && k.blocked && k.deficit > 0 && c.level(k.waiting[n-1], now, least) <= level {
				owed = true
			}
			if s == nil || c.level(s, now, least) != level {
				continue
			}
			if k.deficit > 0 {
				c.turn = at
				return k
			}
			if r := -k.deficit/c.opt.Quantum + 1; rounds < 0 || r < rounds {
				rounds = r
			}
		}
		if owed {
			return fills
		}
		c.turn = (c.turn + 1) % len(c.ring)
		c.replenish(rounds)
	}
	return nil
}

func (c *Scheduler) replenish(rounds int) {
	for i := len(c.ring) - 1; i >= 0; i-- {
		k := c.ring[i]
		k.deficit = min(k.deficit+rounds*c.opt.Quantum, c.opt.Quantum)
		if k.seqs == 0 {
			k.deficit = min(k.deficit, 0)
			c.leave(k)
		}
	}
}
