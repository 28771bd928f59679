package models

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/ops"
)

// Draft is a first model file for weights of a family that no file is for: the built-in file that reads most of them,
// its choices decided as the weights and their configuration decide them.
type Draft struct {
	Files    []DraftFile // the model's, then its blocks'
	From     string      // the built-in file, and as which family it was taken
	Guesses  []string    // what neither the configuration nor a tensor says
	Unplaced []string    // tensors that nothing reads, their layers' numbers as $i
	Unused   []string    // keys of the configuration that nothing reads
}

// DraftFile is one file of a draft.
type DraftFile struct{ Name, Text string }

//go:embed draft/hints.yaml
var draftHints []byte

// hint is a line of draft/hints.yaml.
type hint struct {
	Tensor, Without string
	Key, Is         string
	Lacks           []string
	Set             map[string]string
	Says            string
}

var hintFile = func() (h struct {
	Hints []hint
	Idle  []string
}) {
	if err := yaml.Unmarshal(draftHints, &h); err != nil {
		panic("draft/hints.yaml: " + err.Error())
	}
	return h
}()

// draftSource is a built-in file as one of the families that it tells apart.
type draftSource struct {
	f    *File
	word string // of its families; "": none
	set  map[string]string
	cost int // tensors that it does not read, and mistakes
	kin  int // letters that the family's name shares with its beginning
}

func (d *draftSource) String() string {
	if d.word == "" {
		return d.f.path
	}
	return fmt.Sprintf("%s as %s", d.f.path, d.word)
}

// options are those that drafts are tried with.
func (d *draftSource) options(w Weights) Options {
	o := Options{Weights: w, Set: d.set, S: 1, C: 64}
	o.defaults()
	return o
}

// NewDraft writes a first model file of that name. Families of without, by config.json's model_type or an architecture,
// are taken for unknown.
func NewDraft(w Weights, name string, without ...string) (*Draft, error) {
	if w.Dialect() != "hf" {
		return nil, fmt.Errorf("%s: a first file is made from config.json and safetensors; this speaks %s", w.Path(),
			w.Dialect())
	}
	if !lang.IsName(name) {
		return nil, fmt.Errorf("%q cannot be a model's name: letters, digits and _", name)
	}
	if len(w.Names()) == 0 {
		return nil, fmt.Errorf("%s: no tensors: their names and shapes are what a first file is made from", w.Path())
	}
	wants, says := hinted(w)
	var best *draftSource
	for _, stem := range Names() {
		all, err := draftSources(stem, w, wants, without)
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			d.try(w)
			if best == nil || d.cost < best.cost || d.cost == best.cost && d.kin > best.kin {
				best = d
			}
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s: there is no built-in file to begin with", w.Path())
	}
	d := &drafting{Draft: &Draft{From: best.String()}, w: w, name: name, from: best}
	for _, h := range says {
		if h.param == "" {
			d.Guesses = append(d.Guesses, h.why)
		} else if best.f.param(h.param) != nil {
			d.Guesses = append(d.Guesses, fmt.Sprintf("%s: %s, because %s", h.param, h.value, h.why))
		}
	}
	if err := d.write(); err != nil {
		return nil, err
	}
	return d.Draft, nil
}

// wanted is what a hint sets; without a parameter it is a question.
type wanted struct{ param, value, why string }

// hinted gives what the hints that hold set.
func hinted(w Weights) (map[string]string, []wanted) {
	set := map[string]string{}
	var says []wanted
	names := w.Names()
	for _, h := range hintFile.Hints {
		matches := func(pattern string) bool {
			re := regexp.MustCompile(pattern)
			return slices.ContainsFunc(names, re.MatchString)
		}
		holds := (h.Tensor == "" || matches(h.Tensor)) && (h.Without == "" || !matches(h.Without))
		if h.Key != "" && holds {
			v, ok := w.Meta(h.Key)
			holds = ok && v != nil && (h.Is == "" || fmt.Sprint(v) == h.Is)
		}
		for _, k := range h.Lacks {
			_, ok := w.Meta(k)
			holds = holds && !ok
		}
		if !holds {
			continue
		}
		if len(h.Set) == 0 {
			says = append(says, wanted{why: h.Says})
		}
		for _, p := range slices.Sorted(maps.Keys(h.Set)) {
			if _, ok := set[p]; !ok {
				set[p] = h.Set[p]
				says = append(says, wanted{p, h.Set[p], h.Says})
			}
		}
	}
	return set, says
}

