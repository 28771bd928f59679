package platform

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// hipTargets are compiled for here, without a card or a driver.
var hipTargets = []string{"gfx90a", "gfx942", "gfx1030", "gfx1151", "gfx1201", "sm_80", "sm_90"}

// TestHIPSources compiles every kernel file for every target, with warnings as errors; with
// GRETA_HIP_TARGETS=stream.hip,peer.hip those alone.
func TestHIPSources(t *testing.T) {
	clang := testfiles.Clang(t)
	prelude, err := os.ReadFile("../../backends/hip/kernels/prelude.h")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("kernels/*.hip")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d kernel files, %v", len(files), err)
	}
	macros := []string{"BLOCK=256", "LOADS=4", "ELEM=float", "STEPS=128", "ILP=4", "OP=1", "KIND=3"}
	dir := t.TempDir()
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".hip")
		which := os.Getenv("GRETA_HIP_TARGETS")
		if name == "common" || which != "all" && !slices.Contains(strings.Split(which, ","), filepath.Base(f)) {
			continue
		}
		text, err := source(name)
		if err != nil {
			t.Fatal(err)
		}
		text = strings.Replace(text, "#include \"prelude.h\"\n", strings.ReplaceAll(string(prelude), "#pragma once\n", ""), 1)
		path := filepath.Join(dir, name+".hip")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, arch := range hipTargets {
			args := []string{"-x", "hip", "--offload-arch=" + arch, "-nogpuinc", "-nogpulib", "-mcumode"}
			if strings.HasPrefix(arch, "sm_") {
				args = []string{"-x", "cuda", "--cuda-gpu-arch=" + arch, "--cuda-feature=+ptx80", "-nocudainc", "-nocudalib"}
			}
			for _, m := range macros {
				args = append(args, "-D"+m)
			}
			args = append(args, "--cuda-device-only", "-std=c++17", "-O3", "-ffp-contract=fast", "-Wall", "-Werror", "-S", "-o",
				filepath.Join(dir, "k.s"), path)
			if out, err := exec.Command(clang, args...).CombinedOutput(); err != nil {
				t.Errorf("%s for %s: %v\n%s", name, arch, err, out)
			}
		}
	}
}

// TestNumbers: the random numbers of kernels are those of the host, as far as the
// text can be compared.
func TestNumbers(t *testing.T) {
	text, err := source("fill")
	if err != nil {
		t.Fatal(err)
	}
	for _, factor := range []uint32{0x7feb352d, 0x846ca68b, 0x9e3779b9} {
		if !strings.Contains(text, fmt.Sprintf("%#xu", factor)) {
			t.Errorf("kernels do not multiply by %#x", factor)
		}
	}
	for i := range uint32(1000) {
		if v := value(i, 1); v < 1 || v > 256 {
			t.Fatalf("number %d is %d", i, v)
		}
	}
}
