//go:build !nogpu

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/health"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/errlist"
)

// gpuCmds are verbs that only a program with GPUs has.
func (a *app) gpuCmds() []*cobra.Command { return []*cobra.Command{a.kernelsCmd()} }

func (a *app) kernelsCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "kernels",
		Short: "List, clear or build compiled GPU kernels",
		Long: `GPU kernels are compiled when they are first needed and kept in the user's
folder of caches: HIP's in greta/kernels, Vulkan's pipelines in greta/vulkan.
greta kernels build compiles HIP's ahead of time, also for cards that are not here.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("greta kernels has no verb %q; there are ls, clear, build and import-triton", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.kernelsListCmd(), a.kernelsClearCmd(), a.kernelsBuildCmd(), a.kernelsImportCmd())
	return c
}

// kernelLine is a file of compiled kernels.
type kernelLine struct {
	Backend string    `json:"backend"`
	What    string    `json:"what"`
	File    string    `json:"file"`
	Bytes   int64     `json:"bytes"`
	Used    time.Time `json:"used"`
}

// kernelFiles lists the cache of compiled kernels, or a folder of built ones.
func kernelFiles(dir string) ([]kernelLine, error) {
	var all []kernelLine
	cache := hip.DefaultCache()
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, usagef("%s is no folder", dir)
		}
		cache.Dir = dir
	}
	entries, err := cache.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		all = append(all, kernelLine{"hip", e.What, e.File, e.Size, e.Used})
	}
	if dir != "" {
		return all, nil
	}
	files, err := filepath.Glob(filepath.Join(pipelineFolder(), "*.pipelines"))
	if err != nil {
		return all, err
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			all = append(all, kernelLine{"vulkan", "pipelines of a device and driver", f, info.Size(), info.ModTime()})
		}
	}
	return all, nil
}

func (a *app) kernelsListCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls [DIR]",
		Short: "List compiled kernels: the caches', or those of a folder that was built",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := kernelFiles(strings.Join(args, ""))
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, append([]kernelLine{}, all...))
			}
			t := report.NewTable("<backend", "size", "<used", "<what")
			var sum int64
			for _, l := range all {
				t.Row(l.Backend, report.Bytes(float64(l.Bytes)), l.Used.Format("2006-01-02 15:04"), l.What)
				sum += l.Bytes
			}
			_, err = fmt.Fprintf(a.out, "%s%d files, %s\n", t, len(all), report.Bytes(float64(sum)))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func (a *app) kernelsClearCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "clear",
		Short: "Remove compiled kernels from the caches: they are compiled anew when needed",
		Args:  exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			all, err := kernelFiles("")
			if err != nil {
				return err
			}
			var sum int64
			for _, l := range all {
				if err := os.Remove(l.File); err != nil && !errors.Is(err, os.ErrNotExist) {
					return err
				}
				sum += l.Bytes
			}
			if asJSON {
				return writeJSON(a.out, map[string]int64{"files": int64(len(all)), "bytes": sum})
			}
			_, err = fmt.Fprintf(a.out, "%d files removed, %s\n", len(all), report.Bytes(float64(sum)))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// buildFlags are those of kernels build.
type buildFlags struct {
	arch, out, with    string
	models, types, set []string
	units, context     int
	json               bool
}

// What is built where nothing is said: models whose shapes most others share
// kernels with, in the types that files mostly have, for steps of decode, of a few
// tokens, and of prefill in whole and broken chunks.
var (
	builtModels = []string{"llama2_7b", "qwen3_8b", "mixtral_8x7b"}
	builtTypes  = []string{"f16", "bf16", "q8_0", "q4_0", "q4_K", "q6_K", "q4_k_m"}
	builtSteps  = []int{1, 2, 3, 5, 9, 64, 100, engine.DefaultChunk}
)

func (a *app) kernelsBuildCmd() *cobra.Command {
	f := &buildFlags{}
	c := &cobra.Command{
		Use:   "build --arch LIST -o DIR",
		Short: "Compile HIP kernels ahead of time, for cards that need not be here",
		Long: `build compiles to a folder what models need on an architecture of AMD (gfx942)
or NVIDIA (sm_90). With --kernels DIR (or GRETA_KERNELS) runs take kernels from
there and compile only what is not in it, so that a machine needs no compiler.

What a model needs is found by capturing its steps on a null device: model files
(--model, a name of a built-in one or a path) in each of --types, or weights
(a GGUF, a Hugging Face folder) in the types that they have. Weights of fp8, with
and without --fp8 at run time, must be named: --types f8e4m3.

