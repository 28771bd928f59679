package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/weights/convert"
	"github.com/greta-project/greta/weights/open"
	"github.com/greta-project/greta/weights/quant"
)

// mergeFlags are those of export gguf.
type mergeFlags struct {
	lora  []string
	typ   string
	model string
}

// check refuses what export gguf cannot do.
func (g *mergeFlags) check(c *cobra.Command, args []string, out string) error {
	switch _, err := quant.FindRecipe(g.typ); {
	case len(args) != 2:
		return usagef("%s gguf takes weights: a folder or a file", c.CommandPath())
	case len(g.lora) == 0:
		return usagef("export gguf merges adapters: name one by --lora (greta quantize converts weights as they are)")
	case out == "" || out == "-":
		return usagef("export gguf needs a file to write: --out FILE.gguf")
	case g.typ != "" && err != nil:
		return usagef("--type %s: there are %s", g.typ, strings.Join(quant.RecipeNames(), ", "))
	}
	var other []string
	for _, name := range []string{"bench", "since"} {
		if c.Flags().Changed(name) {
			other = append(other, "--"+name)
		}
	}
	if len(other) > 0 {
		return usagef("%s: it chooses results, and export gguf writes weights", other[0])
	}
	if _, err := os.Stat(out); err == nil {
		return usagef("%s exists", out)
	}
	return nil
}

// exportGGUF writes weights with adapters merged.
func (a *app) exportGGUF(ctx context.Context, g *mergeFlags, in, out string) error {
	src, err := open.Open(in)
	if err != nil {
		return usage(err)
	}
	matrices, err := matricesFor(src, in, g.model)
	if err != nil {
		return usage(errlist.Join(err, src.Close()))
	}
	src, err = withAdapters(src, g.lora)
	if err != nil {
		return usage(errlist.Join(err, src.Close()))
	}
	bar := newBar(a.err, "merging")
	opt := convert.Options{Type: g.typ, Stop: ctx.Err, Matrices: matrices}
	opt.Progress = func(done, total int64, _ string) { bar.setCount(done, total) }
	start := time.Now()
	rep, err := convert.ToGGUF(src, out, opt)
	bar.clear()
	if err = errlist.Join(err, src.Close()); err != nil {
		return conversionError(err)
	}
	_, err = fmt.Fprint(a.out, newQuantizeReport(in+" with "+strings.Join(g.lora, ", "), out, g.typ, rep,
		time.Since(start)).text())
	return err
}
