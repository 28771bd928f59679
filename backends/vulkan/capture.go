//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops"
)

// executable is a program recorded in a command buffer.
type executable struct {
	d          *Device
	program    *backends.Program
	links      []link // its steps
	dispatches []dispatch
	first      []int // of each launch in dispatches, and the end
	owners     []int // of each launch: the first one that does its work, itself if it is not folded into others
	ins, outs  []span
	returns    int     // bytes of outs
	results    *buffer // memory for results apart,
	apart      uint64  // so many bytes a link,
	round      int     // of so many links
	refused    *buffer // what a kernel found wrong in each link: launch + 1, index, value, limit; and behind them told
	told       *uint32 // set when all results are there; nil: the device does not tell
	handed     bool    // some stage waits for the one before by itself
	pool       vk.DescriptorPool
	run, after *submission // after fills the places for who comes next; nil: there are none
	full       error       // why places were not found; nil: they were, or it has none
}

// Capture binds every launch of a program and records it.
func (d *Device) Capture(p *backends.Program) (backends.Executable, error) {
	// Results in places of their own end with the program. What a launch alone gives, somebody else reads.
	e, err := d.plan(p, d.on.overlap && len(p.Launches) > max(p.Steps, 1))
	var full *noPlaces
	switch {
	case errors.As(err, &full):
		if e, err = d.plan(p, false); err == nil {
			e.full = full.err
		}
	case err == nil && e.results != nil && !e.handOver():
		if err = e.Close(); err == nil {
			e, err = d.plan(p, false)
		}
	}
	if err != nil {
		return nil, err
	}
	if e.run, err = d.newSubmission("step " + p.Name); err == nil {
		e.pool, err = e.record(e.run, recording{})
	}
	if err == nil && e.handed {
		err = e.clean()
	}
	if err != nil {
		return nil, errlist.Join(err, e.Close())
	}
	return e, nil
}

// plan binds every launch of a program to its dispatches, ahead: so that stages can hand over.
func (d *Device) plan(p *backends.Program, ahead bool) (e *executable, err error) {
	if d.lost != nil {
		return nil, d.lost
	}
	e = &executable{d: d, program: p}
	defer func() {
		if err != nil {
			e, err = nil, errlist.Join(err, e.Close())
		}
	}()
	for i := range p.Launches {
		if _, ok := p.Launches[i].Kernel.(*kernel); !ok {
			return e, fmt.Errorf("%v: a kernel of another device (%T)", p.Launches[i].Node, p.Launches[i].Kernel)
		}
	}
	steps := max(p.Steps, 1)
	per, ok := p.EqualSteps()
	if !ok {
		return e, fmt.Errorf("%s: %d launches are not those of %d equal steps", p.Name, len(p.Launches), steps)
	}
	if e.refused, err = d.newBuffer((steps+1)*statusBytes, d.types.read, "status"); err != nil {
		return e, err
	}
	clear(e.refused.mapped)
	if d.p.tells {
		e.told = &words(e.refused.mapped)[steps*statusBytes/4]
	}
	for i := range steps {
		if err := e.link(p.Launches[i*per:(i+1)*per], ahead); err != nil {
			return e, err
		}
	}
	e.first = append(e.first, len(e.dispatches))
	if err := e.settle(); err != nil {
		return e, err
	}
	e.crossings()
	return e, nil
}

// crossings finds what of Step memory with two sides goes to the device before
// the step, where the host does not write it there, and comes back after it.
func (e *executable) crossings() {
	for i := range e.dispatches {
		for _, s := range e.dispatches[i].used {
			switch {
			case s.b.mirror == nil:
			case s.write:
				e.outs = merge(e.outs, s)
			case s.b.mapped == nil && !slices.ContainsFunc(e.outs, func(o span) bool {
				return o.b == s.b && o.from <= s.from && s.to <= o.to
			}):
				e.ins = merge(e.ins, s)
			}
		}
	}
	for _, s := range e.outs {
		if s.b.mapped == nil { // what is written in part must not come back from nowhere
			e.ins = merge(e.ins, s)
		}
		e.returns += int(s.to - s.from)
	}
}

// nearby is how far apart ranges of Step memory may lie that one copy brings: a copy takes longer to begin than these
// bytes do, and what lies between is the same on both sides, or of no program.
const nearby = 256

// merge adds a span to those that it is not near to.
func merge(list []span, s span) []span {
	s.to = min(s.to, s.b.bytes)
	out := list[:0]
	for _, o := range list {
		if o.b == s.b && o.from <= s.to+nearby && s.from <= o.to+nearby {
			s.from, s.to = min(o.from, s.from), max(o.to, s.to)
		} else {
			out = append(out, o)
		}
	}
	return append(out, s)
}

// recording is how a program is recorded. As it stands, it is the one that is replayed.
type recording struct {
	// apart is called before the first launch and behind each: they come in the program's order, and hand nothing over
	apart func(r *recorder, launch int)
	// cut leaves only the first dispatches, so many, and of what comes back nothing
	cut   bool
	first int
	// begun and ended are called before and behind all that the program does
	begun, ended func(r *recorder)
}

