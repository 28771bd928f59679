package optest

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed lacking.txt
var lackingText string

// Known says whether a case is one of those that a backend is known to have no kernel for (lacking.txt): the list may
// only become shorter, as TestTakes of the backends holds it against what they lack.
func Known(backend, name string) bool {
	for line := range strings.Lines(lackingText) {
		if b, n, ok := strings.Cut(strings.TrimSpace(line), " "); ok && b == backend && n == name {
			return true
		}
	}
	return false
}

// Differs compares what a backend lacks with what it is known to lack: cases that it lacks and the list does not
// have, and such that the list has and it does not lack.
func Differs(backend string, names []string) (unknown, stale []string) {
	for _, n := range names {
		if !Known(backend, n) {
			unknown = append(unknown, n)
		}
	}
	for line := range strings.Lines(lackingText) {
		if b, n, ok := strings.Cut(strings.TrimSpace(line), " "); ok && b == backend && !slices.Contains(names, n) {
			stale = append(stale, n)
		}
	}
	return unknown, stale
}
