// Package lora reads adapters (Hu et al., "LoRA: low-rank adaptation of large language
// models", 2021): for some of a model's matrices W [out, in] a pair A [rank, in] and
// B [out, rank], which make y = x·Wᵀ + scale·(x·Aᵀ)·Bᵀ. Folders of PEFT and GGUF adapters are read.
package lora

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/gguf"
	"github.com/greta-project/greta/weights/quant"
	"github.com/greta-project/greta/weights/safetensors"
)

// Adapter is an open adapter. It holds its matrices; the file is closed.
type Adapter struct {
	Path    string
	Dialect string // "hf" or "gguf": whose names Pairs have
	Base    string // what the file says that it was trained on, "" where it says nothing
	Arch    string // GGUF: general.architecture
	Pairs   []Pair // in order of name
	Copies  []Copy // tensors of the base that the file has beside, as PEFT writes for a changed head
}

// Copy is a tensor that a base must have as it is.
type Copy struct {
	Name string
	Type tensor.Type
	Sum  [sha256.Size]byte // of its bytes
}

// Pair changes one matrix.
type Pair struct {
	Name  string    // the base's tensor
	Rank  int       // rows of A
	In    int       // columns of A
	Out   int       // rows of B
	A     []float32 // [Rank, In]
	B     []float32 // [Out, Rank]
	Scale float32   // alpha/rank, or alpha/√rank where the file says so
}

// Rank is the largest of the pairs'.
func (a *Adapter) Rank() int {
	most := 0
	for i := range a.Pairs {
		most = max(most, a.Pairs[i].Rank)
	}
	return most
}

// Find gives the pair of a tensor, nil where it is not changed.
func (a *Adapter) Find(name string) *Pair {
	i, ok := slices.BinarySearchFunc(a.Pairs, name, func(p Pair, n string) int { return strings.Compare(p.Name, n) })
	if !ok {
		return nil
	}
	return &a.Pairs[i]
}

const (
	configName = "adapter_config.json"
	tensorName = "adapter_model.safetensors"
)

// Open reads a folder of PEFT's, with adapter_config.json and adapter_model.safetensors, or a GGUF adapter.
func Open(path string) (*Adapter, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	var a *Adapter
	if st.IsDir() {
		a, err = openPEFT(path)
	} else {
		a, err = openGGUF(path)
	}
	if err != nil {
		return nil, fmt.Errorf("lora: %s: %w", path, err)
	}
	a.Path = path
	sorting.Sort(a.Pairs, func(x, y Pair) int { return strings.Compare(x.Name, y.Name) })
	return a, nil
}

// peftConfig is what adapter_config.json says, as far as it matters.
type peftConfig struct {
	Type       string   `json:"peft_type"`
	Base       string   `json:"base_model_name_or_path"`
	R          int      `json:"r"`
	Alpha      float64  `json:"lora_alpha"`
	RSLoRA     bool     `json:"use_rslora"`
	DoRA       bool     `json:"use_dora"`
	Transposed bool     `json:"fan_in_fan_out"`
	Bias       string   `json:"bias"`
	Saved      []string `json:"modules_to_save"`
	Ranks      patterns `json:"rank_pattern"`
	Alphas     patterns `json:"alpha_pattern"`
	Begun      any      `json:"init_lora_weights"`
}

// patterns are regular expressions with a number each, in the file's order: of those that match the first counts.
type patterns []pattern

type pattern struct {
	text  string
	value float64
}

// UnmarshalJSON reads an object with its order.
func (p *patterns) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	begin, err := dec.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('{') {
		return fmt.Errorf("rank_pattern or alpha_pattern is %v, an object is expected", begin)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		one := pattern{text: fmt.Sprint(key)}
		if err := dec.Decode(&one.value); err != nil {
			return fmt.Errorf("rank_pattern or alpha_pattern: %q: %w", one.text, err)
		}
		*p = append(*p, one)
	}
	return nil
}

// of gives the number of the first pattern that a module matches, as its end or as a whole; else what holds for all.
func (p patterns) of(module string, all float64) (float64, error) {
	for _, one := range p {
		re, err := regexp.Compile(`^(.*\.)?(` + one.text + `)$`)
		if err != nil {
			return 0, fmt.Errorf("%s: pattern %q: %w", configName, one.text, err)
		}
		if re.MatchString(module) {
			return one.value, nil
		}
	}
	return all, nil
}

// otherKinds are keys of adapter_config.json by which a module computes something else than this package does.
var otherKinds = []string{"alora_invocation_tokens", "use_qalora", "use_bdlora", "layer_replication", "lora_bias",
	"target_parameters", "trainable_token_indices", "arrow_config", "kasa_config", "monteclora_config"}

// refuseOthers refuses a file that says one of them.
func refuseOthers(text []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("%s: %w", configName, err)
	}
	for _, key := range otherKinds {
		if v := string(all[key]); v != "" && v != "null" && v != "false" && v != "[]" && v != "{}" {
			return fmt.Errorf("%s: %s: adapters of this kind are not computed", configName, key)
		}
	}
	return nil
}

