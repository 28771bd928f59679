package hip_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// small is a model file with sizes that take a moment.
func small(t *testing.T, dev interface{ Close() error }) engine.Options {
	t.Helper()
	file, err := models.Builtin("llama2_block")
	if err != nil {
		t.Fatal(err)
	}
	return engine.Options{Model: file, Context: 64, DType: tensor.Q4_0,
		Set: map[string]string{"D": "256", "H": "4", "G": "2", "F": "512"}}
}

// Kernels that clang builds ahead of time are those that a device asks for: it
// finds them all, and compiles none. One that is damaged is said to be.
func TestAOT(t *testing.T) {
	testfiles.Clang(t)
	dir := filepath.Join(t.TempDir(), "built")
	const arch = "gfx942"
	b, err := hip.NewBuilder(arch, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	opt := small(t, b)
	opt.Device = b.Device()
	if err := engine.DryRun(opt, 1, 4, 33); err != nil {
		t.Fatal(err)
	}
	if b.Programs() < 8 {
		t.Fatalf("%d programs", b.Programs())
	}
	tool, err := hip.FindTool("clang", arch, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	for round, want := range []hip.Built{{Compiled: b.Programs()}, {Kept: b.Programs()}} {
		said := 0
		sum, err := b.Build(context.Background(), tool, dir, func(n, of int, what string) { said = n })
		if err != nil {
			t.Fatal(err)
		}
		if sum.Compiled != want.Compiled || sum.Kept != want.Kept || sum.Bytes < 1000 || said != b.Programs() {
			t.Errorf("round %d: %+v, %d said", round, sum, said)
		}
	}
	compiled, err := hip.RunBuilt(t, arch, dir, opt, 1, 4, 33)
	if err != nil || compiled != 0 {
		t.Errorf("%d programs were compiled at run time, %v", compiled, err)
	}
	if compiled, err = hip.RunBuilt(t, arch, dir, opt, 2); err != nil || compiled == 0 {
		t.Errorf("%d programs were compiled for a step that was not rehearsed, %v", compiled, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, arch+"-*"))
	if err != nil || len(files) != b.Programs() {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := hip.RunBuilt(t, arch, dir, opt, 1, 4, 33); err == nil {
		t.Error("a damaged file was not said to be")
	}
	if _, err := hip.RunBuilt(t, arch, filepath.Join(dir, "none"), opt, 1); err == nil {
		t.Error("a folder that is not there was not said to be")
	}
}

// What is built ahead of time covers exact paths and those that must be asked for.
func TestAheadPaths(t *testing.T) {
	for arch, want := range map[string][]string{"sm_90": {"f8.hip FP8=1", "f8.hip FP8=0", "matrix.hip exact"},
		"gfx1201": {"matrix.hip FP8=1", "matrix.hip exact"}, "gfx1103": {"matrix.hip exact"}} {
		b, err := hip.NewBuilder(arch, 0)
		if err != nil {
			t.Fatal(err)
		}
		opt := small(t, b)
		opt.Device, opt.DType = b.Device(), tensor.F8E4M3
		if err := b.WithPaths(func() error { return engine.DryRun(opt, 1, 33) }); err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, p := range b.Needs() {
			if strings.Contains(p, "ROWS=1") {
				continue
			}
			for _, file := range []string{"f8.hip", "matrix.hip"} {
				if strings.HasPrefix(p, file) {
					how := "exact"
					for _, fp8 := range []string{"FP8=0", "FP8=1"} {
						if strings.Contains(p, fp8) {
							how = fp8
						}
					}
					found[file+" "+how] = true
				}
			}
		}
		if len(found) != len(want) {
			t.Errorf("%s: %v, want %v", arch, found, want)
		}
		for _, w := range want {
			if !found[w] {
				t.Errorf("%s: no %s", arch, w)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBuilderRefuses(t *testing.T) {
	for _, arch := range []string{"", "gfx", "navi31", "gfx12345678", "sm_", "sm_9x", "gfxzzz"} {
		if b, err := hip.NewBuilder(arch, 0); err == nil {
			b.Close()
			t.Errorf("%q was taken for an architecture", arch)
		}
	}
	if _, err := hip.FindTool("gcc", "gfx942", nil); err == nil {
		t.Error("gcc compiles kernels")
	}
}

// The attention of one token on Hopper rotates and stores itself, with caches of
// either type, and nothing else does.
func TestFoldedAttention(t *testing.T) {
	for _, kv := range []tensor.Type{tensor.F16, tensor.F32} {
		b, err := hip.NewBuilder("sm_90", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		opt := small(t, b)
		opt.Device, opt.KV = b.Device(), kv
		if err := engine.DryRun(opt, 1); err != nil {
			t.Fatal(err)
		}
		folded := false
		for _, p := range b.Needs() {
			folded = folded || strings.HasPrefix(p, "attention_decode.hip ") && strings.HasSuffix(p, " FOLD=1 EARLY=1 SINKS=0")
			if strings.HasPrefix(p, "rope.hip") || strings.HasPrefix(p, "attention.hip") {
				t.Errorf("caches of %s: %s", kv, p)
			}
		}
		if !folded {
			t.Errorf("caches of %s: none of %q", kv, b.Needs())
		}
	}
}
