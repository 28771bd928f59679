package embedding

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/open"
	"github.com/greta-project/greta/weights/quant"
)

// settings are what the files beside a model say of its vectors, in the form of sentence-transformers: modules.json,
// and what it names.
type settings struct {
	pooling   string // empty: not said
	normalize bool
	noPrompt  bool // the prompt's tokens do not count in the mean
	longest   int  // 0: not said
	lower     bool
	dense     []dense
	prompts   map[string]string
	prompt    string // the name of the one that is taken where none is asked for
}

// dense is a product behind pooling.
type dense struct {
	in, out int
	w, b    []float32 // [out, in]; [out], or nil
	act     func(float64) float64
}

// activations are those of Dense modules, by the names of their classes.
var activations = map[string]func(float64) float64{
	"Identity": nil,
	"Tanh":     math.Tanh,
	"ReLU":     func(v float64) float64 { return math.Max(v, 0) },
	"GELU":     func(v float64) float64 { return v / 2 * (1 + math.Erf(v/math.Sqrt2)) },
	"Sigmoid":  func(v float64) float64 { return 1 / (1 + math.Exp(-v)) },
}

// Pools says whether a folder's files say how rows become a vector: such a model gives vectors, no scores.
func Pools(dir string) bool {
	var modules []struct{ Type string }
	_, err := readJSON(filepath.Join(dir, "modules.json"), &modules)
	return err == nil && slices.ContainsFunc(modules, func(m struct{ Type string }) bool {
		return strings.HasSuffix(m.Type, ".Pooling")
	})
}

// readSettings reads those of a folder; without a folder, or files in it, nothing is said.
func readSettings(dir string) (*settings, error) {
	s := &settings{}
	if dir == "" {
		return s, nil
	}
	var modules []struct{ Path, Type string }
	if _, err := readJSON(filepath.Join(dir, "modules.json"), &modules); err != nil {
		return nil, err
	}
	for _, m := range modules {
		if strings.Contains(filepath.ToSlash(m.Path), "..") || filepath.IsAbs(m.Path) {
			return nil, fmt.Errorf("%s: modules.json: %q is no folder in it", dir, m.Path)
		}
		if err := s.module(filepath.Join(dir, m.Path), m.Type[strings.LastIndexByte(m.Type, '.')+1:]); err != nil {
			return nil, err
		}
	}
	if len(modules) == 0 { // a folder without the list may still have the usual one
		if err := s.pool(filepath.Join(dir, "1_Pooling")); err != nil {
			return nil, err
		}
	}
	var sentence struct {
		Longest *int `json:"max_seq_length"`
		Lower   bool `json:"do_lower_case"`
	}
	if _, err := readJSON(filepath.Join(dir, "sentence_bert_config.json"), &sentence); err != nil {
		return nil, err
	}
	if sentence.Longest != nil && *sentence.Longest > 0 {
		s.longest = *sentence.Longest
	}
	s.lower = sentence.Lower
	var config struct {
		Prompts map[string]string `json:"prompts"`
		Default *string           `json:"default_prompt_name"`
	}
	if _, err := readJSON(filepath.Join(dir, "config_sentence_transformers.json"), &config); err != nil {
		return nil, err
	}
	if s.prompts = config.Prompts; config.Default != nil {
		s.prompt = *config.Default
	}
	return s, nil
}

