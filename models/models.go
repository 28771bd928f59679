// Package models reads model files: networks written as YAML, in the language
// of docs/language.md. It binds their parameters to the metadata of weights,
// their weights to tensors, and builds the graph of one step. The files of the
// families that greta knows lie beside this code and are part of the program; an
// architecture is a file, never Go.
package models

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/tensor"
)

//go:embed *.yaml
var files embed.FS

// Weights is what a model file asks of the weights; weights.Source satisfies it.
type Weights interface {
	// Path says where the weights come from, for messages.
	Path() string
	// Dialect is "gguf" or "hf": whose tensor names and keys are spoken.
	Dialect() string
	// Meta gives a metadata value: string, bool, int64, float64 or a slice of one.
	Meta(key string) (any, bool)
	// Names lists the tensors.
	Names() []string
	// Lookup gives a tensor's type and shape, slowest-varying dimension first.
	Lookup(name string) (tensor.Type, tensor.Shape, bool)
}

// File is a model or block file.
type File struct {
	*source
	name    string
	block   bool
	part    bool // params and weights for files that use it
	uses    []text
	match   matcher
	task    string
	says    []said
	ignore  []string // names of tensors that the file knows and does not want
	in      []decl
	params  []param
	require []expr
	weights []weightDecl
	state   []decl
	body    []equation
	out     []text
	kernels []*custom.Kernel
	own     map[string]*File // of a model: the blocks behind it in its file, by name
	line    int              // of the source, where it begins
	read    map[string]bool  // names that an equation reads, not only asks for by has(…)
	used    map[string]bool  // names that an expression of the file mentions
	// parameters and weights of a model that are another in each block that it repeats
	perBlock map[string]bool
	// what is declared and never used: often the other half of a misspelt name, so reported with
	// Build's mistakes
	late errs
}

// IsBlock says whether the file defines a block, one layer, and not a whole model.
func (f *File) IsBlock() bool { return f.block }

// Name is the name behind model: or block:.
func (f *File) Name() string { return f.name }

// Path is where the file was found; that of a built-in one begins with models/.
func (f *File) Path() string { return f.path }

func (f *File) param(name string) *param {
	for i := range f.params {
		if f.params[i].name.string == name {
			return &f.params[i]
		}
	}
	return nil
}

func (f *File) weight(name string) *weightDecl {
	for i := range f.weights {
		if f.weights[i].name.string == name {
			return &f.weights[i]
		}
	}
	return nil
}

// blocks lists the files that the body repeats, each once.
func (f *File) blocks() []*File {
	var all []*File
	for _, eq := range f.body {
		if eq.repeat == nil {
			continue
		}
		for _, b := range eq.repeat.blocks {
			for _, name := range b.names {
				if file := b.files[name]; file != nil && !slices.Contains(all, file) {
					all = append(all, file)
				}
			}
		}
	}
	return all
}