--with rtc compiles by the platform's run-time compiler (hipRTC, NVRTC), which
must be installed; clang by clang 19 or newer with lld, which needs nothing of
the platform; auto takes the first that is there.`,
		Example: "  greta kernels build --arch gfx90a,gfx942,gfx1103,gfx1151 -o built\n  greta kernels build --arch " +
			"gfx1151 --model model.gguf -o built",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error { return a.buildKernels(c.Context(), f) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.arch, "arch", "", "architectures, with commas between: gfx90a,gfx942,gfx1103,gfx1151")
	s.StringVarP(&f.out, "out", "o", "", "folder that is written; what is there and whole is left")
	s.StringVar(&f.with, "with", "auto", "compiler: rtc, clang, auto")
	s.StringArrayVar(&f.models, "model", nil, "model file or weights that kernels are for (may be repeated; default: "+
		strings.Join(builtModels, " and ")+")")
	s.StringSliceVar(&f.types, "types", builtTypes, "types of weights that model files are built for, mixes as --dtype "+
		"has them included")
	s.StringArrayVar(&f.set, "set", nil, "set a parameter of the model files, NAME=VALUE (may be repeated)")
	s.IntVar(&f.units, "units", 0, "compute units of the card, by which work is divided (default: the best known card's)")
	s.IntVar(&f.context, "context", 0, "positions that the caches hold, by which work is divided (default: as for "+
		"greta run)")
	s.BoolVar(&f.json, "json", false, "write JSON")
	return c
}

// builtLine is what was built for an architecture.
type builtLine struct {
	Arch     string  `json:"arch"`
	Compiler string  `json:"compiler"`
	Programs int     `json:"programs"`
	Compiled int     `json:"compiled"`
	Kept     int     `json:"kept"` // were there already
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
}

func (a *app) buildKernels(ctx context.Context, f *buildFlags) error {
	archs := strings.FieldsFunc(f.arch, func(r rune) bool { return r == ',' || r == ' ' })
	switch {
	case len(archs) == 0:
		return usagef("--arch is missing: gfx942 or sm_90 are examples")
	case f.out == "":
		return usagef("-o is missing: the folder that is written")
	case !slices.Contains([]string{"auto", "rtc", "clang"}, f.with):
		return usagef("--with %s: there are rtc, clang and auto", f.with)
	case f.units < 0 || f.context < 0:
		return usagef("--units and --context must not be negative")
	}
	for _, name := range f.types {
		if !new(engine.Options).SetType(name) {
			return usage(noSuchType("--types", name))
		}
	}
	list := f.models
	if len(list) == 0 {
		list = builtModels
	}
	for _, arch := range archs { // before any is built, as that takes minutes
		err := f.builder(arch, func(b *hip.Builder, t *hip.Tool) error { return b.Try(ctx, t) })
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	var lines []builtLine
	for _, arch := range archs {
		err := f.builder(arch, func(b *hip.Builder, t *hip.Tool) error {
			line, err := a.buildFor(ctx, f, arch, b, t, list)
			lines = append(lines, line)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	if f.json {
		return writeJSON(a.out, lines)
	}
	t := report.NewTable("<architecture", "programs", "compiled", "kept", "size", "seconds", "<compiler")
	for _, l := range lines {
		t.Row(l.Arch, strconv.Itoa(l.Programs), strconv.Itoa(l.Compiled), strconv.Itoa(l.Kept),
			report.Bytes(float64(l.Bytes)), fmt.Sprintf("%.1f", l.Seconds), l.Compiler)
	}
	_, err := io.WriteString(a.out, t.String())
	return err
}

// builder calls do with a builder and a compiler for an architecture.
func (f *buildFlags) builder(arch string, do func(*hip.Builder, *hip.Tool) error) (err error) {
	b, err := hip.NewBuilder(arch, f.units)
	if err != nil {
		return usage(err)
	}
	defer func() { err = errlist.Join(err, b.Close()) }()
	tool, err := hip.FindTool(f.with, arch, self("compile"))
	if err != nil {
		return err
	}
	defer tool.Close()
	return do(b, tool)
}

func (a *app) buildFor(ctx context.Context, f *buildFlags, arch string, b *hip.Builder, tool *hip.Tool,
	list []string) (line builtLine, err error) {
	start := time.Now()
	if err := health.DryRun(b.Device()); err != nil { // a run checks paths before it uses them
		return line, err
	}
	for _, name := range list {
		if err := f.rehearse(b, name); err != nil {
			return line, fmt.Errorf("%s: %w", name, usage(err))
		}
	}
	bar := newBar(a.err, "compiling for "+arch)
	sum, err := b.Build(ctx, tool, f.out, func(n, of int, _ string) {
		bar.set(int64(n), int64(of))
	})
	bar.clear()
	if err != nil {
		return line, err
	}
	return builtLine{arch, tool.String(), b.Programs(), sum.Compiled, sum.Kept, sum.Bytes, time.Since(start).Seconds()},
		nil
}

// rehearse has the builder see what a model needs.
func (f *buildFlags) rehearse(b *hip.Builder, name string) (err error) {
	flags := modelFlags{kv: "f16", chunk: engine.DefaultChunk, context: f.context, set: f.set, cache: "off"}
	found := &bundle{}
	if found.opt, err = flags.options(); err != nil {
		return err
	}
	if err := flags.find(found, name); err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, found.close()) }()
	found.opt.Model, found.opt.Source, found.opt.Device = found.file, found.source, b.Device()
	found.fitContext(engine.DefaultChunk)
	types := f.types
	if found.source != nil {
		types = []string{""} // as stored
	}
	for _, t := range types {
		found.opt.SetType(t)
		err := b.WithPaths(func() error { return engine.DryRun(found.opt, builtSteps...) })
		if err != nil {
			return err
		}
	}
	return nil
}
