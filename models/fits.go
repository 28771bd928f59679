package models

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/hfclass"
	"github.com/greta-project/greta/ops"
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

// knownNames are what files say of weights, whether a graph comes to need it or not.
type knownNames struct {
	tensors map[string]bool // experts' numbers are #
	keys    map[string]bool // of the metadata
}

// add takes the names that a file has for a block.
func (k knownNames) add(s *scope) {
	src := s.o.Weights
	if src == nil {
		return
	}
	dialect := src.Dialect()
	for i := range s.f.weights {
		for _, p := range s.named(&s.f.weights[i]).sources[dialect] {
			k.tensors[strings.ReplaceAll(strings.ReplaceAll(p.name, "$e", "#"), "$i", strconv.Itoa(max(0, s.block)))] = true
		}
	}
	for i := range s.f.params {
		keys := s.f.params[i].hf
		if dialect == "gguf" {
			keys = s.f.params[i].gguf
		}
		for _, key := range keys {
			k.keys[s.key(strings.TrimSuffix(s.spelled(key), ".$i"))] = true
		}
	}
}

// number finds numbers that are a part of a name of their own.
var number = regexp.MustCompile(`(^|\.)\d+(\.|$)`)

// hasTensor says whether a file has a name for a tensor.
func (k knownNames) hasTensor(name string) bool {
	if k.tensors[name] {
		return true
	}
	in := number.FindAllStringIndex(name, -1)
	if len(in) == 0 {
		return false
	}
	last := in[len(in)-1]
	return k.tensors[name[:last[0]]+number.ReplaceAllString(name[last[0]:last[1]], "$1#$2")+name[last[1]:]]
}

// layer divides the name of a tensor that belongs to a layer: what comes before the layer's number, and
// the number.
func layer(name string) (stem, index string, ok bool) {
	in := number.FindStringIndex(name)
	if in == nil {
		return "", "", false
	}
	return name[:in[0]], strings.Trim(name[in[0]:in[1]], "."), true
}

// computed ends what stands behind the number of a layer in names of tensors that every program
// computes anew: frequencies of rotations, masks.
var computed = []string{"inv_freq", "masked_bias", "attn.bias", "attention.bias", "attn_rot_embd",
	"attn_rot_embd.weight", "self_attention.bias", "position_ids"}

// Harmless says whether a tensor that a model file does not read changes nothing: what is computed
// anew, and factors by which others round activations.
func Harmless(name string) bool {
	return slices.ContainsFunc(computed, func(end string) bool {
		return name == end || strings.HasSuffix(name, "."+end)
	}) || strings.HasSuffix(name, "_scale") && ofActivations(name)
}

