package platform

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/errlist"
)

// Member is one of several devices that are measured together.
type Member struct {
	ID     string // as greta devices lists it
	Device backends.Device
}

// RunTogether measures the plan on all devices at the same time: each figure begins when all are ready for one, and
// who has its samples goes on working until the others have theirs. Results have the parameters "device" and
// "at_once". Devices of different kinds may have different figures to take; then any that they have at hand run beside
// each other.
func RunTogether(ctx context.Context, opt Options, members []Member) error {
	t := newTogether(len(members))
	var mu sync.Mutex
	var wait sync.WaitGroup
	errs := make([]error, len(members))
	for i, m := range members {
		o := opt
		o.Device, o.together = m.Device, t
		o.Emit = func(r *record.Result) error {
			mu.Lock()
			defer mu.Unlock()
			params := map[string]string{"device": m.ID, "at_once": itoa(len(members))}
			maps.Copy(params, r.Params)
			r.Params = params
			return opt.Emit(r)
		}
		if i > 0 {
			o.Progress = nil
		}
		wait.Go(func() {
			defer t.leave()
			if errs[i] = Run(ctx, o); errs[i] != nil {
				errs[i] = fmt.Errorf("device %s: %w", m.ID, errs[i])
			}
		})
	}
	wait.Wait()
	return errlist.Join(errs...)
}

// together is where devices wait for each other.
type together struct {
	mu                         sync.Mutex
	changed                    *sync.Cond
	members, waiting, finished int
	phase                      int // counts the figures that were begun
}

func newTogether(n int) *together {
	t := &together{members: n}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// meet waits until every member that has not left is here.
func (t *together) meet(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed.Broadcast()
	})
	defer stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	phase := t.phase
	t.waiting++
	t.begin()
	for phase == t.phase && ctx.Err() == nil {
		t.changed.Wait()
	}
	if phase == t.phase {
		t.waiting--
		return ctx.Err()
	}
	return nil
}

// begin starts a phase where all are here.
func (t *together) begin() {
	if t.waiting > 0 && t.waiting >= t.members {
		t.waiting, t.finished = 0, 0
		t.phase++
		t.changed.Broadcast()
	}
}

// finish says that a member has its samples, or will have none; busy whether another has not.
func (t *together) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finished++
}

func (t *together) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.finished < t.members
}

func (t *together) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.members--
	t.begin()
}
