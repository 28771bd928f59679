package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/report"
)

// begun is when the program began.
var begun = time.Now()

// times are how long the parts of opening a model took, one after another, for --verbose.
type times struct {
	parts []string
	last  time.Time
}

// startTimes begins with the time since the program did.
func startTimes() times { return times{[]string{took("until then", begun)}, time.Now()} }

// mark ends a part.
func (t *times) mark(name string) {
	t.parts = append(t.parts, took(name, t.last))
	t.last = time.Now()
}

// beside notes a part that ran beside others and took so long.
func (t *times) beside(name string, d time.Duration) {
	t.parts = append(t.parts, fmt.Sprintf("(%s %.0f ms)", name, report.MS(d)))
}

func (t times) String() string { return strings.Join(t.parts, ", ") }

func took(name string, since time.Time) string {
	return fmt.Sprintf("%s %.0f ms", name, report.MS(time.Since(since)))
}

// loadTimesText says how long parts of loading took.
func loadTimesText(t engine.LoadTimes) string {
	var parts []string
	for _, p := range []struct {
		name string
		d    time.Duration
	}{
		{"kernels chosen in", t.Planning}, {"weights in", t.Loading}, {"allocating", t.Allocating},
		{"waiting for packing", t.Waiting}, {"copying", t.Copying}, {"giving pages back", t.Dropping},
		{"packing and converting", t.Making},
	} {
		parts = append(parts, fmt.Sprintf("%s %.0f ms", p.name, report.MS(p.d)))
	}
	return strings.Join(parts, ", ")
}