// unread refuses weights that have what the model file does not read of them and what changes the
// results: a bias beside a matrix that is read, a tensor of a layer for which no file has a name, a layer
// behind the last one, a key of the metadata. Names under ignore: are passed over.
func (f *File) unread(b *builder) error {
	w := b.o.Weights
	if w == nil || f.block {
		return nil
	}
	read, layers, stems, last := map[string]bool{}, map[string]bool{}, map[string]int{}, map[string]int{}
	for _, v := range b.g.Weights {
		for _, t := range v.Load.Tensors {
			read[t] = true
			if stem, index, ok := layer(t); ok && !layers[stem+"."+index] {
				layers[stem+"."+index] = true
				stems[stem]++
				n, _ := strconv.Atoi(index)
				last[stem] = max(last[stem], n)
			}
		}
	}
	scale := map[string]bool{}
	for _, l := range b.scales {
		for _, t := range l.Tensors {
			scale[t] = true
		}
	}
	var biases, others, beyond, added []string
	for _, name := range w.Names() {
		if read[name] || scale[name] || Harmless(name) || f.ignores(name) {
			continue
		}
		stem, index, inLayer := layer(name)
		if of, ok := strings.CutSuffix(name, ".bias"); ok && (read[of+".weight"] || b.isTied(of)) {
			biases = append(biases, name)
			continue
		}
		switch {
		case inLayer && len(layers) == 0 && len(b.o.Set) == 0 && !empty(w, name) && index == "0":
			beyond = append(beyond, name)
		case strings.HasSuffix(name, "final_logits_bias") && !empty(w, name):
			added = append(added, name)
		case !inLayer || stems[stem] == 0 || b.known.hasTensor(name) || empty(w, name) || strings.Contains(name, ".nextn."):
		case layers[stem+"."+index]:
			others = append(others, name)
		case len(b.o.Set) == 0 && !ahead(w):
			if n, err := strconv.Atoi(index); err != nil || n > last[stem] { // the file itself passes over one before
				beyond = append(beyond, name)
			}
		}
	}
	if w.Dialect() == "hf" {
		if err := cmp.Or(denied(w, read), headless(w, b.g)); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	refuse := func(names []string, what string) error {
		return fmt.Errorf("%s: %s has %s%s (%d in all), which the file does not read: results would be wrong; "+
			"add what it is for to the file, or name it under ignore:", f.path, w.Path(), names[0], what, len(names))
	}
	switch {
	case len(biases) > 0:
		return refuse(biases, " beside a weight that is read")
	case len(added) > 0:
		return refuse(added, ", which is added to logits")
	case len(others) > 0:
		return refuse(others, " in a layer that is read")
	case len(beyond) > 0:
		there := 0
		if stem, _, _ := layer(beyond[0]); stems[stem] > 0 {
			there = last[stem] + 1
		}
		return refuse(beyond, fmt.Sprintf(", of a layer behind the %d that the metadata say there are", there))
	}
	return f.unreadMeta(b)
}

// isTied says whether the file has a name for a weight that other weights stand in for, and none for its bias.
func (b *builder) isTied(of string) bool {
	_, _, there := b.o.Weights.Lookup(of + ".weight")
	return !there && b.known.hasTensor(of+".weight") && !b.known.hasTensor(of+".bias")
}

// causal says whether an attention of a graph sees nothing behind its own position.
func causal(g *graph.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool {
		a, ok := n.Attr.(*ops.AttentionAttr)
		return ok && !a.Both
	})
}

// empty says whether a tensor has no elements: a mark.
func empty(w Weights, name string) bool {
	_, shape, ok := w.Lookup(name)
	return ok && shape.Elems() == 0
}

// ahead says whether the weights have layers that guess tokens ahead, which stand behind the others
// under their names.
func ahead(w Weights) bool {
	for _, key := range []string{"num_nextn_predict_layers", "num_mtp_layers", archKey(w, "nextn_predict_layers")} {
		if n, ok := w.Meta(key); ok && n != int64(0) {
			return true
		}
	}
	return false
}

// archKey is a key of GGUF's metadata behind the architecture.
func archKey(w Weights, key string) string {
	arch, _ := w.Meta("general.architecture")
	name, _ := arch.(string)
	return name + "." + key
}

// changing are keys of GGUF's metadata, behind the architecture, by which a model computes something else, with
// the values at which it does not.
var changing = []struct {
	key     string
	neutral []any
}{
	{"attention.causal", []any{true}},
	{"attention.clamp_kqv", []any{0.0}},
	{"attention.max_alibi_bias", []any{0.0}},
	{"attention.scale", []any{0.0}},
	{"attn_logit_softcapping", []any{0.0}},
	{"final_logit_softcapping", []any{0.0}},
	{"use_parallel_residual", []any{false}},
	{"logit_scale", []any{0.0, 1.0}},
	{"residual_scale", []any{0.0, 1.0}},
	{"embedding_scale", []any{0.0, 1.0}},
	{"attention.output_scale", []any{0.0, 1.0}},
	{"expert_weights_scale", []any{0.0, 1.0}},
	{"expert_group_count", []any{0.0, 1.0}},
}