// readJSON reads a file that may be absent.
func readJSON(path string, into any) (bool, error) {
	data, err := plainfile.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return true, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// module takes what one module says.
func (s *settings) module(dir, kind string) error {
	switch kind {
	case "Transformer":
		return nil
	case "Pooling":
		return s.pool(dir)
	case "Normalize":
		s.normalize = true
		return nil
	case "Dense":
		d, err := readDense(dir)
		s.dense = append(s.dense, d)
		return err
	}
	return fmt.Errorf("%s: modules of kind %s are not supported: there are Transformer, Pooling, Dense and Normalize", dir,
		kind)
}

// pool reads a Pooling module.
func (s *settings) pool(dir string) error {
	var config struct {
		Mode     *string `json:"pooling_mode"`
		CLS      bool    `json:"pooling_mode_cls_token"`
		Mean     bool    `json:"pooling_mode_mean_tokens"`
		Last     bool    `json:"pooling_mode_lasttoken"`
		Max      bool    `json:"pooling_mode_max_tokens"`
		Root     bool    `json:"pooling_mode_mean_sqrt_len_tokens"`
		Weighted bool    `json:"pooling_mode_weightedmean_tokens"`
		Prompt   *bool   `json:"include_prompt"`
	}
	path := filepath.Join(dir, "config.json")
	found, err := readJSON(path, &config)
	if err != nil || !found {
		return err
	}
	var modes []string
	for _, m := range []struct {
		on   bool
		name string
	}{{config.CLS, "cls"}, {config.Mean, "mean"}, {config.Last, "last"}, {config.Max, "max"},
		{config.Root, "mean_sqrt_len_tokens"}, {config.Weighted, "weightedmean"}} {
		if m.on {
			modes = append(modes, m.name)
		}
	}
	if config.Mode != nil && len(modes) == 0 {
		name := map[string]string{"lasttoken": "last"}[*config.Mode]
		if name == "" {
			name = *config.Mode
		}
		modes = []string{name}
	}
	if len(modes) != 1 || !slices.Contains(models.Poolings, modes[0]) {
		return fmt.Errorf("%s: pooling by %s is not supported: one of %s is", path, strings.Join(modes, " and "),
			strings.Join(models.Poolings, ", "))
	}
	s.pooling, s.noPrompt = modes[0], config.Prompt != nil && !*config.Prompt
	return nil
}

// readDense reads a Dense module: its sizes from config.json, its weights from model.safetensors.
func readDense(dir string) (d dense, err error) {
	var config struct {
		In   int    `json:"in_features"`
		Out  int    `json:"out_features"`
		Bias *bool  `json:"bias"`
		Act  string `json:"activation_function"`
	}
	path := filepath.Join(dir, "config.json")
	if found, err := readJSON(path, &config); err != nil || !found {
		return d, errlist.Join(err, fmt.Errorf("%s: a Dense module's sizes are expected there", path))
	}
	name := config.Act[strings.LastIndexByte(config.Act, '.')+1:]
	act, known := activations[name]
	if !known {
		return d, fmt.Errorf("%s: the activation %s is not supported", path, config.Act)
	}
	src, err := open.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return d, err
	}
	defer func() { err = errlist.Join(err, src.Close()) }()
	d = dense{in: config.In, out: config.Out, act: act}
	if d.w, err = readTensor(src, "linear.weight", tensor.Shape{d.out, d.in}); err != nil {
		return d, err
	}
	if config.Bias == nil || *config.Bias {
		d.b, err = readTensor(src, "linear.bias", tensor.Shape{d.out})
	}
	return d, err
}

func readTensor(src weights.Source, name string, want tensor.Shape) ([]float32, error) {
	t, shape, ok := src.Lookup(name)
	if !ok || !shape.Equal(want) {
		return nil, fmt.Errorf("%s: %s of %v is expected, found %v", src.Path(), name, want, shape)
	}
	data, err := src.Data(name)
	if err != nil {
		return nil, err
	}
	out := make([]float32, want.Elems())
	return out, quant.Decode(t, out, data)
}

// apply computes the product for one vector, summed in float64.
func (d *dense) apply(x []float32) []float32 {
	y := make([]float32, d.out)
	for o := range y {
		sum := 0.0
		if d.b != nil {
			sum = float64(d.b[o])
		}
		for i, v := range x {
			sum += float64(v) * float64(d.w[o*d.in+i])
		}
		if d.act != nil {
			sum = d.act(sum)
		}
		y[o] = float32(sum)
	}
	return y
}
