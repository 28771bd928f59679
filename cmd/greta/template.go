package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/chat/jinja"
	"github.com/greta-project/greta/chat/template"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/weights/open"
)

// templateFlags are those of greta template.
type templateFlags struct {
	messages, tools string
	bos, eos, now   string
	name            string
	generation      bool
	vars            []string
	json, list      bool
}

func (a *app) templateCmd() *cobra.Command {
	var f templateFlags
	c := &cobra.Command{
		Use:   "template MODEL|FILE.jinja --messages FILE|-",
		Short: "Print what a chat template makes of a conversation",
		Long: `MODEL is a GGUF file or a Hugging Face folder; its template comes with it. --messages is
JSON: a list of messages, or an object with "messages" and whatever else the template is to
see, such as "tools" and "enable_thinking". The text is printed as it is, without a newline
behind it. What the template says against the conversation is an error with exit code 2.`,
		Args: exactly(1, "a model or a template"),
		RunE: func(c *cobra.Command, args []string) error {
			return usage(a.template(c, &f, args[0]))
		},
	}
	s := c.Flags()
	s.StringVar(&f.messages, "messages", "", "file with the conversation; - is standard input")
	s.StringVar(&f.tools, "tools", "", "file with a list of tools")
	s.StringVar(&f.bos, "bos", "", "text of the begin token (default: the model's)")
	s.StringVar(&f.eos, "eos", "", "text of the end token (default: the model's)")
	s.StringVar(&f.now, "now", "", "time that strftime_now formats, such as 2026-01-02T03:04:05 (default: now)")
	s.BoolVar(&f.generation, "add-generation-prompt", false, "end where the model's answer begins")
	s.StringVar(&f.name, "name", "", "which of several templates (default: tool_use where there are tools and such a one)")
	s.StringArrayVar(&f.vars, "var", nil, "set a variable of the template, NAME=JSON (may be repeated)")
	s.String("chat-template", "", chatTemplateUsage)
	s.BoolVar(&f.list, "list", false, "list the names of the templates instead")
	s.BoolVar(&f.json, "json", false, "write JSON")
	return c
}

var chatTemplateUsage = "use this chat template instead of the model's: a .jinja file, or one of the known: " +
	strings.Join(template.KnownNames(), ", ") + " (texts: what is said alone, a line each)"

// openTemplates finds the chat templates of a model or a .jinja file; named replaces them.
func openTemplates(arg, named string) (*template.Set, error) {
	var own *template.Set
	var err error
	switch st, statErr := os.Stat(arg); {
	case statErr != nil:
		return nil, statErr
	case st.IsDir() && !holdsGGUF(arg):
		own, err = template.OpenFolder(arg)
	case strings.HasSuffix(arg, ".jinja") || strings.HasSuffix(arg, ".j2"):
		own, err = template.OpenFile(arg)
	default:
		src, openErr := open.Open(arg)
		if openErr != nil {
			return nil, openErr
		}
		defer src.Close()
		own, err = template.FromSource(src)
	}
	return replaceTemplates(own, err, named)
}

// replaceTemplates takes the templates that --chat-template names, if it does, with the tokens of the model.
func replaceTemplates(own *template.Set, err error, named string) (*template.Set, error) {
	var none *template.None
	if named == "" || err != nil && !errors.As(err, &none) {
		return own, err
	}
	other, err := template.Named(named)
	if err != nil {
		return nil, fmt.Errorf("--chat-template: %w", err)
	}
	return own.Replace(other), nil
}

// holdsGGUF says whether a folder's weights are a GGUF file, without a configuration beside it.
func holdsGGUF(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*.gguf"))
	return len(files) > 0 && !exists(filepath.Join(dir, "config.json")) &&
		!exists(filepath.Join(dir, "tokenizer_config.json"))
}

func (a *app) template(c *cobra.Command, f *templateFlags, arg string) error {
	arg, err := localModel(c.Context(), a.err, arg)
	if err != nil {
		return err
	}
	set, err := openTemplates(arg, c.Flag("chat-template").Value.String())
	if err != nil {
		return err
	}
	if f.list {
		if f.json {
			return writeJSON(a.out, set.Names())
		}
		_, err = fmt.Fprintln(a.out, strings.Join(set.Names(), "\n"))
		return err
	}
	in, err := a.templateInput(c, f)
	if err != nil {
		return err
	}
	if c.Flags().Changed("bos") {
		set.Tokens["bos_token"] = f.bos
	}
	if c.Flags().Changed("eos") {
		set.Tokens["eos_token"] = f.eos
	}
	text, err := set.Render(*in)
	if f.json {
		out := map[string]any{"text": text}
		if err != nil {
			out = map[string]any{"error": err.Error()}
		}
		if werr := writeJSON(a.out, out); werr != nil {
			return werr
		}
		return err
	}
	if err == nil {
		_, err = fmt.Fprint(a.out, text)
	}
	return err
}

// templateInput reads the conversation and what goes with it.
func (a *app) templateInput(c *cobra.Command, f *templateFlags) (*template.Input, error) {
	if f.messages == "" {
		return nil, usagef("--messages is missing: a file with the conversation, or -")
	}
	in := &template.Input{Name: f.name, AddGenerationPrompt: f.generation, Vars: jinja.NewDict()}
	v, err := a.readValue("--messages", f.messages)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *jinja.List:
		in.Messages = v
	case *jinja.Dict:
		v.Each(func(k, x any) { takeVar(in, k.(string), x) })
		if in.Messages == nil {
			return nil, usagef("--messages: the object has no \"messages\"")
		}
	default:
		return nil, usagef("--messages: expected a list of messages, or an object with \"messages\"")
	}
	if c.Flags().Changed("add-generation-prompt") {
		in.AddGenerationPrompt = f.generation
	}
	if f.tools != "" {
		if in.Tools, err = a.readValue("--tools", f.tools); err != nil {
			return nil, err
		}
		if _, ok := in.Tools.(*jinja.List); !ok {
			return nil, usagef("--tools: expected a list of tools")
		}
	}
	for _, v := range f.vars {
		if err := setVar(in.Vars, "--var", v); err != nil {
			return nil, err
		}
	}
	if f.now != "" {
		in.Now, err = parseNow(f.now)
	}
	return in, err
}

// takeVar takes what the object of a conversation has beside its messages.
func takeVar(in *template.Input, name string, v any) {
	switch name {
	case "messages":
		in.Messages = v
	case "tools":
		in.Tools = v
	case "documents":
		in.Documents = v
	case "add_generation_prompt":
		in.AddGenerationPrompt = v == true
	default:
		in.Vars.Set(name, v)
	}
}

func (a *app) readValue(flag, path string) (any, error) {
	var text string
	var err error
	if path == "-" {
		text, err = readText(a.in, mostText)
	} else {
		var data []byte
		data, err = plainfile.Read(path)
		text = string(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	v, err := jinja.FromJSON([]byte(text))
	if err != nil {
		return nil, usagef("%s: %s is no JSON: %v", flag, path, err)
	}
	return v, nil
}

// parseNow reads a time, in the local zone where none is given.
func parseNow(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04",
		"2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.Unix(n, 0), nil
	}
	return time.Time{}, usagef("--now %s: a time such as 2026-01-02T03:04:05 is expected", s)
}
