// Package safetensors reads Hugging Face's file of tensors
// (https://github.com/huggingface/safetensors) and the folders that hold a
// model in such files, with config.json as the metadata.
//
//	length:u64  header: JSON of length bytes  data
//
// The header maps names to {"dtype", "shape", "data_offsets": [begin, end]},
// offsets counting from the data's start.
package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/hfclass"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/mmap"
)

const (
	single    = "model.safetensors"
	indexName = "model.safetensors.index.json"
)

// place is a tensor in one of the files.
type place struct {
	entry
	file int
}

// Source is an open file or folder.
type Source struct {
	path   string
	cfg    config
	files  [][]byte
	maps   []*mmap.File
	names  []string
	byName map[string]place
}

var _ weights.Source = (*Source)(nil)

// Open opens a .safetensors file, with the config.json beside it where there
// is one, or a folder: model.safetensors, or the shards that
// model.safetensors.index.json lists, or the only .safetensors file.
// generation_config.json is read too, below "generation_config.".
func Open(path string) (*Source, error) {
	s := &Source{path: path, cfg: config{values: map[string]any{}}, byName: map[string]place{}}
	if err := s.open(); err != nil {
		return nil, errlist.Join(fmt.Errorf("safetensors: %w", err), s.Close())
	}
	return s, nil
}

func (s *Source) open() error {
	st, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	dir := s.path
	if !st.IsDir() {
		dir = filepath.Dir(s.path)
		if err := s.addFile(s.path, nil); err != nil {
			return err
		}
	} else if err := s.openFolder(); err != nil {
		return err
	}
	if err := s.cfg.readConfig(filepath.Join(dir, "config.json"), ""); err != nil {
		return err
	}
	s.liftText()
	return s.cfg.readConfig(filepath.Join(dir, "generation_config.json"), "generation_config.")
}

// liftText gives the tensors of the language model in a model of several modalities (config.json has text_config) the
// names that they have where it stands alone: language_model.model.layers.0…, model.language_model.layers.0… and
// model.text_model.layers.0… become model.layers.0…, language_model.lm_head… becomes lm_head…. Other tensors keep
// theirs, and so does a folder in which two would then have the same.
func (s *Source) liftText() {
	if !slices.ContainsFunc(s.cfg.keys, func(k string) bool { return strings.HasPrefix(k, hfclass.Inside) }) {
		return
	}
	names, byName := make([]string, len(s.names)), make(map[string]place, len(s.byName))
	for i, name := range s.names {
		names[i] = Lifted(name)
		byName[names[i]] = s.byName[name]
	}
	if len(byName) == len(s.byName) {
		s.names, s.byName = names, byName
	}
}

// Lifted gives a tensor of a language model in a model of several modalities the name that it has where it stands
// alone.
func Lifted(name string) string {
	for _, part := range []string{"language_model.", "text_model."} {
		if rest, ok := strings.CutPrefix(name, part); ok {
			return rest
		}
		if rest, ok := strings.CutPrefix(name, "model."+part); ok {
			return "model." + strings.TrimPrefix(rest, "model.")
		}
	}
	return name
}

