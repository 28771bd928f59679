//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"errors"
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
)

// A program of several steps is bound step by step, each as if it were alone: its dispatches are those of a single
// step, and so are its bits. All steps are one recording with a barrier between two, which takes 2 µs of what a
// submission takes 40. The steps share the arena, so nothing is folded from one to the next.

// chainLaunches is how many launches a program of several steps may have: sixteen steps of a Llama block.
const chainLaunches = 256

// statusBytes are those of a link's words for what its kernels found wrong: a binding of its own.
const statusBytes = 256

// link is a step of a program.
type link struct {
	places   *places // of results apart; nil: they lie in the arena
	from, to int     // its dispatches
	ordered  []int   // the same in the order of recording; nil: nobody has asked
}

// order is that in which the link's dispatches are recorded.
func (l *link) order(e *executable) []int {
	if l.ordered == nil {
		l.ordered = schedule(e.dispatches[l.from:l.to])
		for i := range l.ordered {
			l.ordered[i] += l.from
		}
	}
	return l.ordered
}

// turns are the dispatches of link k in the order of recording; or launch by launch, apart, in the program's.
func (e *executable) turns(k int, apart bool) (all [][]int) {
	if !apart {
		return [][]int{e.links[k].order(e)}
	}
	per := len(e.program.Launches) / len(e.links)
	for i := k * per; i < (k+1)*per; i++ {
		var list []int
		for j := e.first[i]; j < e.first[i+1]; j++ {
			list = append(list, j)
		}
		all = append(all, list)
	}
	return all
}

// link binds the launches of a step, ahead: so that stages can hand over.
func (e *executable) link(launches []backends.Launch, ahead bool) error {
	p := &backends.Program{Name: e.program.Name, Launches: launches}
	l := link{from: len(e.dispatches)}
	if ahead {
		p, l.places = e.d.separate(p)
	}
	made, folds := &copies{}, e.d.findFolds(p)
	if l.places != nil {
		l.places.leave(p, folds)
	}
	err := e.bind(p, &l, made, folds)
	if err == nil && made.missed {
		e.dispatches, e.first = e.dispatches[:l.from], e.first[:len(e.first)-len(launches)]
		made = &copies{all: true}
		err = e.bind(p, &l, made, folds)
	}
	l.to = len(e.dispatches)
	e.links = append(e.links, l)
	before := len(e.owners)
	for i := range launches {
		owner := folds.owner(i)
		if n, ok := made.normed[i]; ok {
			owner = n
		}
		e.owners = append(e.owners, before+owner)
	}
	return err
}

// bind gives every launch of a link its dispatches.
func (e *executable) bind(p *backends.Program, link *link, made *copies, folds *folds) error {
	at := uint64(len(e.links) * statusBytes)
	refused := span{b: e.refused, from: at, to: at + 4*statusLen}
	for i := range p.Launches {
		l := &p.Launches[i]
		k := l.Kernel.(*kernel)
		e.first = append(e.first, len(e.dispatches))
		b := &bind{d: e.d, l: l, number: i, program: p, kernel: k.name, on: k.on, variant: k.variant, copies: made,
			folds: folds, places: link.places, refused: refused}
		made.start(i)
		if folds.folded(i) {
			continue
		}
		if err := errlist.Join(k.bind(b), b.err); err != nil {
			return fmt.Errorf("%v: %w", l.Node, err)
		}
		if made.due != nil && made.due.launch <= i {
			return fmt.Errorf("%v: halves of its operand were not added", l.Node)
		}
		made.wrote(i, b.list)
		e.dispatches = append(e.dispatches, b.list...)
	}
	return nil
}

// settle finds memory for the places of all links, which programs share. Where there is not enough for all, links of a
// later round use that of an earlier one.
func (e *executable) settle() error {
	each := uint64(0)
	for _, l := range e.links {
		if l.places != nil {
			each = max(each, l.places.bytes)
		}
	}
	if each == 0 {
		return nil
	}
	for e.round = min(len(e.links), max(1, int(e.d.mostApart/each))); ; e.round = (e.round + 1) / 2 {
		var err error
		if e.results, err = e.d.filled("results apart", e.round*int(each), notYet); err == nil {
			e.apart = each
			break
		}
		var full *backends.OutOfMemory
		switch {
		case !errors.As(err, &full):
			return err
		case e.round == 1:
			return &noPlaces{full}
		}
	}
	for k, l := range e.links {
		if l.places == nil {
			continue
		}
		for _, b := range l.places.list {
			b.handle = e.results.handle
			b.base += uint64(k%e.round) * each
		}
	}
	return nil
}

// begin makes a link wait for the one before, and fills the places of a later round of links anew.
func (e *executable) begin(r *recorder, k int) {
	fills := e.handed && k > 0 && k%e.round == 0
	switch {
	case fills:
		r.barrier(shaderStage, shaderStage|transferStage)
		e.fill(r, uint64(min(e.round, len(e.links)-k))*e.apart)
		r.barrier(transferStage, shaderStage)
	case k > 0:
		r.barrier(shaderStage, shaderStage)
	}
}

// fill fills so many bytes of places with words that are no results.
func (e *executable) fill(r *recorder, bytes uint64) {
	e.d.c.CmdFillBuffer(r.cb, e.results.handle, 0, bytes, notYet)
}

// clean records what leaves the places as the next program wants them, while the host reads what this one gave.
func (e *executable) clean() error {
	d := e.d
	var err error
	if e.after, err = d.newSubmission("places of step " + e.program.Name); err != nil {
		return err
	}
	if err := d.begin(*e.after.cb); err != nil {
		return err
	}
	r := &recorder{d: d, cb: *e.after.cb}
	r.barrier(shaderStage, transferStage)
	e.fill(r, uint64(e.round)*e.apart)
	e.run.follow(e.after)
	return d.check(d.c.EndCommandBuffer(r.cb), "vkEndCommandBuffer", e.after.what)
}
