package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/hub"
)

// hubCmds are the verbs that get models and keep them.
func (a *app) hubCmds() []*cobra.Command {
	return []*cobra.Command{a.pullCmd(), a.listCmd(), a.removeCmd(), a.copyCmd()}
}

const hubNames = `hf:ORG/NAME[:QUANT][@REVISION] is a repository of Hugging Face: its safetensors, or the GGUF file of
a quantisation. ollama:NAME[:TAG] is one of Ollama's registry. https://… is a file, checked where
#sha256=… stands behind it.`

func (a *app) pullCmd() *cobra.Command {
	var registry string
	var parallel int
	var asJSON bool
	c := &cobra.Command{
		Use:   "pull NAME",
		Short: "Get a model from a hub",
		Long: hubNames + ` What broke off goes on where it was; every
file is checked by its hash. Models lie where the hubs' own tools keep them (HF_HOME,
HF_HUB_CACHE, OLLAMA_MODELS). HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE are heeded. All
verbs take such names in place of a model's path.`,
		Args: exactly(1, "a model's name"),
		RunE: func(c *cobra.Command, args []string) error {
			h, done, err := a.hub()
			if err != nil {
				return err
			}
			defer done()
			if parallel < 1 || parallel > 64 {
				return usagef("--parallel %d: it is between 1 and 64", parallel)
			}
			h.Parallel = parallel
			if registry != "" {
				h.Registry = registry
			}
			path, err := h.Pull(c.Context(), args[0])
			if err != nil {
				return hubError(args[0], err)
			}
			if done(); asJSON {
				return writeJSON(a.out, map[string]string{"name": args[0], "path": path})
			}
			_, err = fmt.Fprintln(a.out, path)
			return err
		},
	}
	s := c.Flags()
	s.StringVar(&registry, "registry", "", "address of another registry for ollama: names")
	s.IntVar(&parallel, "parallel", 4, "parts of a file that are got at once")
	s.BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// hubError makes a wrong name bad input; what a server does is a failure.
func hubError(name string, err error) error {
	if _, parse := hub.Parse(name); parse != nil {
		return usage(err)
	}
	var refused *hub.Refused
	if errors.As(err, &refused) && refused.Status == 404 {
		return usage(err)
	}
	return err
}

// hub gives the hub with its progress on standard error; done takes the bar away.
func (a *app) hub() (*hub.Hub, func(), error) { return openHub(a.err) }

func openHub(errw io.Writer) (*hub.Hub, func(), error) {
	h, err := hub.New()
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	var b *bar
	name := ""
	h.Progress = func(what string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if what != name {
			b.clear()
			if name, b = what, newBar(errw, what); b == nil {
				fmt.Fprintf(errw, "greta: getting %s, %s\n", what, report.Bytes(float64(total)))
			}
		}
		b.set(done, total)
	}
	h.Notify = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		b.clear()
		fmt.Fprintf(errw, "greta: %s\n", text)
	}
	return h, func() {
		mu.Lock()
		defer mu.Unlock()
		b.clear()
	}, nil
}

// localModel gets a model that is named as one of a hub; other paths stay as they are.
func localModel(ctx context.Context, errw io.Writer, arg string) (string, error) {
	if !hub.Is(arg) {
		return arg, nil
	}
	h, done, err := openHub(errw)
	if err != nil {
		return "", err
	}
	defer done()
	path, err := h.Pull(ctx, arg)
	if err != nil {
		if err = hubError(arg, err); exitCode(err) == exitFailed {
			err = &exitError{code: exitFailed, err: err} // the input is not at fault
		}
	}
	return path, err
}

func (a *app) listCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the models that were got from hubs",
		Args:  exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			h, done, err := a.hub()
			if err != nil {
				return err
			}
			defer done()
			all, err := h.List()
			if err != nil {
				return err
			}
			if asJSON {
				if all == nil {
					all = []hub.Model{}
				}
				return writeJSON(a.out, all)
			}
			t := report.NewTable("<name", "size", "<got")
			for _, m := range all {
				t.Row(m.Name, report.Bytes(float64(m.Bytes)), m.Time.Format("2006-01-02"))
			}
			_, err = fmt.Fprint(a.out, t.String())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func (a *app) removeCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove models that were got from hubs",
		Long:  "NAME is as greta list writes it.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("greta rm takes names of models; see greta list")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			h, done, err := a.hub()
			if err != nil {
				return err
			}
			defer done()
			gone := []hub.Model{}
			for _, name := range args {
				m, err := h.Remove(name)
				if err != nil {
					return usage(err)
				}
				if gone = append(gone, m); !asJSON {
					fmt.Fprintf(a.err, "greta: removed %s, %s\n", m.Name, report.Bytes(float64(m.Bytes)))
				}
			}
			if asJSON {
				return writeJSON(a.out, gone)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func (a *app) copyCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "cp NAME PATH",
		Short: "Copy a model that was got from a hub to a file or folder",
		Long:  "PATH is a folder if it is one or ends in a slash. What is there already is not overwritten.",
		Args:  exactly(2, "a model's name and a path"),
		RunE: func(c *cobra.Command, args []string) error {
			h, done, err := a.hub()
			if err != nil {
				return err
			}
			defer done()
			if err := h.Copy(c.Context(), args[0], args[1]); err != nil {
				return usage(err)
			}
			if asJSON {
				return writeJSON(a.out, map[string]string{"name": args[0], "path": args[1]})
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}