func (s *Source) openFolder() error {
	for _, c := range []struct {
		name string
		open func(path string) error
	}{
		{single, func(p string) error { return s.addFile(p, nil) }},
		{indexName, s.openIndex},
	} {
		path := filepath.Join(s.path, c.name)
		if _, err := os.Stat(path); err == nil {
			return c.open(path)
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	found, err := filepath.Glob(filepath.Join(escapeGlob(s.path), "*.safetensors"))
	if err != nil {
		return err
	}
	if len(found) == 1 {
		return s.addFile(found[0], nil)
	}
	hint := "this is not a model in safetensors"
	if len(found) > 1 {
		hint = fmt.Sprintf("found %d .safetensors files and no index; name the file, or fetch the index", len(found))
	} else if old, _ := filepath.Glob(filepath.Join(escapeGlob(s.path), "pytorch_model*.bin")); len(old) > 0 {
		hint = fmt.Sprintf("found %s, a pickle, which is not read; convert it to safetensors", filepath.Base(old[0]))
	}
	return fmt.Errorf("%s: expected %s or %s; %s", s.path, single, indexName, hint)
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// openIndex opens the shards of an index and takes what it assigns to each.
func (s *Source) openIndex(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Size() > maxHeader {
		return fmt.Errorf("%s: %d bytes; expected at most %d of an index", path, st.Size(), maxHeader)
	}
	b, err := plainfile.Read(path)
	if err != nil {
		return err
	}
	shards, err := parseIndex(b)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	files := make([]string, 0, len(shards))
	for file := range shards {
		files = append(files, file)
	}
	slices.Sort(files)
	for _, file := range files {
		if err := s.addFile(filepath.Join(filepath.Dir(path), file), shards[file]); err != nil {
			return err
		}
	}
	return nil
}

// parseIndex gives the tensors of each shard.
func parseIndex(b []byte) (map[string][]string, error) {
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return nil, err
	}
	if len(index.Map) == 0 {
		return nil, errors.New("expected a weight_map from tensors to files")
	}
	shards := map[string][]string{}
	for name, file := range index.Map {
		if file == "" || file == "." || file == ".." || strings.ContainsAny(file, `/\`) {
			return nil, fmt.Errorf("tensor %q is assigned to %q; expected the name of a file in the same folder", name, file)
		}
		shards[file] = append(shards[file], name)
	}
	return shards, nil
}

// addFile maps a file and takes the wanted tensors, all where wanted is nil.
func (s *Source) addFile(path string, wanted []string) error {
	m, err := mmap.Open(path)
	if err != nil {
		return err
	}
	s.maps = append(s.maps, m)
	return s.add(path, m.Data, wanted)
}

func (s *Source) add(path string, b []byte, wanted []string) error {
	if bytes.HasPrefix(b, []byte("version https://git-lfs")) {
		return fmt.Errorf("%s: a Git LFS pointer instead of the file; run git lfs pull", path)
	}
	entries, err := parse(b)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	take := map[string]bool{}
	for _, name := range wanted {
		take[name] = true
	}
	for _, e := range entries {
		if wanted != nil && !take[e.name] {
			continue
		}
		delete(take, e.name)
		s.byName[e.name] = place{e, len(s.files)}
		s.names = append(s.names, e.name)
	}
	if len(take) > 0 {
		missing := make([]string, 0, len(take))
		for name := range take {
			missing = append(missing, name)
		}
		slices.Sort(missing)
		return fmt.Errorf("%s: no tensor %q, which the index places here; fetch the index and its files again", path,
			missing[0])
	}
	s.files = append(s.files, b)
	return nil
}

// Parse reads one file from memory; path is for messages. The Source keeps b
// and has no metadata.
func Parse(path string, b []byte) (*Source, error) {
	s := &Source{path: path, cfg: config{values: map[string]any{}}, byName: map[string]place{}}
	if err := s.add(path, b, nil); err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return s, nil
}

// Path is the path given to Open.
func (s *Source) Path() string { return s.path }

// Format is "safetensors".
func (s *Source) Format() string { return "safetensors" }

// Dialect is "hf".
func (s *Source) Dialect() string { return "hf" }

// Meta gives a value of config.json. A key that is absent is looked for below
// "text_config.", where models of several modalities keep the language model's.
func (s *Source) Meta(key string) (any, bool) {
	return hfclass.Anywhere(func(k string) (any, bool) {
		v, ok := s.cfg.values[k]
		return v, ok
	}, key)
}

// Null says that config.json gives null for a key.
func (s *Source) Null(key string) bool { return s.cfg.nulls[key] || s.cfg.nulls[hfclass.Inside+key] }

// Nulls lists the keys for which config.json gives null.
func (s *Source) Nulls() []string { return slices.Sorted(maps.Keys(s.cfg.nulls)) }

// Keys lists the dotted keys in the order of config.json.
func (s *Source) Keys() []string { return append([]string(nil), s.cfg.keys...) }

// Names lists the tensors, file by file, in their headers' order; those of the language model in a model of several
// modalities are named as if it stood alone.
func (s *Source) Names() []string { return append([]string(nil), s.names...) }

// Lookup gives a tensor's type and shape.
func (s *Source) Lookup(name string) (tensor.Type, tensor.Shape, bool) {
	p, ok := s.byName[name]
	if !ok {
		return tensor.Invalid, nil, false
	}
	return p.typ, append(tensor.Shape(nil), p.shape...), true
}

// Dtype gives a tensor's type in the file's own words.
func (s *Source) Dtype(name string) string { return s.byName[name].dtype }

// Data gives a tensor's bytes, mapped from the file. The format does not
// align tensors: one that starts at an odd place for its type is copied, anew
// at each call.
func (s *Source) Data(name string) ([]byte, error) {
	p, ok := s.byName[name]
	if !ok {
		return nil, fmt.Errorf("safetensors: %s: no tensor %q among %d", s.path, name, len(s.names))
	}
	if s.files == nil {
		return nil, fmt.Errorf("safetensors: %s: read of %q after Close", s.path, name)
	}
	if p.typ == tensor.Invalid {
		return nil, fmt.Errorf("safetensors: %s: tensor %q has dtype %q, which is not supported; fetch the model in BF16, "+
			"F16 or F32", s.path, name, p.dtype)
	}
	b := s.files[p.file][p.off : p.off+p.size : p.off+p.size]
	if _, width := p.typ.Block(); p.off%width != 0 {
		c := tensor.New(tensor.U8, len(b))
		copy(c.Data, b)
		b = c.Data
	}
	return b, nil
}

// Close unmaps the files; bytes from Data must not be used after it.
func (s *Source) Close() error {
	s.files = nil
	var errs []error
	for _, m := range s.maps {
		errs = append(errs, m.Close())
	}
	s.maps = nil
	return errlist.Join(errs...)
}