func plainName(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", "ForCausalLM", "").Replace(s))
}

// draftSources gives a built-in model file once for each family that its expressions tell apart, and once for none.
func draftSources(stem string, w Weights, wants map[string]string, without []string) ([]*draftSource, error) {
	hidden := func(s string) bool {
		return slices.ContainsFunc(without, func(o string) bool { return plainName(o) == plainName(s) })
	}
	typ := kind(w)
	f, err := ownBuiltin(stem) // which is completed below
	if err != nil || f.block || f.task != "" {
		return nil, err
	}
	var arch *param
	for i := range f.params {
		if slices.Contains(f.params[i].hf, "model_type") {
			arch = &f.params[i]
		}
	}
	for _, b := range append(f.blocks(), f) {
		b.complete(w)
	}
	words := []string{""}
	if arch != nil {
		words = append(words, f.compared(arch.name.string)...)
	} else if slices.ContainsFunc(f.match.hf, hidden) {
		return nil, nil
	}
	var all []*draftSource
	for _, word := range words {
		if hidden(word) || strings.Contains(word, "-") { // GGUF's names
			continue
		}
		d := &draftSource{f: f, word: word, set: map[string]string{}}
		for p, v := range wants {
			if f.param(p) != nil {
				d.set[p] = v
			}
		}
		if arch != nil {
			d.set[arch.name.string] = "'" + word + "'"
		}
		near := word
		if arch == nil {
			near = strings.Split(stem, "_")[0]
		}
		a, b := plainName(near), plainName(typ)
		for d.kin < len(a) && d.kin < len(b) && a[d.kin] == b[d.kin] {
			d.kin++
		}
		if d.kin < 3 {
			d.kin = 0
		}
		if word == typ && word != "" {
			d.kin = 1000
		}
		all = append(all, d)
	}
	return all, nil
}

// compared gives the words that the file's expressions compare a parameter with.
func (f *File) compared(name string) []string {
	found := map[string]bool{}
	look := func(e lang.Expr) {
		visit(e, func(e lang.Expr) {
			b, ok := e.(lang.Binary)
			if !ok {
				return
			}
			if n, ok := b.X.(lang.Name); !ok || n.Name != name {
				return
			}
			list := []lang.Expr{b.Y}
			if l, ok := b.Y.(lang.List); ok {
				list = l.Elems
			}
			for _, x := range list {
				if s, ok := x.(lang.Str); ok {
					found[s.V] = true
				}
			}
		})
	}
	for _, p := range f.params {
		if p.is != nil {
			look(p.is.tree)
		}
	}
	for i := range f.body {
		look(f.body[i].rhs.tree)
	}
	return slices.Sorted(maps.Keys(found))
}

// try counts what the file does not read of the weights, and its mistakes with them.
func (d *draftSource) try(w Weights) {
	read := map[string]bool{}
	o := d.options(w)
	o.Seen = func(l *graph.Load, _ string) {
		for _, t := range l.Tensors {
			read[t] = true
		}
	}
	_, err := d.f.Build(o)
	if list, ok := err.(Errors); ok {
		d.cost = 3 * len(list)
	} else if err != nil {
		d.cost = 1
	}
	for _, t := range w.Names() {
		if !read[t] && !idleTensor(t) {
			d.cost++
		}
	}
}