// unreadMeta refuses metadata that ask for what the file does not do.
func (f *File) unreadMeta(b *builder) error {
	w, known := b.o.Weights, b.known.keys
	refuse := func(key string, v any, why string) error {
		return fmt.Errorf("%s: %s of %s is %v, %s", f.path, key, w.Path(), v, why)
	}
	contexts := []string{archKey(w, "context_length")}
	if w.Dialect() == "hf" {
		contexts = []string{"max_position_embeddings"}
	}
	for _, key := range contexts {
		if n, _ := w.Meta(key); n == int64(0) && !b.o.unread.Has(key) {
			return refuse(key, n, "so that no token would have a place: the metadata are damaged")
		}
	}
	if w.Dialect() != "gguf" {
		for _, key := range []string{hfclass.Inside + "is_causal", "is_causal"} {
			if v, ok := w.Meta(key); ok && v != true && !known["is_causal"] && !b.o.unread.Has(key) && causal(b.g) {
				return refuse(key, v, "which the file does not read: results would be wrong; add it to a copy of the file")
			}
		}
		if b.o.unread.Has(newTurn) {
			return cmp.Or(formed(w, b.o.unread), listed(w, b.o.unread))
		}
		return cmp.Or(formed(w, b.o.unread), listed(w, b.o.unread), sameTurns(w))
	}
	for _, c := range changing {
		key := archKey(w, c.key)
		v, ok := w.Meta(key)
		if n, is := v.(int64); is {
			v = float64(n)
		}
		if c.key == "attention.causal" && !causal(b.g) {
			continue
		}
		if ok && !known[key] && !slices.Contains(c.neutral, v) {
			return refuse(key, v, "which the file does not read: results would be wrong; add it to a copy of the file")
		}
	}
	scale, length := archKey(w, "attention.temperature_scale"), archKey(w, "attention.temperature_length")
	if v, _ := w.Meta(scale); v != nil && v != 0.0 && !known[scale] {
		if n, ok := w.Meta(length); !ok || n == int64(0) {
			return refuse(scale, v, "which the file does not read: results would be wrong; add it to a copy of the file")
		} else if n, ok := n.(int64); ok && int64(b.o.C) > n {
			return refuse(scale, v, fmt.Sprintf("which the file does not read: results behind the %d tokens of %s would be "+
				"wrong; choose a shorter context", n, length))
		}
	}
	keys, values := archKey(w, "attention.key_length"), archKey(w, "attention.value_length")
	k, _ := w.Meta(keys)
	if v, ok := w.Meta(values); ok && k != nil && v != k && !known[values] && fmt.Sprint(v) != fmt.Sprint(k) {
		return refuse(values, v, fmt.Sprintf("but %s is %v: the file reads heads of one width", keys, k))
	}
	return nil
}

// Ignored lists what config.json says that built-in files speak of and that transformers' class for it does not read.
func Ignored(w Weights) []string {
	source, ok := w.(interface{ Keys() []string })
	if !ok || w.Dialect() != "hf" {
		return nil
	}
	unread := hfclass.UnreadOf(w.Meta)
	return slices.DeleteFunc(slices.Clone(source.Keys()), func(key string) bool { return !unread.Has(key) })
}

// denied refuses tensors that are read and that transformers' class leaves out, as it has no such part by config.json.
func denied(w Weights, read map[string]bool) error {
	without := hfclass.Without(w.Meta)
	for _, name := range slices.Sorted(maps.Keys(read)) {
		words := strings.Split(name, ".")
		for i, word := range words[:len(words)-1] {
			part := word + "."
			key, no := without[part]
			if !no && i == len(words)-2 {
				part += words[i+1]
				key, no = without[part]
			}
			if !no {
				continue
			}
			why := "its class has none"
			if key != "" {
				why = "its class has one only where config.json asks for it by " + key
			}
			return fmt.Errorf("%s has %s, which would be computed with, and transformers leaves it out: %s; take the "+
				"tensors %s out of the folder, or correct config.json", w.Path(), name, why, strings.TrimSuffix(part, "."))
		}
	}
	return nil
}