// changesBase says whether PEFT begins an adapter by taking from the base what A and B then hold; the file that is
// saved is for what is left of it, unless it was converted, which says true here.
func changesBase(begun any) bool {
	word, _ := begun.(string)
	word = strings.ToLower(word)
	return word == "olora" || word == "loftq" || word == "lora_ga" || strings.HasPrefix(word, "pissa") ||
		strings.HasPrefix(word, "corda")
}

func (c *peftConfig) check() error {
	switch {
	case c.Type != "LORA":
		return fmt.Errorf("%s: peft_type is %q, only LORA is read", configName, c.Type)
	case c.DoRA:
		return fmt.Errorf("%s: use_dora: DoRA's magnitudes are not computed; merge it with PEFT first", configName)
	case c.Transposed:
		return fmt.Errorf("%s: fan_in_fan_out: matrices of this order are not read", configName)
	case c.Bias != "" && c.Bias != "none":
		return fmt.Errorf("%s: bias is %q: changed biases are not read, only \"none\" is", configName, c.Bias)
	case len(c.Saved) > 0:
		return fmt.Errorf("%s: modules_to_save has %q: whole matrices in an adapter are not read; merge it with PEFT first",
			configName, c.Saved[0])
	case changesBase(c.Begun):
		return fmt.Errorf("%s: init_lora_weights is %q: the adapter is for weights that PEFT changed when it began; "+
			"convert it with PEFT (path_initial_model_for_weight_conversion), or merge it there", configName, c.Begun)
	case c.R < 1 && len(c.Ranks) == 0:
		return fmt.Errorf("%s: r is %d, it must be at least 1", configName, c.R)
	}
	return nil
}

// scale finds what a module's product is multiplied by.
func (c *peftConfig) scale(module string, rank int) (float32, error) {
	alpha, err := c.Alphas.of(module, c.Alpha)
	if err != nil {
		return 0, err
	}
	want, err := c.Ranks.of(module, float64(c.R))
	if err != nil {
		return 0, err
	}
	if want != float64(rank) {
		return 0, fmt.Errorf("%s: lora_A has %d rows, %s says a rank of %v", module, rank, configName, want)
	}
	if c.RSLoRA {
		return float32(alpha / math.Sqrt(float64(rank))), nil
	}
	return float32(alpha / float64(rank)), nil
}

func openPEFT(dir string) (*Adapter, error) {
	text, err := plainfile.Read(filepath.Join(dir, configName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("it has no %s: this is no adapter of PEFT's", configName)
	}
	if err != nil {
		return nil, err
	}
	c := peftConfig{R: 8, Alpha: 8} // which PEFT's class has
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", configName, err)
	}
	if err := refuseOthers(text); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	src, err := safetensors.Open(filepath.Join(dir, tensorName))
	if err != nil {
		if old := filepath.Join(dir, "adapter_model.bin"); errors.Is(err, os.ErrNotExist) {
			if _, e := os.Stat(old); e == nil {
				return nil, fmt.Errorf("it has adapter_model.bin, a pickle, which is not read; convert it to safetensors")
			}
		}
		return nil, err
	}
	a := &Adapter{Dialect: "hf", Base: c.Base}
	const above, below = "base_model.model.", ".weight"
	err = a.read(src, ".lora_A"+below, ".lora_B"+below, func(stem string) string {
		return strings.TrimPrefix(stem, above) + below
	}, func(name string, rank int) (float32, error) { return c.scale(strings.TrimSuffix(name, below), rank) })
	return a, errlist.Join(err, src.Close())
}

func openGGUF(path string) (*Adapter, error) {
	src, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	text := func(key string) string {
		v, _ := src.Meta(key)
		s, _ := v.(string)
		return s
	}
	a := &Adapter{Dialect: "gguf", Base: text("general.base_model.0.name"), Arch: text("general.architecture")}
	alpha, ok := src.Meta("adapter.lora.alpha")
	value, isNumber := alpha.(float64)
	switch {
	case text("general.type") != "adapter":
		err = fmt.Errorf("general.type is %q, an adapter has \"adapter\": this is a model, or something else",
			text("general.type"))
	case text("adapter.type") != "lora":
		err = fmt.Errorf("adapter.type is %q, only lora is read", text("adapter.type"))
	case !ok || !isNumber:
		err = errors.New("adapter.lora.alpha is missing, or no number")
	default:
		err = a.read(src, ".lora_a", ".lora_b", func(stem string) string { return stem },
			func(_ string, rank int) (float32, error) { return float32(value / float64(rank)), nil })
	}
	return a, errlist.Join(err, src.Close())
}

