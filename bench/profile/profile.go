// Package profile holds sets of benchmarks as YAML: which operators at which
// sizes, which models, which benchmarks of the platform, and how often. Some come
// with the program; a file of the user's own is read the same way.
package profile

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/plainfile"
)

// Profile is a set of benchmarks. What a kind of benchmark does not know it
// leaves alone: one profile serves op, model and platform.
type Profile struct {
	Name        string        `yaml:"name"`
	About       string        `yaml:"about"`       // one sentence
	Repetitions int           `yaml:"repetitions"` // samples of each benchmark at least; 0: the default
	MinTime     time.Duration `yaml:"min_time"`    // of each benchmark at least: "200ms"; 0: the default
	Cache       string        `yaml:"cache"`       // cold, warm, both; "": the default
	Op          []Op          `yaml:"op"`
	Model       []Model       `yaml:"model"`
	Platform    []Platform    `yaml:"platform"`

	file string    // or name, for Where
	root yaml.Node // the text's tree
}

// Where names a place for errors: an entry of the list op, model or platform, counted from 0, and
// within it the value at some keys: "profile mine.yaml, line 7, op 2, sizes.m". Keys that are
// not there leave the entry's line.
func (p *Profile) Where(list string, i int, keys ...string) string {
	node := &p.root
	if node.Kind == yaml.DocumentNode {
		node = node.Content[0]
	}
	line := 0
	if node = value(node, list); node != nil && node.Kind == yaml.SequenceNode && i < len(node.Content) {
		node = resolved(node.Content[i])
		line = node.Line
		for _, k := range keys {
			if node = value(node, k); node == nil {
				break
			}
			line = node.Line
		}
	}
	text := fmt.Sprintf("profile %s, line %d, %s %d", p.file, line, list, i+1)
	if len(keys) > 0 {
		text += ", " + strings.Join(keys, ".")
	}
	return text
}

func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// value gives what a mapping has at a key, nil without.
func value(n *yaml.Node, key string) *yaml.Node {
	if n = resolved(n); n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return resolved(n.Content[i+1])
		}
	}
	return nil
}

// Op are operators at sizes, or all kernel shapes of a model.
type Op struct {
	Op      []string          `yaml:"op"`    // names
	Model   string            `yaml:"model"` // file or built-in name, instead of Op
	Sizes   map[string]Text   `yaml:"sizes"` // name of a dimension to a list for Sizes
	Types   Text              `yaml:"types"` // of weights: "f32,f16"
	KV      Text              `yaml:"kv"`    // of caches
	Attrs   map[string]Text   `yaml:"attrs"` // attributes of the operators
	With    Text              `yaml:"with"`  // optional operands that are given: "b"
	At      Text              `yaml:"at"`    // position of the first token
	Prompt  Text              `yaml:"prompt"`
	Set     map[string]string `yaml:"set"`   // parameters of the model
	Cache   string            `yaml:"cache"` // instead of the profile's
	Context int               `yaml:"context"`
}

// Model is a model with lists of tests, as bench model's flags of the same names.
type Model struct {
	Model  string            `yaml:"model"`
	Prompt Text              `yaml:"prompt"`
	Gen    Text              `yaml:"gen"`
	Depth  Text              `yaml:"depth"`
	DType  string            `yaml:"dtype"`
	Set    map[string]string `yaml:"set"`
}

// Platform is a benchmark of the platform with its parameters.
type Platform struct {
	Bench  string          `yaml:"bench"`
	Params map[string]Text `yaml:"params"`
}

// Text is a scalar as it is written: a list of sizes may be one number.
type Text string

// UnmarshalYAML takes any scalar, and a sequence of them as a list with commas.
func (t *Text) UnmarshalYAML(n *yaml.Node) error {
	switch n.Kind {
	case yaml.ScalarNode:
		*t = Text(n.Value)
		return nil
	case yaml.SequenceNode:
		var parts []string
		for _, e := range n.Content {
			if e.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: a number, a word or a list of them is expected", e.Line)
			}
			parts = append(parts, e.Value)
		}
		*t = Text(strings.Join(parts, ","))
		return nil
	}
	return fmt.Errorf("line %d: a number, a word or a list of them is expected", n.Line)
}

//go:embed profiles/*.yaml
var files embed.FS