// headless refuses a head that is the embedding's matrix for want of one of its own, where config.json says that they
// are two: transformers makes one up, or a part of the folder is missing.
func headless(w Weights, g *graph.Graph) error {
	said := ""
	for _, key := range []string{hfclass.Inside + "tie_word_embeddings", "tie_word_embeddings"} {
		switch v, _ := w.Meta(key); v {
		case true:
			return nil
		case false:
			said = cmp.Or(said, key)
		}
	}
	if said == "" {
		return nil
	}
	embeds, others := map[string]bool{}, map[string]bool{}
	for _, n := range g.Nodes {
		for _, v := range n.In {
			if v == nil || v.Kind != graph.Weight || v.Load == nil || len(v.Load.Tensors) != 1 {
				continue
			}
			if n.Op.Name == "embed" {
				embeds[v.Load.Tensors[0]] = true
			} else {
				others[v.Load.Tensors[0]] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(embeds)) {
		if others[name] {
			return fmt.Errorf("%s of %s is false, and it has no head of its own: %s would be one; get the part of the folder "+
				"that is missing, or set %s to true where the two are one", said, w.Path(), name, said)
		}
	}
	return nil
}

// listed refuses a window of no tokens, and what transformers refuses of a list of one word for each layer whether its
// class reads it or not: other words, and another length.
func listed(w Weights, unread hfclass.Unread) error {
	meta := func(key string) any {
		v, _ := hfclass.Own(w.Meta, key)
		return v
	}
	types, is := meta("layer_types").([]string)
	if unread != nil && !unread.Has("sliding_window") && meta("sliding_window") == int64(0) &&
		(unread.Has("use_sliding_window") || meta("use_sliding_window") == true) &&
		(unread.Has("layer_types") || !is || slices.Contains(types, "sliding_attention")) {
		return fmt.Errorf("sliding_window of %s is 0, by which no token sees any; where there is no window it is null, or "+
			"layer_types has no sliding_attention", w.Path())
	}
	n, whole := meta("num_hidden_layers").(int64)
	for _, key := range []string{"layer_types", "mlp_layer_types"} {
		list, is := meta(key).([]string)
		if !whole || !is { // nor does it look at the second without the first
			break
		}
		if !unread.Has(key) {
			continue
		}
		words := hfclass.Words(key)
		for i, word := range list {
			if !slices.Contains(words, word) {
				return fmt.Errorf("%s of %s[%d] is %s, which no class of transformers knows", key, w.Path(), i, word)
			}
		}
		if len(list) != int(n) {
			return fmt.Errorf("%s of %s has %d elements; num_hidden_layers is %d", key, w.Path(), len(list), n)
		}
	}
	return nil
}

// formed refuses what is no list, or no object, in config.json under a key that is one in any class that has it, as
// transformers does. Of folders that bring a class of their own nothing is known.
func formed(w Weights, unread hfclass.Unread) error {
	lists, objects := hfclass.Forms()
	for _, form := range []struct {
		name string
		keys []string
	}{{"a list", lists}, {"an object", objects}} {
		for _, key := range form.keys {
			v, ok := hfclass.Own(w.Meta, key)
			if unread == nil || unread.Has(key) || !ok || v == nil {
				continue
			}
			if is := reflect.TypeOf(v).Kind() == reflect.Slice; form.name == "an object" || !is {
				return fmt.Errorf("%s of %s is %v: %s is expected", key, w.Path(), v, form.name)
			}
		}
	}
	return nil
}

// ignores says whether a tensor's name matches one under ignore:.
func (f *File) ignores(name string) bool {
	return slices.ContainsFunc(f.ignore, func(pattern string) bool {
		text := strings.ReplaceAll(regexp.QuoteMeta(strings.ReplaceAll(pattern, "$i", "*")), `\*`, ".*")
		ok, err := regexp.MatchString("^"+text+"$", name)
		return ok && err == nil
	})
}
