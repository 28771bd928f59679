package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/weights/open"
)

func (a *app) newCmd() *cobra.Command {
	var from, out string
	var force, asJSON bool
	c := &cobra.Command{
		Use:   "new NAME",
		Short: "Write a first model file for weights of a new family",
		Long: `new writes NAME.yaml and its blocks for a folder with config.json and safetensors of
a family that no model file is for: it takes the built-in file that reads most of
the tensors by their names and shapes, decides the choices in it as this
configuration decides them, and writes what is left, with the sizes bound to the
keys of config.json.

It says what it guessed, which tensors it could not place and which keys of
config.json nothing reads: that is what is left to do. greta check FOLDER --model
NAME.yaml --against torch then names the first equation that is not the family's.
Files that are there are not written over without --force.`,
		Example: `  greta new mine --from folder
  greta check folder --model mine.yaml --against torch`,
		Args: exactly(1, "a name"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.newModel(args[0], from, out, force, asJSON)
		},
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&from, "from", "", "the folder, or its config.json")
	s.StringVarP(&out, "out", "o", ".", "folder for the files")
	s.BoolVar(&force, "force", false, "write over files that are there")
	s.BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// newReport is what greta new says.
type newReport struct {
	Files    []string `json:"files"`
	From     string   `json:"from"`
	Guesses  []string `json:"guesses"`
	Unplaced []string `json:"unplaced_tensors"`
	Unused   []string `json:"unused_keys"`
	Wrong    string   `json:"wrong,omitempty"` // why the file cannot be run yet
}

func (a *app) newModel(name, from, out string, force, asJSON bool) (err error) {
	if from == "" {
		return usagef("--from is missing: a folder with config.json and safetensors, or its config.json")
	}
	if filepath.Base(from) == "config.json" {
		from = filepath.Dir(from)
	}
	w, err := open.Open(from)
	if err != nil {
		return usage(err)
	}
	defer func() { err = errlist.Join(err, w.Close()) }()
	d, err := models.NewDraft(w, name)
	if err != nil {
		return usage(err)
	}
	r := &newReport{From: d.From, Guesses: d.Guesses, Unplaced: d.Unplaced, Unused: d.Unused}
	for _, f := range d.Files {
		path := filepath.Join(out, f.Name)
		if _, err := os.Lstat(path); !force && !errors.Is(err, fs.ErrNotExist) {
			return usagef("%s is there already: --force writes over it", path)
		}
		r.Files = append(r.Files, path)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for i, f := range d.Files {
		if err := atomicfile.Write(r.Files[i], []byte(f.Text), 0o644); err != nil {
			return err
		}
	}
	f, err := models.Load(r.Files[0])
	if err == nil {
		_, err = f.Build(models.Options{Weights: w, S: 2, C: 64})
	}
	if err != nil {
		r.Wrong = err.Error()
	}
	if asJSON {
		return writeJSON(a.out, r)
	}
	_, err = fmt.Fprint(a.out, r.text(from))
	return err
}

// text says what was made, and what is left to do.
func (r *newReport) text(folder string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nmade after %s\n", strings.Join(r.Files, "\n"), r.From)
	for _, part := range []struct {
		says string
		list []string
	}{
		{"guesses, to look up in the family's own code", r.Guesses},
		{"tensors that nothing reads", r.Unplaced},
		{"keys of config.json that nothing reads", r.Unused},
	} {
		fmt.Fprintf(&b, "\n%s: %d\n", part.says, len(part.list))
		for _, x := range part.list {
			fmt.Fprintf(&b, "  %s\n", x)
		}
	}
	if r.Wrong != "" {
		fmt.Fprintf(&b, "\nwhat must be mended before it runs:\n%s\n", r.Wrong)
	}
	fmt.Fprintf(&b, "\nnext: greta check %s --model %s --against torch\n", folder, r.Files[0])
	return b.String()
}