// Names lists the profiles that come with the program.
func Names() []string {
	all, err := fs.Glob(files, "profiles/*.yaml")
	if err != nil {
		panic(err) // the pattern is ours
	}
	for i, p := range all {
		all[i] = strings.TrimSuffix(path.Base(p), ".yaml")
	}
	return all
}

// Load reads a profile: one that comes with the program by its name, or a file.
func Load(arg string) (*Profile, error) {
	data, err := files.ReadFile("profiles/" + arg + ".yaml")
	if err == nil {
		return Read(arg, bytes.NewReader(data))
	}
	f, err := plainfile.Open(arg)
	if errors.Is(err, fs.ErrNotExist) {
		hint := ""
		if near := lang.Nearest(arg, Names()); near != "" {
			hint = "; did you mean " + near + "?"
		}
		return nil, fmt.Errorf("profile %s: no such file, and none of this name comes with the program%s (there are %s)", arg,
			hint, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(arg, f)
}

// Read parses and checks a profile; name stands in errors, and for the
// profile's own name where it has none.
func Read(name string, r io.Reader) (*Profile, error) {
	p := &Profile{file: name}
	text, err := io.ReadAll(io.LimitReader(r, mostText+1))
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	if len(text) > mostText {
		return nil, fmt.Errorf("profile %s: it has more than %d bytes, which is no profile", name, mostText)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(p); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	if d.Decode(new(yaml.Node)) != io.EOF {
		return nil, fmt.Errorf("profile %s: more follows behind its first YAML document", name)
	}
	if err := yaml.Unmarshal(text, &p.root); err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	if p.Name == "" {
		p.Name = strings.TrimSuffix(path.Base(name), ".yaml")
	}
	return p, p.check()
}

// mostText bounds a profile: who names a model file by mistake is told so.
const mostText = 1 << 20

func (p *Profile) check() error {
	if p.Repetitions < 0 || p.MinTime < 0 {
		return fmt.Errorf("profile %s: repetitions %d and min_time %v must not be negative", p.file, p.Repetitions, p.MinTime)
	}
	if err := CheckCache(p.Cache); err != nil {
		return fmt.Errorf("profile %s: %w", p.file, err)
	}
	for i, o := range p.Op {
		where := p.Where("op", i)
		if (len(o.Op) == 0) == (o.Model == "") {
			return fmt.Errorf("%s: either op or model must be given", where)
		}
		switch {
		case o.Model == "" && (o.Prompt != "" || o.Context != 0 || len(o.Set) > 0):
			return fmt.Errorf("%s: prompt, context and set go with model", where)
		case o.Model != "" && (len(o.Sizes) > 0 || len(o.Attrs) > 0 || o.With != "" || o.At != ""):
			return fmt.Errorf("%s: a model has sizes of its own: sizes, attrs, with and at do not go with it", where)
		case o.Context < 0:
			return fmt.Errorf("%s: context %d must not be negative", where, o.Context)
		}
		if err := CheckCache(o.Cache); err != nil {
			return fmt.Errorf("%s: %w", p.Where("op", i, "cache"), err)
		}
		for _, name := range slices.Sorted(maps.Keys(o.Sizes)) {
			if _, err := Sizes(string(o.Sizes[name])); err != nil {
				return fmt.Errorf("%s: %w", p.Where("op", i, "sizes", name), err)
			}
		}
		for key, t := range map[string]Text{"at": o.At, "prompt": o.Prompt} {
			if _, err := Sizes(string(t)); t != "" && err != nil {
				return fmt.Errorf("%s: %w", p.Where("op", i, key), err)
			}
		}
	}
	for i, m := range p.Model {
		if m.Model == "" {
			return fmt.Errorf("%s: model must be given", p.Where("model", i))
		}
		for key, t := range map[string]Text{"prompt": m.Prompt, "gen": m.Gen, "depth": m.Depth} {
			if _, err := Sizes(string(t)); t != "" && err != nil {
				return fmt.Errorf("%s: %w", p.Where("model", i, key), err)
			}
		}
	}
	for i, b := range p.Platform {
		if b.Bench == "" {
			return fmt.Errorf("%s: bench must be given", p.Where("platform", i))
		}
	}
	return nil
}

// CheckCache refuses what is no state of the caches.
func CheckCache(s string) error {
	switch s {
	case "", "cold", "warm", "both":
		return nil
	}
	return fmt.Errorf("cache %s: it can be cold, warm or both", s)
}
