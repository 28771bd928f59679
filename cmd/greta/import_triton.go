//go:build !nogpu

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
)

//go:embed python/import_triton.py
var importTriton string

// tritonKernel is what import_triton.py says of a kernel for a target.
type tritonKernel struct {
	Name      string           `json:"name"`
	Arch      string           `json:"arch"`
	Kind      string           `json:"kind"`
	Warp      int              `json:"warp"`
	Constants map[string][]int `json:"constants"`
	Variants  []struct {
		Constants map[string]int `json:"constants"`
		File      string         `json:"file"`
		Shared    int            `json:"shared"`
		More      int            `json:"more"` // parameters behind those of the source: pointers to nothing
		Entry     string         `json:"entry"`
		Block     int            `json:"block"`
	} `json:"variants"`
	Triton    string         `json:"triton"`
	Op        string         `json:"op"`
	Equation  string         `json:"equation"`
	Args      []any          `json:"args"`
	Grid      any            `json:"grid"`
	Types     map[string]any `json:"types"`
	When      string         `json:"when"`
	Tolerance float64        `json:"tolerance"`
	Always    bool           `json:"always"`
}

// importLimit is how long Python may take: every variant is compiled.
const importLimit = 10 * time.Minute

func (a *app) kernelsImportCmd() *cobra.Command {
	var python, out, arch string
	c := &cobra.Command{
		Use:   "import-triton FILE.py",
		Short: "Compile kernels of Triton's for use in model files",
		Long: `import-triton runs a file of Python's with Triton, compiles the kernels that it
describes, and writes the code (cubin or hsaco) with a file NAME.yaml of kernels:
beside it, which a model file takes over: kernels: {use: NAME}. The card need not
be here. The file says of each kernel what a model file would:

  greta = {"rms": {"op": "rmsnorm", "args": ["x", "w", "y", "D", "f32(eps)"],
                   "grid": "rows", "constants": {"BLOCK": [512, 1024], "num_warps": 4}}}`,
		Example: `  greta kernels import-triton examples/kernels/rms_triton.py --arch sm_90,gfx942 -o kernels`,
		Args:    exactly(1, "a file of Python's"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.importTriton(c.Context(), args[0], python, out, arch)
		},
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&arch, "arch", "", "targets, sm_90,gfx942 (default: that of the card that is here)")
	s.StringVar(&python, "python", "python3", "the Python that has Triton")
	s.StringVarP(&out, "out", "o", "", "folder for what is written (default: that of FILE.py)")
	return c
}

func (a *app) importTriton(ctx context.Context, path, python, out, arch string) error {
	switch info, err := os.Stat(path); {
	case err != nil:
		return usage(err)
	case !info.Mode().IsRegular() || filepath.Ext(path) != ".py":
		return usagef("%s: a file of Python's is expected, which ends in .py", path)
	}
	if out == "" {
		out = filepath.Dir(path)
	}
	if arch == "" {
		list, _ := hip.List()
		if len(list) == 0 {
			return usagef("there is no card here whose target could be taken: --arch sm_90 or --arch gfx942 names one")
		}
		arch = list[0].Arch
	}
	if _, err := exec.LookPath(python); err != nil {
		return usagef("--python %s: %v", python, err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	kernels, err := runTriton(ctx, python, path, out, strings.Split(arch, ","))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	stem := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	text, err := tritonYAML(filepath.Base(path), kernels)
	if err != nil {
		return err
	}
	file := filepath.Join(out, stem+".yaml")
	if err := atomicfile.Write(file, text, 0o644); err != nil {
		return err
	}
	if copied := filepath.Join(out, filepath.Base(path)); out != filepath.Dir(path) {
		source, err := plainfile.Read(path)
		if err == nil {
			err = atomicfile.Write(copied, source, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if _, err := models.LoadKernels(file); err != nil {
		return fmt.Errorf("what %s says of its kernels cannot be used: %w", path, err)
	}
	for _, k := range kernels {
		fmt.Fprintf(a.out, "%s for %s: %d variants of %s, Triton %s\n", k.Name, k.Arch, len(k.Variants), k.Kind, k.Triton)
	}
	_, err = fmt.Fprintf(a.out, "%s: kernels: {use: %s} in a model file beside it takes them\n", file, stem)
	return err
}

// runTriton runs the script and reads its answer.
func runTriton(ctx context.Context, python, path, out string, archs []string) ([]tritonKernel, error) {
	operands := map[string]map[string]string{}
	for _, o := range ops.All() {
		all := map[string]string{}
		for _, x := range slices.Concat(o.Sig.In, o.Sig.Out) {
			all[x.Name] = "f32"
			if x.Type == "i32" {
				all[x.Name] = "i32"
			}
		}
		operands[o.Name] = all
	}
	table, err := json.Marshal(operands)
	if err != nil {
		return nil, err
	}
	answer, err := runPython(ctx, importLimit, python, importTriton,
		append([]string{path, out, string(table)}, archs...)...)
	if err != nil {
		return nil, err
	}
	var wrong struct{ Error string }
	if json.Unmarshal(answer, &wrong) == nil && wrong.Error != "" {
		return nil, errors.New(wrong.Error)
	}
	var kernels []tritonKernel
	if err := json.Unmarshal(answer, &kernels); err != nil {
		return nil, fmt.Errorf("%s said what is no list of kernels: %.200q", python, answer)
	}
	return kernels, nil
}

// tritonYAML writes the descriptions as a file of kernels:.
func tritonYAML(from string, kernels []tritonKernel) ([]byte, error) {
	all := map[string]any{}
	for _, k := range kernels {
		if len(k.Variants) == 0 {
			return nil, fmt.Errorf("%s has no variant", k.Name)
		}
		names := constantNames(k)
		file := k.Name + "." + k.Arch
		for _, c := range names {
			file += ".$" + c
		}
		args := slices.Clone(k.Args)
		for range k.Variants[0].More {
			args = append(args, nil)
		}
		d := map[string]any{"op": k.Op, "source": file + "." + k.Kind, "entry": k.Variants[0].Entry, "arch": k.Arch,
			"args": args, "grid": k.Grid, "block": fmt.Sprintf("%d*num_warps", k.Warp), "constants": k.Constants}
		if s := sharedOf(k, names); s != "0" {
			d["shared"] = s
		}
		for key, v := range map[string]any{"equation": k.Equation, "when": k.When} {
			if v != "" {
				d[key] = v
			}
		}
		if k.Types != nil {
			d["types"] = k.Types
		}
		if k.Tolerance != 0 {
			d["tolerance"] = k.Tolerance
		}
		if k.Always {
			d["always"] = true
		}
		all[k.Name+"_"+k.Arch] = d
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by greta kernels import-triton from %s; Triton %s.\n", from, kernels[0].Triton)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(map[string]any{"kernels": all})
	return b.Bytes(), errlist.Join(err, e.Close())
}

// constantNames are a kernel's constants in the order of its files' names.
func constantNames(k tritonKernel) []string {
	var names []string
	for name := range k.Constants {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// sharedOf is the shared memory of all variants as an expression of their constants.
func sharedOf(k tritonKernel, names []string) string {
	last := fmt.Sprint(k.Variants[len(k.Variants)-1].Shared)
	text := last
	for _, v := range slices.Backward(k.Variants) {
		if fmt.Sprint(v.Shared) == last {
			continue
		}
		var when []string
		for _, n := range names {
			when = append(when, fmt.Sprintf("%s == %d", n, v.Constants[n]))
		}
		text = fmt.Sprintf("%d if %s else %s", v.Shared, strings.Join(when, " and "), text)
	}
	return text
}
