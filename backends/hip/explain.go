package hip

import (
	"slices"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
)

// Where the time of a replay goes. Launches overlap: one that runs by itself between two
// events takes longer than it adds to the step. So beginnings of the program are captured as
// graphs of their own, and the times of two that follow each other are subtracted.

// Profile runs the launches one after another with an event between them. The
// gaps are counted with the launch before them; there are fewer in a replay. The
// time of launches that are joined is that of the first product among them.
func (e *executable) Profile() ([]time.Duration, error) {
	defer e.dev.enter()()
	all := slices.Concat(e.levels...)
	alone, _, err := e.alone(all)
	if err != nil {
		return nil, err
	}
	times := make([]time.Duration, len(e.program.Launches))
	for i, b := range all {
		times[b.number] = alone[i]
	}
	return times, nil
}

// empties is how many intervals in which nothing runs are timed.
const empties = 16

// alone runs launches one after another with an event between them, and gives the time from one
// to the next, and that of an interval in which nothing runs.
func (e *executable) alone(all []*bound) (times []time.Duration, empty time.Duration, err error) {
	dev := e.dev
	if err := errlist.Join(directly(e.steps), e.needEvents(len(all)+1+empties)); err != nil {
		return nil, 0, err
	}
	if err := e.mark(0); err != nil {
		return nil, 0, err
	}
	for i, b := range all {
		if err := errlist.Join(b.run(dev), e.mark(i+1)); err != nil {
			return nil, 0, err
		}
	}
	for i := range empties {
		if err := e.mark(len(all) + 1 + i); err != nil {
			return nil, 0, err
		}
	}
	if err := dev.wait(); err != nil {
		return nil, 0, err
	}
	times = make([]time.Duration, len(all))
	for i := range all {
		if times[i], err = e.between(i, i+1); err != nil {
			return nil, 0, err
		}
	}
	empty, err = e.between(len(all), len(all)+empties)
	return times, empty / empties, errlist.Join(err, dev.fault(e.program))
}

// needEvents makes so many events.
func (e *executable) needEvents(n int) error {
	for len(e.events) < n {
		event, err := e.dev.d.get(fnEventCreate, "profile", 0, eventDefault)
		if err != nil {
			return err
		}
		e.events = append(e.events, uintptr(event))
	}
	return nil
}

// mark records an event on the stream.
func (e *executable) mark(i int) error {
	return e.dev.d.call(fnEventRecord, "profile", e.events[i], e.dev.stream)
}

// between is the time from one event to another.
func (e *executable) between(i, j int) (time.Duration, error) {
	bits, err := e.dev.d.get(fnEventElapsed, e.program.Name, 0, e.events[i], e.events[j])
	return time.Duration(float64(f32(uint32(bits))) * float64(time.Millisecond)), err
}

// leastCuts and mostCuts are the fewest and the most measurements of a beginning.
const leastCuts, mostCuts = 3, 5

// Explain says where the time of a replay goes.
func (e *executable) Explain(budget time.Duration) (*backends.Explanation, error) {
	defer e.dev.enter()()
	begin := time.Now()
	all := slices.Concat(e.levels...)
	x := &backends.Explanation{}
	times := make([][]time.Duration, len(all))
	for n := 0; n < mostCuts && (n == 0 || time.Since(begin) < budget/3); n++ {
		one, empty, err := e.alone(all)
		if err != nil {
			return nil, err
		}
		for i, d := range one {
			times[i] = append(times[i], max(d-empty, 0))
		}
	}
	for i, b := range all {
		x.Parts = append(x.Parts, backends.Part{Launches: append([]int{b.number}, b.joined...),
			Alone: backends.Median(times[i])})
	}
	var err error
	if x.Whole, err = e.timed(e.graph, mostCuts); err != nil {
		return nil, err
	}
	pass := time.Duration(len(all)+1) * (x.Whole + x.Whole/2)
	runs := min(mostCuts, int((budget-time.Since(begin))/max(pass, 1)))
	if err := e.dev.fault(e.program); err != nil {
		return nil, err
	}
	if runs < leastCuts {
		return x, nil
	}
	x.Cut = true
	var last time.Duration
	for i := range len(all) + 1 {
		d, err := e.cut(i, runs)
		switch {
		case err != nil:
			return nil, err
		case i == 0:
			x.Start = d
		default:
			x.Parts[i-1].Added = d - last
		}
		last = d
	}
	x.End = x.Whole - last
	if err := e.dev.fault(e.program); err != nil {
		return nil, err
	}
	return x, nil
}

// cut gives the time of the program's first launches.
func (e *executable) cut(launches, runs int) (d time.Duration, err error) {
	graph, err := e.instantiate(launches, false)
	if graph != 0 {
		defer func() { err = errlist.Join(err, e.dev.d.call(fnGraphExecDestroy, "", graph)) }()
	}
	if err != nil {
		return 0, err
	}
	return e.timed(graph, runs)
}

// timed gives the time of a replay of a graph of the program, a median. The whole program is
// replayed before each, so that the host is ahead and caches hold what they hold in a text.
func (e *executable) timed(graph uintptr, runs int) (time.Duration, error) {
	if err := e.needEvents(2); err != nil {
		return 0, err
	}
	var times []time.Duration
	for range runs {
		if err := e.fly(); err != nil {
			return 0, err
		}
		if err := errlist.Join(e.launch(e.graph), e.mark(0), e.launch(graph), e.mark(1), e.dev.wait()); err != nil {
			return 0, err
		}
		e.landed()
		d, err := e.between(0, 1)
		if err != nil {
			return 0, err
		}
		times = append(times, d)
	}
	return backends.Median(times), nil
}

// launch puts a graph of the program on the stream. The whole program's tells its end.
func (e *executable) launch(graph uintptr) error {
	err := e.dev.d.call(fnGraphLaunch, e.program.Name, graph, e.dev.stream)
	if err == nil && graph == e.graph && e.copies != nil {
		e.copies.runs++
	}
	return err
}
