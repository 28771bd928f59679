//go:build !nogpu

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
)

// stubPython is a program in Python's place that gives an answer and writes a file.
func stubPython(t *testing.T, answer string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	text := "#!/bin/sh\necho code > \"$3\"/rms.sm_90.64.4.cubin\ncat <<'END'\n" + answer + "\nEND\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

const tritonAnswer = `[{"name": "rms", "arch": "sm_90", "kind": "cubin", "warp": 32, "triton": "3", "op": "rmsnorm",
 "args": ["x", "w", "y", "D", "f32(eps)"], "grid": "rows", "constants": {"BLOCK": [64, 128], "num_warps": [4]},
 "variants": [
 {"constants": {"BLOCK": 64, "num_warps": 4}, "file": "", "shared": 8, "more": 2, "entry": "rms_0", "block": 128},
 {"constants": {"BLOCK": 128, "num_warps": 4}, "file": "", "shared": 16, "more": 2, "entry": "rms_0", "block": 128}]}]`

// TestImportTriton: what Triton compiled becomes a description that a model file takes over with use:.
func TestImportTriton(t *testing.T) {
	py, out := testfiles.Repo(t, "examples", "kernels", "rms_triton.py"), t.TempDir()
	r := greta(t, "kernels", "import-triton", py, "--arch", "sm_90", "--out", out, "--python", stubPython(t, tritonAnswer))
	if r.code != 0 || !strings.Contains(r.out, "kernels: {use: rms_triton}") {
		t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	all, err := models.LoadKernels(filepath.Join(out, "rms_triton.yaml"))
	if err != nil || len(all) != 1 || all[0].Arch != "sm_90" || all[0].Entry != "rms_0" || len(all[0].Args) != 7 {
		t.Fatal(all, err)
	}
	i, err := all[0].Instance(map[string]int{"BLOCK": 64, "num_warps": 4})
	if err != nil || string(i.Code) != "code\n" {
		t.Fatal(err)
	}
	block, err := os.ReadFile(testfiles.Repo(t, "examples", "kernels", "block.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(block), "kernels:\n  rms:")
	model := filepath.Join(out, "model.yaml")
	if err := os.WriteFile(model, []byte(text+"kernels: {use: rms_triton}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r = greta(t, "dump", "--stage", "plan", model)
	if r.code != 0 || !strings.Contains(r.err, "kernel rms_sm_90 of "+out) ||
		!strings.Contains(r.err, "the cpu backend takes no kernels of one's own; --backend hip runs it") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	for want, args := range map[string][]string{
		"no such file": {"gone.py", "--arch", "sm_90"},
		"block.yaml: a file of Python's is expected": {testfiles.Repo(t, "examples", "kernels", "block.yaml"), "--arch",
			"sm_90"},
		out + ": a file of Python's is expected": {out, "--arch", "sm_90"},
		"--python /no/such":                      {py, "--arch", "sm_90", "--python", "/no/such"},
		"BLOCK is missing": {py, "--arch", "sm_90", "--python",
			stubPython(t, `{"error": "BLOCK is missing"}`)},
		"no list of kernels": {py, "--arch", "sm_90", "--python", stubPython(t, "hello")},
		"cannot be used": {py, "--arch", "sm_90", "--python",
			stubPython(t, strings.ReplaceAll(tritonAnswer, "eps", "ep"))},
		"takes a file of Python's": {},
	} {
		args = append([]string{"kernels", "import-triton", "--out", t.TempDir()}, args...)
		if r := greta(t, args...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %q is wanted:\n%s", args, r.code, want, r.err)
		}
	}
}

// TestImportTritonReally compiles the example with the Triton of the Python that GRETA_TRITON names, for two vendors.
func TestImportTritonReally(t *testing.T) {
	python := os.Getenv("GRETA_TRITON")
	if python == "" {
		t.Skip("GRETA_TRITON names no Python with Triton")
	}
	out := t.TempDir()
	r := greta(t, "kernels", "import-triton", testfiles.Repo(t, "examples", "kernels", "rms_triton.py"), "--arch",
		"sm_90,gfx942", "--out", out, "--python", python)
	if r.code != 0 || !strings.Contains(r.out, "rms for sm_90: 6 variants of cubin") ||
		!strings.Contains(r.out, "rms for gfx942: 6 variants of hsaco") {
		t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	all, err := models.LoadKernels(filepath.Join(out, "rms_triton.yaml"))
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	for _, k := range all {
		for _, v := range k.Variants() {
			if i, err := k.Instance(v); err != nil || !strings.HasPrefix(string(i.Code), "\x7fELF") {
				t.Errorf("%v %v: %v", k, v, err)
			}
		}
	}
	bad := write(t, "bad.py", "import triton\nimport triton.language as tl\n@triton.jit\ndef f(x, y, N: tl.constexpr):\n"+
		"    tl.store(y, tl.load(x))\ngreta = {'f': {'op': 'silu', 'args': ['x', 'y'], 'grid': 1}}\n")
	for want, change := range map[string]*strings.Replacer{
		"constants: N of the function is missing":    strings.NewReplacer(),
		"there is no operator sil;":                  strings.NewReplacer("'silu'", "'sil'"),
		"f: g is no function with @triton.jit":       strings.NewReplacer("'grid': 1", "'grid': 1, 'kernel': 'g'"),
		"op, args and grid are expected":             strings.NewReplacer("'grid': 1", "'grd': 1"),
		"says nothing of its kernels":                strings.NewReplacer("greta =", "other ="),
		"NameError":                                  strings.NewReplacer("greta =", "greta = nothing or"),
		"args: nothing is given for the parameter y": strings.NewReplacer("['x', 'y']", "['x']"),
		"args: 3: the function has no more parameters": strings.NewReplacer("['x', 'y']", "['x', 'y', 3]", "'grid': 1",
			"'grid': 1, 'constants': {'N': 1}"),
		"constants: the function has no M": strings.NewReplacer("'grid': 1",
			"'grid': 1, 'constants': {'N': 1, 'M': 2}"),
		"types: x: one of f32, f16, bf16, i32, f64, f8_": strings.NewReplacer("'grid': 1",
			"'grid': 1, 'types': {'x': 'f99'}"),
	} {
		text, err := os.ReadFile(bad)
		if err != nil {
			t.Fatal(err)
		}
		path := write(t, "changed.py", change.Replace(string(text)))
		r := greta(t, "kernels", "import-triton", path, "--arch", "sm_90", "--python", python)
		if r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("exit code %d, %q is wanted:\n%s", r.code, want, r.err)
		}
	}
	if r := greta(t, "kernels", "import-triton", bad, "--arch", "tpu", "--python", python); !strings.Contains(r.err,
		"--arch tpu: sm_90 or gfx942") && !strings.Contains(r.err, "constants: N") {
		t.Error(r.err)
	}
}