// read takes the pairs from a source: each tensor is one's A or one's B by how its name ends.
func (a *Adapter) read(src weights.Source, endA, endB string, base func(stem string) string,
	scale func(name string, rank int) (float32, error)) error {
	for _, name := range src.Names() {
		stem, isA := strings.CutSuffix(name, endA)
		if !isA {
			var isB bool
			if stem, isB = strings.CutSuffix(name, endB); !isB {
				if whole, ok := strings.CutSuffix(name, ".weight"); ok && a.Dialect == "hf" && !strings.Contains(whole, "lora_") {
					if err := a.copied(src, name, base(strings.TrimSuffix(whole, ".base_layer"))); err != nil {
						return err
					}
					continue
				}
				return fmt.Errorf("tensor %q is neither the %s nor the %s of a matrix: adapters of this kind are not read", name,
					endA, endB)
			}
			if _, _, ok := src.Lookup(stem + endA); !ok {
				return fmt.Errorf("tensor %q has no %s beside it", name, endA)
			}
			continue
		}
		p := Pair{Name: base(stem)}
		down, shapeA, err := matrix(src, name)
		if err != nil {
			return err
		}
		up, shapeB, err := matrix(src, stem+endB)
		if err != nil {
			return err
		}
		p.Rank, p.In, p.Out, p.A, p.B = shapeA[0], shapeA[1], shapeB[0], down, up
		if shapeB[1] != p.Rank {
			return fmt.Errorf("%s is %v and %s is %v: the first of the one must be the last of the other, the rank",
				name, shapeA, stem+endB, shapeB)
		}
		if p.Scale, err = scale(p.Name, p.Rank); err != nil {
			return err
		}
		a.Pairs = append(a.Pairs, p)
	}
	if len(a.Pairs) == 0 {
		return errors.New("it has no pairs of matrices")
	}
	return nil
}

// copied notes a tensor of the base's.
func (a *Adapter) copied(src weights.Source, name, base string) error {
	data, err := src.Data(name)
	if err != nil {
		return err
	}
	typ, _, _ := src.Lookup(name)
	a.Copies = append(a.Copies, Copy{base, typ, sha256.Sum256(data)})
	return nil
}

// same refuses a base whose tensor is not what the adapter's file has in its place.
func (c *Copy) same(base weights.Source) error {
	data, err := base.Data(c.Name)
	if err != nil {
		return fmt.Errorf("it has %s as a whole, which is none of the base's", c.Name)
	}
	typ, _, _ := base.Lookup(c.Name)
	if typ != c.Type || sha256.Sum256(data) != c.Sum {
		return fmt.Errorf("it has %s as a whole, in %s, and the base's, in %s, is another: whole matrices in an adapter are "+
			"not read; merge it with PEFT first", c.Name, c.Type, typ)
	}
	return nil
}

// matrix decodes a tensor of two dimensions.
func matrix(src weights.Source, name string) ([]float32, tensor.Shape, error) {
	typ, shape, ok := src.Lookup(name)
	switch {
	case !ok:
		return nil, nil, fmt.Errorf("it has no tensor %q", name)
	case len(shape) != 2 || shape[0] < 1 || shape[1] < 1:
		return nil, nil, fmt.Errorf("tensor %q is %v, it must have two dimensions", name, shape)
	case !quant.Supported(typ):
		return nil, nil, fmt.Errorf("tensor %q is of type %s, which cannot be decoded", name, typ)
	}
	data, err := src.Data(name)
	if err != nil {
		return nil, nil, err
	}
	out := make([]float32, shape.Elems())
	if err := quant.Decode(typ, out, data); err != nil {
		return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	for i, v := range out {
		if v != v || math.IsInf(float64(v), 0) {
			return nil, nil, fmt.Errorf("tensor %q has %v at %d", name, v, i)
		}
	}
	return out, shape, nil
}

// Fits refuses a base that the adapter is not for: one that speaks another dialect or is of another
// architecture, that lacks one of its tensors, or has one of another shape.
func (a *Adapter) Fits(base weights.Source) error {
	wrong := func(format string, args ...any) error {
		said := ""
		if a.Base != "" {
			said = fmt.Sprintf(" It says that it is for %s.", a.Base)
		}
		return fmt.Errorf("adapter %s is not for %s: %s.%s", a.Path, base.Path(), fmt.Sprintf(format, args...), said)
	}
	if a.Dialect != base.Dialect() {
		return wrong("the adapter's tensors are named as in %s, the base's as in %s; convert one of them",
			dialects[a.Dialect], dialects[base.Dialect()])
	}
	if arch, _ := base.Meta("general.architecture"); a.Arch != "" && arch != a.Arch {
		return wrong("the adapter's architecture is %s, the base's %v", a.Arch, arch)
	}
	for i := range a.Pairs {
		p := &a.Pairs[i]
		_, shape, ok := base.Lookup(p.Name)
		if !ok {
			return wrong("the base has no tensor %q", p.Name)
		}
		if !shape.Equal(tensor.Shape{p.Out, p.In}) {
			return wrong("tensor %q is %v, the adapter's is [%d, %d]", p.Name, shape, p.Out, p.In)
		}
	}
	for i := range a.Copies {
		if err := a.Copies[i].same(base); err != nil {
			return wrong("%v", err)
		}
	}
	return nil
}

var dialects = map[string]string{"hf": "Hugging Face's folders", "gguf": "GGUF"}