// idleTensor says whether a tensor holds what is computed anew anywhere.
func idleTensor(name string) bool {
	return strings.HasSuffix(name, "rotary_emb.inv_freq") || strings.HasSuffix(name, "masked_bias")
}

var layerNumber = regexp.MustCompile(`^(.*?\.)(\d+)(\..*)$`)

// complete gives the file's weights the names that these weights have for what it knows under others: another word
// before the layers, another outermost one, and biases beside what is read.
func (f *File) complete(w Weights) {
	names, known := map[string]bool{}, map[string]bool{}
	for i := range f.weights {
		for _, p := range f.weights[i].sources["hf"] {
			known[p.name] = true
		}
	}
	counts, layers := map[string]int{}, ""
	for _, n := range w.Names() {
		names[n] = true
		if m := layerNumber.FindStringSubmatch(n); m != nil {
			if counts[m[1]]++; counts[m[1]] > counts[layers] {
				layers = m[1]
			}
		}
	}
	add := func(d *weightDecl, p pattern) {
		if !slices.Contains(d.sources["hf"], p) {
			d.sources["hf"] = append(d.sources["hf"], p)
		}
	}
	for i := range f.weights {
		d := &f.weights[i]
		for _, p := range slices.Clone(d.sources["hf"]) {
			if _, rest, ok := strings.Cut(p.name, "$i"); ok {
				p.name = layers + "$i" + rest
				if layers != "" {
					add(d, p)
				}
				continue
			}
			parts := strings.Split(p.name, ".")
			if len(parts) < 2 {
				continue
			}
			end := "." + strings.Join(parts[len(parts)-2:], ".")
			for n := range names {
				// What the file knows by its whole name is that.
				if strings.HasSuffix(n, end) && !known[n] && !layerNumber.MatchString(n) {
					p.name = n
					add(d, p)
				}
			}
		}
	}
	for i := range f.body {
		if f.body[i].repeat != nil {
			continue
		}
		calls(f.body[i].rhs.tree, func(c lang.Call) {
			op := ops.Table.Lookup(c.Func)
			if op == nil || len(c.Args) < 3 || op != ops.Linear && op != ops.LayerNorm {
				return
			}
			matrix, is := c.Args[1].(lang.Name)
			bias, isToo := c.Args[2].(lang.Name)
			if !is || !isToo {
				return
			}
			m, b := f.weight(matrix.Name), f.weight(bias.Name)
			if m == nil || b == nil {
				return
			}
			for _, p := range m.sources["hf"] {
				if stem, ok := strings.CutSuffix(p.name, ".weight"); ok {
					add(b, pattern{name: stem + ".bias"})
				}
			}
		})
	}
}

// unplacedTensors lists what the draft's graph does not read, each name once for all layers.
func (d *drafting) unplacedTensors(read map[string]bool) {
	for _, t := range d.w.Names() {
		if read[t] || idleTensor(t) {
			continue
		}
		if m := layerNumber.FindStringSubmatch(t); m != nil {
			t = m[1] + "$i" + m[3]
		}
		if !slices.Contains(d.Unplaced, t) {
			d.Unplaced = append(d.Unplaced, t)
		}
	}
}

// unusedKeys lists what nothing reads of the configuration.
func (d *drafting) unusedKeys() {
	source, ok := d.w.(interface{ Keys() []string })
	if !ok {
		return
	}
	for _, k := range source.Keys() {
		v, has := d.w.Meta(k)
		if !has || v == nil || d.keys[k] || slices.Contains(hintFile.Idle, k) || strings.HasSuffix(k, "_token_id") {
			continue
		}
		d.Unused = append(d.Unused, k)
	}
	slices.Sort(d.Unused)
}

// blockName is what a built-in block is called in the draft.
func (d *drafting) blockName(f *File) string {
	if f == d.from.f {
		return d.name
	}
	if f.path == d.from.f.path { // which has the model and its blocks
		return d.name + "_" + f.name
	}
	return d.name + "_" + f.stem()
}