// Names lists the built-in models and blocks, by their files' stem: llama2_7b, llama2_block, …; a block behind a
// model by its name.
func Names() []string {
	entries, _ := files.ReadDir(".")
	var all []string
	for _, e := range entries {
		if stem, ok := strings.CutSuffix(e.Name(), ".yaml"); ok && !isPart(stem) {
			all = append(all, stem)
		}
	}
	for name := range behindModels() {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// isPart says whether a built-in file is a part, which others use.
func isPart(stem string) bool {
	data, err := files.ReadFile(stem + ".yaml")
	return err == nil && strings.Contains(string(data), "\npart:")
}

// Load reads a model or block file from disk. The blocks that it repeats are
// looked for beside it, then among the built-in ones. The error is Errors where
// the text is at fault.
func Load(path string) (*File, error) {
	data, err := readLimited(path)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	return resolve(path, data, beside(dir))
}

// beside reads files of a folder, and built-in ones where it has none of the name.
func beside(dir string) reading {
	return func(stem string) (string, []byte, error) {
		p := filepath.Join(dir, stem+".yaml")
		data, err := readLimited(p)
		if errors.Is(err, fs.ErrNotExist) {
			return readBuiltin(stem)
		}
		return p, data, err
	}
}

func readLimited(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: a model file is wanted, this is no regular file", path)
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s: has %d bytes, a model file has at most %d", path, info.Size(), maxFileBytes)
	}
	return plainfile.Read(path)
}

// Builtin gives a file that is part of the program. The folder models/ and the
// ending .yaml may be left out.
func Builtin(name string) (*File, error) {
	stem := strings.TrimPrefix(strings.TrimPrefix(filepath.ToSlash(name), "./"), "models/")
	stem = strings.TrimSuffix(stem, ".yaml")
	if f, ok := builtinFiles.Load(stem); ok {
		return f.(*File), nil
	}
	f, err := ownBuiltin(stem)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	kept, _ := builtinFiles.LoadOrStore(stem, f)
	return kept.(*File), nil
}

// builtinFiles are those that were asked for, by stem: all have the same File, which does not change.
var builtinFiles sync.Map // of *File

// ownBuiltin reads a built-in file for one who changes it.
func ownBuiltin(stem string) (*File, error) {
	path, data, err := readBuiltin(stem)
	if err != nil {
		return nil, err
	}
	return resolve(path, data, readBuiltin)
}

func readBuiltin(stem string) (string, []byte, error) {
	if data, err := files.ReadFile(stem + ".yaml"); err == nil {
		return "models/" + stem + ".yaml", data, nil
	}
	if b, ok := behindModels()[stem]; ok {
		return b.path, b.data, nil
	}
	return "", nil, fmt.Errorf("no model file has this name%s", didYouMean(stem, Names()))
}

// behind is a block that stands behind a built-in model, with an empty line for each before it, so that what is said
// of it has the file's lines.
type behind struct {
	path string
	data []byte
}

// behindModels are these blocks, by name.
var behindModels = sync.OnceValue(func() map[string]behind {
	all := map[string]behind{}
	entries, _ := files.ReadDir(".")
	for _, e := range entries {
		data, _ := files.ReadFile(e.Name())
		docs := bytes.Split(data, []byte("\n---\n"))
		line := 0
		for i, doc := range docs {
			if _, name, ok := strings.Cut("\n"+string(doc), "\nblock: "); ok && i > 0 {
				name, _, _ = strings.Cut(name, "\n")
				all[name] = behind{"models/" + e.Name(), append(bytes.Repeat([]byte("\n"), line), doc...)}
			}
			line += bytes.Count(doc, []byte("\n")) + 2
		}
	}
	return all
})

// reading gives the text of a file by its stem.
type reading func(stem string) (path string, data []byte, err error)

// resolve parses a file and the blocks that it repeats.
func resolve(path string, data []byte, read reading) (*File, error) {
	f, err := parse(path, data, read)
	if err != nil {
		return nil, err
	}
	if f.part {
		return nil, Errors{f.at(1, 1, "%s is a part, which files use: a model or a block is wanted", f.name)}
	}
	var es errs
	loaded := map[string]*File{}
	for i := range f.body {
		if rep := f.body[i].repeat; rep != nil {
			for k := range rep.blocks {
				f.loadBlocks(&es, &f.body[i], &rep.blocks[k], loaded, read)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.own)) {
		if loaded[name] == nil {
			es.add(f.at(f.own[name].line, 1, "block %s is repeated nowhere", name))
		}
	}
	if len(es.list) > 0 {
		f.addLate(&es)
		return nil, es.err()
	}
	if !f.block {
		f.unusedParams(&f.late, f.blocks())
	}
	return f, nil
}

// loadBlocks reads the files of a choice of blocks, each once.
func (f *File) loadBlocks(es *errs, eq *equation, c *choice, loaded map[string]*File, read reading) {
	for k, name := range c.names {
		if c.files[name] = loaded[name]; c.files[name] != nil {
			continue
		}
		fail := func(format string, args ...any) {
			es.add(f.fail(eq.rhs.text, c.at[k], "%s: %s", eq.string, fmt.Sprintf(format, args...)))
		}
		if own := f.own[name]; own != nil {
			loaded[name], c.files[name] = own, own
			continue
		}
		if strings.ContainsAny(name, `/\`) {
			fail("block %q: a file's name without folder and ending is wanted", name)
			continue
		}
		path, data, err := read(name)
		if err != nil {
			fail("block %s: %v", name, err)
			continue
		}
		b, err := parse(path, data, read)
		if err != nil {
			for _, e := range err.(Errors) {
				es.add(e)
			}
			continue
		}
		if !b.block {
			fail("%s is no block, only a block can be repeated", path)
			continue
		}
		loaded[name], c.files[name] = b, b
	}
}

// addLate reports what the file and its blocks declare and never use.
func (f *File) addLate(es *errs) {
	for _, file := range append([]*File{f}, f.blocks()...) {
		if file != nil {
			for _, e := range file.late.list {
				es.add(e)
			}
		}
	}
}
