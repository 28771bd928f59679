package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/lora"
	"github.com/greta-project/greta/weights/safetensors"
)

// layerNumber is the first number of a tensor's name.
var layerNumber = regexp.MustCompile(`\.(\d+)\.`)

// Adapter gives an adapter with Hugging Face's names those of a GGUF base, with the rows of B in
// the order that the base has W's rows in. An adapter that speaks the base's dialect is handed back
// with the names of a language model that stands alone, which such a base has in a model of several modalities too.
func Adapter(a *lora.Adapter, base weights.Source) (*lora.Adapter, error) {
	switch {
	case a.Dialect == "hf" && base.Dialect() == "hf":
		return lifted(a, base), nil
	case a.Dialect != "hf" || base.Dialect() != "gguf":
		return a, nil
	}
	if len(a.Copies) > 0 {
		return nil, fmt.Errorf("adapter %s has %s as a whole, which cannot be compared with what %s has in its place; merge "+
			"it with PEFT first, or take the model's folder", a.Path, a.Copies[0].Name, base.Path())
	}
	arch, _ := metaString(base, "general.architecture")
	of := func(key string) int {
		n, _ := metaInt(base, arch+"."+key)
		return int(n)
	}
	h := hfPlan{heads: of("attention.head_count"), kvHeads: of("attention.head_count_kv"),
		width: of("attention.key_length")}
	if h.kvHeads == 0 {
		h.kvHeads = h.heads
	}
	if h.width == 0 && h.heads > 0 {
		h.width = of("embedding_length") / h.heads
	}
	out := *a
	out.Dialect, out.Arch, out.Pairs = "gguf", arch, slices.Clone(a.Pairs)
	for i := range out.Pairs {
		out.Pairs[i].Name = safetensors.Lifted(out.Pairs[i].Name)
		if err := h.rename(&out.Pairs[i], arch); err != nil {
			return nil, fmt.Errorf("adapter %s for %s: %w", a.Path, base.Path(), err)
		}
	}
	sorting.Sort(out.Pairs, func(x, y lora.Pair) int { return strings.Compare(x.Name, y.Name) })
	return &out, nil
}

// lifted names the pairs whose tensors a base has under the names of a language model alone.
func lifted(a *lora.Adapter, base weights.Source) *lora.Adapter {
	out := *a
	out.Pairs = slices.Clone(a.Pairs)
	for i := range out.Pairs {
		out.Pairs[i].Name = liftedOf(out.Pairs[i].Name, base)
	}
	out.Copies = slices.Clone(a.Copies)
	for i := range out.Copies {
		out.Copies[i].Name = liftedOf(out.Copies[i].Name, base)
	}
	sorting.Sort(out.Pairs, func(x, y lora.Pair) int { return strings.Compare(x.Name, y.Name) })
	return &out
}

func liftedOf(name string, base weights.Source) string {
	if _, _, ok := base.Lookup(name); ok {
		return name
	}
	alone := safetensors.Lifted(name)
	if _, _, ok := base.Lookup(alone); ok {
		return alone
	}
	return name
}

// rename finds a pair's place in GGUF and brings its rows into that order.
func (h *hfPlan) rename(p *lora.Pair, arch string) error {
	layer, general := "", p.Name
	if at := layerNumber.FindStringSubmatchIndex(p.Name); at != nil {
		layer = p.Name[at[2]:at[3]]
		general = p.Name[:at[2]] + "%d" + p.Name[at[3]:]
	}
	var m *mapping
	for _, f := range families {
		for i := range f.weights {
			if f.arch == arch && f.weights[i].hf == general && m == nil {
				m, h.family = &f.weights[i], f
			}
		}
	}
	if m == nil || m.role == expertRole || m.role == normRole {
		return fmt.Errorf("tensor %q has no place in a GGUF file of architecture %q that an adapter could change; "+
			"convert the adapter, or take the model's folder", p.Name, arch)
	}
	it := item{shape: p.Shape()}
	if m.role != plainRole && (h.heads < 1 || h.width < 2 || h.width%2 != 0) {
		return fmt.Errorf("the base has %d heads of width %d: the order of %q cannot be found", h.heads, h.width, p.Name)
	}
	if err := h.transform(&it, m.role); err != nil {
		return fmt.Errorf("tensor %q: %w", p.Name, err)
	}
	p.Name = strings.Replace(m.gguf, "%d", layer, 1)
	if it.perm == nil {
		return nil
	}
	b := make([]float32, len(p.B))
	for i := range p.Out {
		copy(b[i*p.Rank:(i+1)*p.Rank], p.B[it.perm(i)*p.Rank:])
	}
	p.B = b
	return nil
}
