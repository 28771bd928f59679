package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/convert"
	"github.com/greta-project/greta/weights/imatrix"
	"github.com/greta-project/greta/weights/open"
	"github.com/greta-project/greta/weights/quant"
)

// quantizeReport is what quantize writes as JSON.
type quantizeReport struct {
	In        string         `json:"in"`
	Out       string         `json:"out"`
	Type      string         `json:"type"`
	Tensors   int            `json:"tensors"`
	Elements  int64          `json:"elements"`
	BytesIn   int64          `json:"bytes_in"`
	BytesOut  int64          `json:"bytes_out"`
	Bits      float64        `json:"bits_per_weight"`
	Types     map[string]int `json:"tensors_of_type"`
	Fallbacks []string       `json:"fallbacks"`
	// Unweighted are tensors of blocks that the importance matrix does not name.
	Unweighted []string `json:"unweighted,omitempty"`
	Notes      []string `json:"notes"`
	Tokenizer  bool     `json:"tokenizer"`
	Seconds    float64  `json:"seconds"`
}

func (a *app) quantizeCmd() *cobra.Command {
	var opt convert.Options
	var asJSON, force bool
	var model, importance string
	c := &cobra.Command{
		Use:   "quantize IN OUT.gguf",
		Short: "Convert weights to a GGUF file of another type",
		Long: `quantize reads a Hugging Face folder, a GGUF or a llama2.c file and writes a
GGUF file that other programs read too. The types, with llama.cpp's names and
mixes: ` + strings.Join(quant.RecipeNames(), ", ") + `.
Without --type the tensors keep theirs.

A folder of a family that GGUF has names for becomes a file that other programs read. Of
any other family that a model file describes (a built-in one, greta.yaml beside the
weights, or --model FILE.yaml) the new file keeps the folder's names, and greta reads it.`,
		Example: "  greta quantize FOLDER model-q4_k_m.gguf --type q4_k_m",
		Args:    exactly(2, "weights and a file to write"),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := quant.FindRecipe(opt.Type); opt.Type != "" && err != nil {
				return usagef("--type %s: there are %s", opt.Type, strings.Join(quant.RecipeNames(), ", "))
			}
			if _, err := os.Stat(args[1]); err == nil && !force {
				return usagef("%s exists; --force overwrites it", args[1])
			}
			if err := keepsInput(args[0], args[1]); err != nil {
				return err
			}
			from, err := localModel(c.Context(), a.err, args[0])
			if err != nil {
				return usage(err)
			}
			src, err := open.Open(from)
			if err != nil {
				return usage(err)
			}
			if opt.Matrices, err = matricesFor(src, from, model); err != nil {
				return usage(errlist.Join(err, src.Close()))
			}
			if importance != "" {
				if opt.Importance, err = imatrix.Read(importance); err != nil {
					return usage(errlist.Join(fmt.Errorf("--imatrix: %w", err), src.Close()))
				}
			}
			bar := newBar(a.err, "converting")
			opt.Progress = func(done, total int64, _ string) { bar.setCount(done, total) }
			opt.Stop = c.Context().Err
			start := time.Now()
			opt.Fresh = !force
			rep, err := convert.ToGGUF(src, args[1], opt)
			bar.clear()
			if errors.Is(err, fs.ErrExist) {
				err = fmt.Errorf("%s: somebody else wrote it meanwhile; --force overwrites it", args[1])
			}
			if err = errlist.Join(err, src.Close()); err != nil {
				return conversionError(err)
			}
			r := newQuantizeReport(args[0], args[1], opt.Type, rep, time.Since(start))
			if asJSON {
				return writeJSON(a.out, r)
			}
			_, err = fmt.Fprint(a.out, r.text())
			return err
		},
	}
	s := c.Flags()
	s.StringVar(&opt.Type, "type", "", "type of the matrices (default: as they are)")
	s.StringVar(&opt.Tokenizer, "tokenizer", "", "tokenizer.model or tokenizer.json to put into the file (default: the "+
		"one beside the weights)")
	s.StringVar(&model, "model", "", "model file of the folder's family; the new file keeps the folder's names")
	s.StringVar(&importance, "imatrix", "", "importance matrix (greta imatrix, or llama.cpp's .dat or .gguf): "+
		"columns that "+
		"matter more keep more precision")
	s.IntVar(&opt.Workers, "threads", 0, "threads (default: all cores)")
	s.BoolVar(&force, "force", false, "overwrite OUT")
	s.BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// matricesFor gives the tensors of a folder that a conversion may change, by the model file that is for it; nil where
// GGUF has names for the family and no file is given.
func matricesFor(src weights.Source, path, model string) (map[string]string, error) {
	if src.Dialect() != "hf" {
		if model != "" {
			return nil, fmt.Errorf("--model is for folders from Hugging Face: %s has GGUF's names already", path)
		}
		return nil, nil
	}
	if own := filepath.Join(path, "greta.yaml"); model == "" && exists(own) {
		model = own
	}
	if model == "" && convert.Named(src) {
		return nil, nil
	}
	var file *models.File
	var err error
	switch {
	case model == "":
		file, err = models.Match(src)
	case exists(model):
		file, err = models.Load(model)
	default:
		file, err = models.Builtin(model)
	}
	if err != nil {
		return nil, err
	}
	if err := file.Fits(src); err != nil {
		return nil, err
	}
	return file.Matrices(src)
}

// keepsInput refuses an output that is a file of the input.
func keepsInput(in, out string) error {
	to, err := os.Stat(out)
	if err != nil {
		return nil // nothing is there yet
	}
	for _, path := range filesOf(in) {
		if from, err := os.Stat(path); err == nil && os.SameFile(from, to) {
			return usagef("%s is read and would be overwritten; name another file to write", out)
		}
	}
	return nil
}

// conversionError tells trouble with writing, such as a full disk, from weights
// that cannot be converted.
func conversionError(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	var path *os.PathError
	if errors.As(err, &path) && path.Op == "write" {
		return err
	}
	return usage(err)
}

func newQuantizeReport(in, out, typ string, rep convert.Report, took time.Duration) *quantizeReport {
	r := &quantizeReport{
		In: in, Out: out, Type: typ, Tensors: rep.Tensors, Elements: rep.Elements, BytesIn: rep.BytesIn,
		BytesOut: rep.BytesOut,
		Types:    map[string]int{}, Fallbacks: rep.Fallbacks, Unweighted: rep.Unweighted, Notes: rep.Notes,
		Tokenizer: rep.HasTokenizer,
		Seconds:   took.Seconds(),
	}
	for t, n := range rep.Types {
		r.Types[t.String()] = n
	}
	r.Bits = 8 * float64(rep.BytesOut) / float64(max(rep.Elements, 1))
	return r
}

func (r *quantizeReport) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s -> %s\n", r.In, r.Out)
	fmt.Fprintf(&b, "%d tensors, %s -> %s, %.2f bits a weight, %.1f s\n", r.Tensors, report.Bytes(float64(r.BytesIn)),
		report.Bytes(float64(r.BytesOut)), r.Bits, r.Seconds)
	for _, t := range tensor.Types() {
		if n := r.Types[t.String()]; n > 0 {
			fmt.Fprintf(&b, "  %4d %s\n", n, t)
		}
	}
	for _, f := range r.Fallbacks {
		fmt.Fprintf(&b, "fallback: %s\n", f)
	}
	for _, f := range r.Unweighted {
		fmt.Fprintf(&b, "without importance: %s\n", f)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	if !r.Tokenizer {
		b.WriteString("note: no tokenizer was found: the file holds none\n")
	}
	return b.String()
}