// record fills the submission's command buffer, in an order that saves barriers.
func (e *executable) record(s *submission, how recording) (vk.DescriptorPool, error) {
	d := e.d
	pool, err := d.descriptorPool(e.dispatches)
	if err != nil {
		return 0, err
	}
	if err := d.begin(*s.cb); err != nil {
		return pool, err
	}
	apart := how.apart != nil
	r := &recorder{d: d, cb: *s.cb, pool: pool, apart: apart}
	// Whatever ran before on the queue has written what this step reads.
	r.barrier(shaderStage|transferStage, shaderStage|transferStage)
	if how.begun != nil {
		how.begun(r)
	}
	e.enter(r)
	if apart {
		how.apart(r, -1)
	}
	lose, left, launch := d.lose && !apart, len(e.dispatches), 0
	if how.cut {
		left = how.first
	}
	for k := range e.links {
		if how.cut && left == 0 {
			break
		}
		e.begin(r, k)
		for _, turn := range e.turns(k, apart) {
			turn = turn[:min(len(turn), left)]
			left -= len(turn)
			for _, j := range turn {
				if lose && e.dispatches[j].says {
					lose = false
					continue
				}
				if err := r.dispatch(&e.dispatches[j]); err != nil {
					return pool, err
				}
			}
			if apart {
				how.apart(r, launch)
				launch++
			}
		}
	}
	if !how.cut {
		e.leave(r)
		if e.told != nil && !apart {
			r.barrier(shaderStage|transferStage, hostStage|transferStage)
			d.c.CmdFillBuffer(r.cb, e.refused.handle, uint64(len(e.links)*statusBytes), 4, 1)
		}
	}
	r.barrier(shaderStage|transferStage, hostStage)
	if how.ended != nil {
		how.ended(r)
	}
	return pool, d.check(d.c.EndCommandBuffer(r.cb), "vkEndCommandBuffer", s.what)
}

// enter brings what the host wrote to the device.
func (e *executable) enter(r *recorder) {
	if len(e.ins) == 0 {
		return
	}
	for _, x := range e.ins {
		r.copy(x.b, x.b.mirror, x.from, x.to)
	}
	r.barrier(transferStage, shaderStage)
}

// leave brings what the host will read back.
func (e *executable) leave(r *recorder) {
	if len(e.outs) == 0 {
		return
	}
	r.barrier(shaderStage, transferStage)
	for _, x := range e.outs {
		r.copy(x.b.mirror, x.b, x.from, x.to)
	}
}

// Submit starts the step; Wait waits for its end and tells what went wrong.
func (e *executable) Submit() error {
	e.d.returned += e.returns
	if e.told != nil {
		if err := e.run.wait(); err != nil {
			return err
		}
		atomic.StoreUint32(e.told, 0)
	}
	return e.run.submit()
}

// Wait waits for the step.
func (e *executable) Wait() error {
	var err error
	if e.told != nil {
		err = e.run.see(e.told)
	} else {
		err = e.run.wait()
	}
	if err != nil {
		return err
	}
	return e.status()
}

// status reports what a kernel of the program refused: an index out of range.
func (e *executable) status() error {
	for k := range e.links {
		w := words(e.refused.mapped)[k*statusBytes/4:][:statusLen]
		if w[0] == 0 {
			continue
		}
		launch, index, value, limit := int(w[0])-1, w[1], int32(w[2]), w[3]
		clear(e.refused.mapped)
		step, launches := "", e.program.Launches
		if n := len(e.links); n > 1 {
			step, launches = fmt.Sprintf("step %d of %d: ", k+1, n), launches[k*len(launches)/n:(k+1)*len(launches)/n]
		}
		switch {
		case launch >= len(launches):
			return fmt.Errorf("%s: %slaunch %d refused its operands", e.program.Name, step, launch)
		case limit == 0:
			return fmt.Errorf("%s%v waited in vain for the stage before it (path %s; --fp16 off does without it)", step,
				launches[launch].Node, pathOverlap)
		}
		if n := launches[launch].Node; n.Op == ops.Pool || ops.Spans(n) {
			return fmt.Errorf("%s%v: range %d, of which %d is an end, is empty, lacks its row or leaves the rows [0, %d)",
				step, n, index, value, limit)
		}
		return fmt.Errorf("%s%v: index %d is %d, it must lie in [0, %d)", step, launches[launch].Node, index, value, limit)
	}
	return nil
}

// Note says what goes less well than it should, in a sentence; empty: nothing does.
func (e *executable) Note() string {
	if e.full == nil {
		return ""
	}
	return "stages of a token's step wait at barriers, which is slower, as there is no memory for results of their own: " +
		e.full.Error()
}

var _ backends.Noter = (*executable)(nil)

// Close gives the recording back.
func (e *executable) Close() error {
	var err error
	for _, s := range []*submission{e.run, e.after} {
		if s != nil {
			err = errlist.Join(err, s.close())
		}
	}
	if e.pool != 0 {
		e.d.c.DestroyDescriptorPool(e.d.handle, e.pool, nil)
	}
	if e.refused != nil {
		e.refused.release()
	}
	e.run, e.after, e.pool, e.refused = nil, nil, 0, nil
	return err
}
