package convert

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// mapping is where a weight of Hugging Face's goes in GGUF. "%d" in both stands for the layer.
type mapping struct {
	hf, gguf string
	role     role
	optional bool
}

// role says what is done to a weight on the way; families.yaml tells what the words mean.
type role int

const (
	plainRole role = iota
	queryRole
	keyRole
	normRole
	qkvRole
	expertRole
)

var roles = map[string]role{"query": queryRole, "key": keyRole, "norm": normRole, "qkv": qkvRole, "expert": expertRole}

// family is a class of Hugging Face's under the name that GGUF has for it.
type family struct {
	arch            string
	eps             float64
	theta           float64
	window          int64 // the class's default of sliding_window, 0: none
	windowAsked     bool  // only where use_sliding_window says so, from max_window_layers on
	pairs           bool  // GGUF rotates adjacent pairs, Hugging Face halves
	addOne          bool
	layernorm       bool              // its epsilon is a LayerNorm's
	parallelKey     string            // config.json's key for a parallel residual, true by default; "": none
	originalContext bool              // the context before scaling is told in any case
	caps            []string          // keys of soft caps
	scaleKey        string            // of what attention's scale is the root of, the heads' width by default
	scaleByWidthAt  int               // so many layers: hidden_size/heads instead
	activation      map[string]string // key and value that the architecture stands for
	weights         []mapping
}

//go:embed families.yaml
var familiesText []byte

// families by the class that config.json's "architectures" names.
var families = readFamilies(familiesText)

// readFamilies reads families.yaml, which is part of the program: a mistake in it is a panic.
func readFamilies(text []byte) map[string]family {
	var file struct {
		Weights  map[string][]string
		Families map[string]struct {
			Arch            string
			Eps, Theta      float64
			Window          int64
			WindowAsked     bool `yaml:"window_asked"`
			Pairs           bool
			AddOne          bool `yaml:"add_one"`
			Layernorm       bool
			ParallelKey     string `yaml:"parallel_key"`
			OriginalContext bool   `yaml:"original_context"`
			Caps            []string
			ScaleKey        string `yaml:"scale_key"`
			ScaleByWidthAt  int    `yaml:"scale_by_width_at"`
			Activation      map[string]string
			Weights         [][]string
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		panic("families.yaml: " + err.Error())
	}
	all := map[string]family{}
	for class, f := range file.Families {
		to := family{arch: f.Arch, eps: f.Eps, theta: f.Theta, window: f.Window, windowAsked: f.WindowAsked, pairs: f.Pairs,
			addOne: f.AddOne, layernorm: f.Layernorm, parallelKey: f.ParallelKey, originalContext: f.OriginalContext,
			caps: f.Caps, scaleKey: f.ScaleKey, scaleByWidthAt: f.ScaleByWidthAt, activation: f.Activation}
		for _, list := range f.Weights {
			for _, line := range list {
				to.weights = append(to.weights, readMapping(line)...)
			}
		}
		all[class] = to
	}
	return all
}

// readMapping reads a line of weights.
func readMapping(line string) []mapping {
	words := strings.Fields(line)
	if len(words) < 2 {
		panic(fmt.Sprintf("families.yaml: %q: two names are wanted", line))
	}
	m, bias := mapping{hf: words[0], gguf: words[1]}, false
	for _, w := range words[2:] {
		r, ok := roles[w]
		switch {
		case ok:
			m.role = r
		case w == "optional":
			m.optional = true
		case w == "bias":
			bias = true
		default:
			panic(fmt.Sprintf("families.yaml: %q: %s means nothing", line, w))
		}
	}
	if !bias {
		return []mapping{m}
	}
	b := m
	b.hf, b.gguf = strings.TrimSuffix(m.hf, "weight")+"bias", strings.TrimSuffix(m.gguf, "weight")+"bias"
	b.optional = true
	return []mapping{m, b}
}
