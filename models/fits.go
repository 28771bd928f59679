package models

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph"
)

// Fits refuses weights of an architecture that the file's match: does not name:
// their tensors may have the names of its own and mean something else. A file
// without match: takes any.
func (f *File) Fits(w Weights) error {
	want := f.match.hf
	if w.Dialect() == "gguf" {
		want = f.match.gguf
	}
	found := architectures(w)
	if len(want) == 0 || len(found) == 0 || slices.ContainsFunc(found, func(a string) bool { return named(w, a, want) }) {
		return nil
	}
	return fmt.Errorf("%s is for the architecture %s, but %s is %s; name a file for that, or add %s to match: in a "+
		"copy of this one",
		f.path, strings.Join(want, ", "), w.Path(), strings.Join(found, ", "), found[0])
}

// unreadBias refuses a model whose weights have a bias beside a matrix that the
// graph reads, when the graph does not read the bias: the results would be wrong
// without a sign of it. Names under ignore: are passed over.
func (f *File) unreadBias(g *graph.Graph, w Weights) error {
	if w == nil || f.block {
		return nil
	}
	read := map[string]bool{}
	for _, v := range g.Weights {
		for _, t := range v.Load.Tensors {
			read[t] = true
		}
	}
	var lost []string
	for _, name := range w.Names() {
		stem, ok := strings.CutSuffix(name, ".bias")
		if ok && !read[name] && read[stem+".weight"] && !f.ignores(name) {
			lost = append(lost, name)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s has %s beside a weight that is read (%d in all), which the file does not read: results "+
		"would be wrong; "+
		"add the bias to the file, or name it under ignore:", f.path, w.Path(), lost[0], len(lost))
}

// ignores says whether a tensor's name matches one under ignore:.
func (f *File) ignores(name string) bool {
	return slices.ContainsFunc(f.ignore, func(pattern string) bool {
		text := strings.ReplaceAll(regexp.QuoteMeta(strings.ReplaceAll(pattern, "$i", "*")), `\*`, ".*")
		ok, err := regexp.MatchString("^"+text+"$", name)
		return ok && err == nil
	})
}
