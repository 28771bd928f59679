package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/open"
)

// tensorLine describes a tensor of a weights file.
type tensorLine struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"` // slowest-varying first
	Bytes int    `json:"bytes"`
}

// maxShown bounds how much of a long metadata value is printed.
const maxShown = 8

func (a *app) showCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show WEIGHTS",
		Short: "Print what a weights file holds: metadata and tensors",
		Args:  exactly(1, "a GGUF file, a Hugging Face folder, or a llama2.c file"),
		RunE: func(c *cobra.Command, args []string) error {
			from, err := localModel(c.Context(), a.err, args[0])
			if err != nil {
				return usage(err)
			}
			src, err := open.Open(from)
			if err != nil {
				return usage(err)
			}
			tensors, total := tensorLines(src)
			if asJSON {
				meta := map[string]any{}
				for _, k := range src.Keys() {
					meta[k], _ = src.Meta(k)
				}
				err = writeJSON(a.out, map[string]any{"path": src.Path(), "format": src.Format(), "metadata": meta,
					"tensors": tensors, "bytes": total})
			} else {
				_, err = io.WriteString(a.out, sourceText(src, tensors, total))
			}
			return errlist.Join(err, src.Close())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON, with long values whole")
	return c
}

func tensorLines(src weights.Source) (lines []tensorLine, total int) {
	for _, name := range src.Names() {
		t, shape, ok := src.Lookup(name)
		if !ok {
			continue
		}
		n, _ := shape.Bytes(t)
		total += n
		lines = append(lines, tensorLine{name, t.String(), shape, n})
	}
	return lines, total
}

func sourceText(src weights.Source, tensors []tensorLine, total int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %d tensors, %s\n\n", src.Path(), src.Format(), len(tensors), report.Bytes(float64(total)))
	meta := report.NewTable("<key", "<value")
	for _, k := range src.Keys() {
		v, _ := src.Meta(k)
		meta.Row(k, metaText(v))
	}
	b.WriteString(meta.String() + "\n")
	t := report.NewTable("<tensor", "<type", "<shape", "size")
	for _, l := range tensors {
		t.Row(l.Name, l.Type, fmt.Sprint(l.Shape), report.Bytes(float64(l.Bytes)))
	}
	b.WriteString(t.String())
	return b.String()
}

// metaText prints a metadata value on one line, the beginning of a long list.
func metaText(v any) string {
	switch v := v.(type) {
	case string:
		const most = 100
		if r := []rune(v); len(r) > most {
			return fmt.Sprintf("%q … (%d characters)", string(r[:most]), len(r))
		}
		return fmt.Sprintf("%q", v)
	case []string:
		return listText(v, "%q")
	case []int64:
		return listText(v, "%d")
	case []float64:
		return listText(v, "%g")
	case []bool:
		return listText(v, "%t")
	}
	return fmt.Sprint(v)
}

func listText[E any](v []E, format string) string {
	parts := make([]string, 0, maxShown)
	for _, e := range v[:min(len(v), maxShown)] {
		parts = append(parts, fmt.Sprintf(format, e))
	}
	text := "[" + strings.Join(parts, ", ")
	if len(v) > maxShown {
		text += fmt.Sprintf(", … (%d)", len(v))
	}
	return text + "]"
}
