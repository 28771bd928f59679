package models

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/tensor"
)

// pattern is one alternative of a weight's name in a source: $i stands for the
// number of the block, $e for that of the expert, $(first) for the parameter first.
type pattern struct {
	name      string
	add       float64
	transpose bool
}

// alternatives reads "a | b +1 | /c.T" and puts the names into the patterns of
// the file's names:; "/" skips these.
func (r *reader) alternatives(t text, patterns []string) []pattern {
	var all []pattern
	for alt := range strings.SplitSeq(t.string, "|") {
		fields := strings.Fields(alt)
		if len(fields) == 0 {
			r.add(r.fail(t, 0, "a tensor's name is missing in %q", t.string))
			return nil
		}
		p := pattern{name: fields[0]}
		for _, f := range fields[1:] {
			add, err := strconv.ParseFloat(f, 64)
			switch {
			case f == ".T":
				p.transpose = true
			case err == nil && (f[0] == '+' || f[0] == '-') && add-add == 0:
				p.add = add
			default:
				r.add(r.fail(t, strings.Index(t.string, f), "%q behind the name %s: there are +1 (add one) and .T (transpose)", f,
					p.name))
				return nil
			}
		}
		if name, ok := strings.CutSuffix(p.name, ".T"); ok {
			p.name, p.transpose = name, true
		}
		if name, ok := strings.CutPrefix(p.name, "/"); ok {
			p.name = name
			all = append(all, p)
			continue
		}
		if len(patterns) == 0 {
			all = append(all, p)
		}
		for _, outer := range patterns {
			q := p
			q.name = strings.Replace(outer, "*", p.name, 1)
			all = append(all, q)
		}
	}
	return all
}

// inName finds the parameters that a name mentions.
var inName = regexp.MustCompile(`\$\((\w*)\)`)

// params are the parameters that a weight's names mention.
func (w *weightDecl) params() (all []string) {
	for _, patterns := range w.sources {
		for _, p := range patterns {
			all = append(all, mentioned(p.name)...)
		}
	}
	return all
}

// params are the parameters that a parameter's keys mention.
func (p *param) params() (all []string) {
	for _, k := range slices.Concat(p.gguf, p.hf) {
		all = append(all, mentioned(k)...)
	}
	return all
}

// mentioned are the parameters that stand in a name as $(NAME).
func mentioned(name string) (all []string) {
	for _, m := range inName.FindAllStringSubmatch(name, -1) {
		all = append(all, m[1])
	}
	return all
}

// named gives the weight with the values of the parameters that its names mention. A name stays as it is where one is
// neither a whole number nor a word, and no tensor is called so then.
func (s *scope) named(w *weightDecl) *weightDecl {
	if s.o.Weights == nil || len(w.params()) == 0 {
		return w
	}
	named, dialect := *w, s.o.Weights.Dialect()
	patterns := slices.Clone(w.sources[dialect])
	for i := range patterns {
		patterns[i].name = inName.ReplaceAllStringFunc(patterns[i].name, func(at string) string {
			v, _ := s.lookup(at[2 : len(at)-1])
			switch v := v.(type) {
			case float64:
				if v >= 0 && v < maxSize && v == float64(int(v)) {
					return strconv.Itoa(int(v))
				}
			case string:
				return v
			}
			return at
		})
	}
	named.sources = map[string][]pattern{dialect: patterns}
	return &named
}

func (p pattern) stacked() bool { return strings.Contains(p.name, "$e") }

func (p pattern) at(block, expert int) string {
	s := strings.ReplaceAll(p.name, "$i", strconv.Itoa(block))
	return strings.ReplaceAll(s, "$e", strconv.Itoa(expert))
}

// dimension is the place in the weight's shape that is the name alone, or -1.
func (w *weightDecl) dimension(name string) int {
	for i, e := range w.shape {
		if n, ok := e.tree.(lang.Name); ok && n.Name == name {
			return i
		}
	}
	return -1
}

// find gives the first alternative that the source has. An optional tensor without elements, such as those of no shared
// experts, is as good as none.
func (w *weightDecl) find(src Weights, block int) (pattern, bool) {
	for _, p := range w.sources[src.Dialect()] {
		if _, shape, ok := src.Lookup(p.at(block, 0)); ok && !(w.optional && shape.Elems() == 0) {
			return p, true
		}
	}
	return pattern{}, false
}

// ggufName is what GGUF files call the weight, "" where the model file does not say.
func (w *weightDecl) ggufName(block int) string {
	if all := w.sources["gguf"]; len(all) > 0 {
		return all[0].at(max(0, block), 0)
	}
	return ""
}

// names says whether a weight of the file itself, not of its blocks, has a name in GGUF files.
func (f *File) names(tensor string) bool {
	return slices.ContainsFunc(f.weights, func(w weightDecl) bool { return w.ggufName(0) == tensor })
}

// present says whether the weight will be there. Synthetic weights have all but
// the optional ones.
func (w *weightDecl) present(src Weights, block int) bool {
	if w.numbers != nil {
		return true
	}
	if src == nil {
		return !w.optional
	}
	_, ok := w.find(src, block)
	return ok
}

// sourceSize gives the size of the named dimension as the source has it.
func (w *weightDecl) sourceSize(src Weights, block int, name string) (int, bool) {
	p, ok := w.find(src, block)
	if !ok {
		return 0, false
	}
	_, shape, _ := src.Lookup(p.at(block, 0))
	k := w.dimension(name)
	if p.stacked() {
		if k == 0 {
			return experts(src, p, block), true
		}
		k--
	}
	if len(shape) > len(w.shape) && !p.transpose {
		shape = squeezed(shape)
	}
	if k < 0 || len(shape) != len(w.shape) && !p.stacked() || k >= len(shape) {
		return 0, false
	}
	return p.orient(shape)[k], true
}

// experts counts the tensors that a stack is made of.
func experts(src Weights, p pattern, block int) int {
	n := 1
	for ; n < maxNodes; n++ {
		if _, _, ok := src.Lookup(p.at(block, n)); !ok {
			break
		}
	}
	return n
}

// orient turns a source's shape into ours.
func (p pattern) orient(shape tensor.Shape) tensor.Shape {
	n := len(shape)
	if !p.transpose || n < 2 {
		return shape
	}
	t := append(tensor.Shape{}, shape...)
	t[n-2], t[n-1] = t[n-1], t[n-2]
	return t
}

// missing says which tensors were looked for, and the nearest that there is.
func (w *weightDecl) missing(src Weights, block int) string {
	alts := w.sources[src.Dialect()]
	if len(alts) == 0 {
		return fmt.Sprintf("weight %s has no %s: name, and %s needs one", w.name.string, src.Dialect(), src.Path())
	}
	var tried []string
	for _, p := range alts {
		tried = append(tried, p.at(block, 0))
	}
	msg := fmt.Sprintf("weight %s: %s has no tensor %s", w.name.string, src.Path(), strings.Join(tried, " or "))
	for _, t := range tried {
		if near := lang.Nearest(t, src.Names()); near != "" {
			return msg + "; the nearest is " + near
		}
	}
	return msg
}
