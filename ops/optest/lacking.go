package optest

import (
	_ "embed"
	"path"
	"slices"
	"strings"
)

//go:embed lacking.txt
var lackingText string

// lacked gives the names of cases, or patterns of path.Match, that lacking.txt has for a backend.
func lacked(backend string) []string {
	var list []string
	for line := range strings.Lines(lackingText) {
		if b, n, ok := strings.Cut(strings.TrimSpace(line), " "); ok && b == backend {
			list = append(list, n)
		}
	}
	return list
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil || pattern == name
}

// Known says whether a case is one of those that a backend is known to have no kernel for (lacking.txt): the list may
// only become shorter, as TestTakes of the backends holds it against what they lack.
func Known(backend, name string) bool {
	return slices.ContainsFunc(lacked(backend), func(p string) bool { return matches(p, name) })
}

// Differs compares what a backend lacks with what it is known to lack: cases that it lacks and the list does not
// have, and lines of the list for which it lacks nothing.
func Differs(backend string, names []string) (unknown, stale []string) {
	for _, n := range names {
		if !Known(backend, n) {
			unknown = append(unknown, n)
		}
	}
	for _, p := range lacked(backend) {
		if !slices.ContainsFunc(names, func(n string) bool { return matches(p, n) }) {
			stale = append(stale, p)
		}
	}
	return unknown, stale
}
