package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
)

func (a *app) dumpCmd() *cobra.Command {
	f := &modelFlags{}
	var stage, format string
	var tokens int
	var asJSON bool
	c := &cobra.Command{
		Use:   "dump MODEL",
		Short: "Print a model at a stage between file and launches",
		Long: `dump prints a step at one of the stages
  spec     the parameters, as the file and the weights resolve them
  graph    the graph as the file says it
  fused    the graph as lowered for the backend
  plan     the memory of the step, and the kernel of each node with the reason for it
  program  the launches with their kernels
No weights are loaded. The text is stable and made for diffs.`,
		Args: exactly(1, "one model"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkDump(stage, format, tokens); err != nil {
				return err
			}
			b, err := f.open(c.Context(), a.err, args[0])
			if err != nil {
				return err
			}
			text, err := dumpText(b, stage, format, tokens)
			if err != nil {
				return errlist.Join(err, b.close())
			}
			if asJSON {
				err = writeJSON(a.out, map[string]string{"stage": stage, "format": format, "text": text})
			} else {
				_, err = io.WriteString(a.out, text)
			}
			return errlist.Join(err, b.close())
		},
	}
	s := c.Flags()
	s.SortFlags = false
	f.register(s)
	s.StringVar(&stage, "stage", "graph", "one of "+strings.Join(engine.Stages, ", "))
	s.IntVar(&tokens, "tokens-per-step", 1, "tokens in the step")
	s.StringVar(&format, "format", "text", "text, or dot (graph and fused): Graphviz's language")
	s.BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// checkDump refuses what cannot be printed.
func checkDump(stage, format string, tokens int) error {
	switch {
	case !slices.Contains(engine.Stages, stage):
		return usagef("--stage %s: there are %s", stage, strings.Join(engine.Stages, ", "))
	case format != "text" && format != "dot":
		return usagef("--format %s: there are text and dot", format)
	case tokens < 1:
		return usagef("--tokens-per-step %d: it must be positive", tokens)
	}
	return nil
}

// dumpText prints a step of so many tokens at a stage.
func dumpText(b *bundle, stage, format string, tokens int) (string, error) {
	if err := checkDump(stage, format, tokens); err != nil {
		return "", err
	}
	b.fitContext(tokens)
	print := engine.Dump
	if format == "dot" {
		print = engine.DumpDot
	}
	text, err := print(b.opt, stage, tokens)
	return text, loadError(err)
}
