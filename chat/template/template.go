// Package template finds the chat templates that come with weights, and renders conversations with them as
// transformers does. A template is a Jinja program: package jinja runs it.
package template

import (
	"embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/chat/jinja"
)

// Set are the templates of one model.
type Set struct {
	Path   string            // where they come from, for messages
	Tokens map[string]string // bos_token, eos_token and the like, as text
	texts  map[string]string // by name; "default" is the one that is taken where none is named
	parsed map[string]*jinja.Template
}

// Default is the name of the template that is taken where nothing else is said, ToolUse of the one for tools.
const (
	Default = "default"
	ToolUse = "tool_use"
)

// New makes a set of one template.
func New(path, text string) *Set {
	return &Set{Path: path, Tokens: map[string]string{}, texts: map[string]string{Default: text}}
}

// Names lists the templates, the default first.
func (s *Set) Names() []string {
	var names []string
	for n := range s.texts {
		if n != Default {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	if _, ok := s.texts[Default]; ok {
		names = append([]string{Default}, names...)
	}
	return names
}

// Text gives a template as it was found.
func (s *Set) Text(name string) string { return s.texts[name] }

// Public gives the set under a name for clients, which are told of no folder: that of the template alone.
func (s *Set) Public() *Set {
	c := *s
	c.Path = "the chat template"
	if strings.HasSuffix(s.Path, ".jinja") || !strings.ContainsAny(s.Path, `/\.`) {
		c.Path += " " + filepath.Base(s.Path)
	}
	return &c
}

// Refusal is what a template says against a conversation, or how it failed: bad input, not a failure of the program.
type Refusal struct {
	Path string
	Err  *jinja.Error
}

func (r *Refusal) Error() string {
	if r.Err.Line > 0 {
		return fmt.Sprintf("%s, line %d: %v", r.Path, r.Err.Line, r.Err)
	}
	return fmt.Sprintf("%s: %v", r.Path, r.Err)
}

func (r *Refusal) Unwrap() error { return r.Err }

// Input is a conversation and what a template is told beside it.
type Input struct {
	Name                string      // of the template; "": tool_use where there are tools and such a one, else default
	Messages            any         // *jinja.List of *jinja.Dict, see FromMessages
	Tools               any         // *jinja.List, or nil
	Documents           any         // *jinja.List, or nil
	AddGenerationPrompt bool        // end where the model's answer begins
	Vars                *jinja.Dict // more variables, such as enable_thinking; nil: none
	Now                 time.Time   // zero: the local time
}

// pick chooses a template.
func (s *Set) pick(in *Input) (string, error) {
	name := in.Name
	if name == "" {
		name = Default
		if l, ok := in.Tools.(*jinja.List); ok && len(l.Items) > 0 && s.texts[ToolUse] != "" {
			name = ToolUse
		}
	}
	if _, ok := s.texts[name]; ok {
		return name, nil
	}
	if in.Name == "" {
		return "", fmt.Errorf("%s has several chat templates and none that is the default: name one of %s",
			s.Path, strings.Join(s.Names(), ", "))
	}
	return "", fmt.Errorf("%s has no chat template %q: there are %s", s.Path, name, strings.Join(s.Names(), ", "))
}

// Parse reads all templates, so that an error is known before a conversation comes, and Render may be called from
// several goroutines.
func (s *Set) Parse() error {
	parsed := map[string]*jinja.Template{}
	for name, text := range s.texts {
		t, err := jinja.Parse(text)
		if err != nil {
			return s.refusal(name, err)
		}
		parsed[name] = t
	}
	s.parsed = parsed
	return nil
}

func (s *Set) refusal(name string, err error) error {
	e, ok := err.(*jinja.Error)
	if !ok {
		return err
	}
	path := s.Path
	if name != Default {
		path += ", template " + name
	}
	return &Refusal{path, e}
}

// Render gives the text that the model is to continue. What the template itself says against the conversation, or
// fails of, is a *Refusal.
func (s *Set) Render(in Input) (string, error) {
	name, err := s.pick(&in)
	if err != nil {
		return "", err
	}
	t := s.parsed[name]
	if t == nil {
		if t, err = jinja.Parse(s.texts[name]); err != nil {
			return "", s.refusal(name, err)
		}
	}
	vars := jinja.NewDict()
	for _, k := range slices.Sorted(mapKeys(s.Tokens)) {
		vars.Set(k, s.Tokens[k])
	}
	vars.Set("messages", in.Messages)
	vars.Set("tools", in.Tools)
	vars.Set("documents", in.Documents)
	vars.Set("add_generation_prompt", in.AddGenerationPrompt)
	if in.Vars != nil {
		in.Vars.Each(func(k, v any) { vars.Set(k, v) })
	}
	now := in.Now
	if now.IsZero() {
		now = time.Now()
	}
	text, err := t.Render(jinja.Env{Vars: vars, Now: now})
	if err != nil {
		return "", s.refusal(name, err)
	}
	return text, nil
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

//go:embed known/*.jinja
var knownFiles embed.FS

// KnownNames lists the templates that can be named for weights that come without one.
func KnownNames() []string {
	files, _ := fs.Glob(knownFiles, "known/*.jinja")
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "known/"), ".jinja")
	}
	return files
}

// Known gives one of the templates that can be named.
func Known(name string) (*Set, error) {
	data, err := knownFiles.ReadFile("known/" + name + ".jinja")
	if err != nil || strings.ContainsAny(name, "/\\") {
		return nil, fmt.Errorf("no chat template is named %q: there are %s; a file ends in .jinja",
			name, strings.Join(KnownNames(), ", "))
	}
	return New(name, string(data)), nil
}
