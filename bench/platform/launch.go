package platform

import (
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/errlist"
)

// launch: what starting work costs, in the ways that there are.
var _ = define(Benchmark{
	Name: "launch",
	About: "an empty kernel: in a stream, to and fro, between two events, as a node of a graph; a round of a kernel " +
		"that stays",
	GPU: launchGPU,
	CPU: launchCPU,
})

func launchGPU(g *GPU) error {
	n, err := g.counter()
	if err != nil {
		return err
	}
	c := code{"launch", "empty", 64, nil}
	quiet, err := g.dev.bind(c, 1, 0, n, uint32(0))
	if err != nil {
		return err
	}
	loud, err := g.dev.bind(c, 1, 0, n, uint32(1))
	if err != nil {
		return err
	}
	const tries = 1000
	// counted starts the kernel that counts in the same way as the quiet one was.
	counted := func(prepare func(l launch, n int) (sampler, func() error, error)) func() (record.Check, error) {
		return func() (record.Check, error) {
			if _, err := g.count(n); err != nil {
				return record.Check{}, err
			}
			run, end, err := prepare(loud, tries)
			if err != nil {
				return record.Check{}, err
			}
			_, _, err = run()
			if err := errlist.Join(err, closed(end)); err != nil {
				return record.Check{}, err
			}
			k, err := g.count(n)
			return exact(max(k, tries)-min(k, tries), tries), err
		}
	}
	for _, w := range []struct {
		name    string
		prepare func(l launch, n int) (sampler, func() error, error)
		most    int
	}{
		{"stream", func(l launch, n int) (sampler, func() error, error) { return g.dev.sequence(inStream, n, l) }, 2000},
		{"round_trip", g.dev.trips, 200},
		{"event_pair", func(l launch, n int) (sampler, func() error, error) { return pairs(g, l, n) }, 1},
		{"captured", func(l launch, n int) (sampler, func() error, error) { return g.dev.sequence(captured, n, l) }, 2000},
	} {
		p := point{prepare: func(n int) (sampler, func() error, error) {
			return w.prepare(quiet, n)
		}, check: counted(w.prepare), most: w.most}
		p.Bench = w.name
		if _, err := g.measure(p); err != nil {
			return err
		}
	}
	return persistentRound(g)
}

// pairs makes a sampler of two events around one launch, n times over.
func pairs(g *GPU, l launch, n int) (sampler, func() error, error) {
	one, end, err := g.dev.sequence(inStream, 1, l)
	return func() (device, host float64, err error) {
		for range n {
			d, h, err := one()
			if err != nil {
				return 0, 0, err
			}
			device, host = device+d, host+h
		}
		return device, host, nil
	}, end, err
}

// persistentRound times the barrier over a grid that stays.
func persistentRound(g *GPU) error {
	const elements = 4096
	r, err := newPersistent(g, elements)
	if err != nil {
		return err
	}
	if r.grid, err = r.most(); err != nil {
		return err
	}
	p := r.point(1000)
	p.Bench = "persistent"
	p.Bytes = 0 // the elements are few: it is the round that takes the time
	_, err = g.measure(p)
	return err
}
