//go:build !nogpu

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/testfiles"
)

// customFiles copies the example of kernels of one's own, with changes of the shader and of the block's file.
func customFiles(t *testing.T, shader, block *strings.Replacer) string {
	t.Helper()
	if _, err := exec.LookPath("glslc"); err != nil {
		if _, err := exec.LookPath("glslangValidator"); err != nil {
			if os.Getenv("GRETA_REQUIRE_VULKAN") != "" {
				t.Fatal("no compiler of GLSL: install glslc or glslang-tools")
			}
			t.Skip("no compiler of GLSL")
		}
	}
	dir := t.TempDir()
	for name, r := range map[string]*strings.Replacer{"rms.comp": shader, "block.yaml": block, "rms.hip": nil} {
		data, err := os.ReadFile(testfiles.Repo(t, "examples", "kernels", name))
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if r != nil {
			if text = r.Replace(text); text == string(data) {
				t.Fatalf("%s was not changed", name)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "block.yaml")
}

const rmsStore = "y[row + i] = w[i] * x[row + i] * scale;"

// TestCustomKernel: a kernel of a model file is tried, named, captured with the step, and gives the right results; and
// is left out with --no-custom-kernels.
func TestCustomKernel(t *testing.T) {
	device, _ := vulkanDevice(t)
	path := customFiles(t, nil, nil)
	r := greta(t, append([]string{"run", path, "--fp16", "off", "--context", "16", "--prefill", "5", "--gen", "3",
		"--repeat", "1", "--no-limits"}, device...)...)
	if r.code != 0 || strings.Count(r.err, "kernel rms (rms.comp): used: checked at") != 2 ||
		!strings.Contains(r.err, "decode = float64: ok") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
	again := append([]string{"dump", "--stage", "plan", path, "--fp16", "off", "--context", "16"}, device...)
	greta(t, again...)
	const kept = "--check-kernels tries it again"
	if r := greta(t, again...); r.code != 0 || strings.Count(r.err, kept) != 2 ||
		!strings.Contains(r.out, "h: custom:rms BLOCK=") {
		t.Errorf("a trial is not kept: exit code %d\n%s", r.code, r.err)
	}
	if r := greta(t, append(again, "--check-kernels")...); r.code != 0 || strings.Contains(r.err, kept) ||
		strings.Count(r.err, "kernel rms (rms.comp): used: checked at") != 2 {
		t.Errorf("--check-kernels: exit code %d\n%s", r.code, r.err)
	}
	if r := greta(t, append(again, "--check-kernels", "--no-custom-kernels")...); r.code != exitUsage ||
		!strings.Contains(r.err, "there are no kernels to check") {
		t.Errorf("--check-kernels without kernels: exit code %d\n%s", r.code, r.err)
	}
	if r := greta(t, append([]string{"run", path, "--invariant", "--fp16", "off", "--context", "16", "--prefill", "5"},
		device...)...); r.code != exitUsage || !strings.Contains(r.err, "--no-custom-kernels runs without them") {
		t.Errorf("--invariant with kernels of one's own: exit code %d\n%s", r.code, r.err)
	}
	r = greta(t, append([]string{"dump", "--stage", "plan", path, "--fp16", "off", "--context", "16"}, device...)...)
	if !strings.Contains(r.out, "h: custom:rms BLOCK=") || !strings.Contains(r.out, "rms.comp: checked at") {
		t.Errorf("%s%s", r.out, r.err)
	}
	r = greta(t, append([]string{"check", path, "--fp16", "off", "--context", "16"}, device...)...)
	if r.code != 0 || !strings.Contains(r.out, "custom.rmsnorm") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	r = greta(t, append([]string{"dump", "--stage", "plan", path, "--no-custom-kernels"}, device...)...)
	if r.code != 0 || strings.Contains(r.out+r.err, "rms.comp") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

// Constants that a shader names itself keep its values.
func TestCustomKernelOwnConstants(t *testing.T) {
	device, _ := vulkanDevice(t)
	path := customFiles(t, strings.NewReplacer("void main() {",
		"layout(constant_id = 0) const uint ONE = 1;\nvoid main() {",
		rmsStore, "y[row + i] = w[i] * x[row + i] * scale * ONE;"), nil)
	r := greta(t, append([]string{"dump", "--stage", "plan", path, "--fp16", "off", "--context", "16"}, device...)...)
	if r.code != 0 || !strings.Contains(r.out, "h: custom:rms BLOCK=") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

// TestCustomTiles: the example whose weights lie in tiles is used, and agrees with float64 launch by launch.
func TestCustomTiles(t *testing.T) {
	device, _ := vulkanDevice(t)
	customFiles(t, nil, nil) // whether there is a compiler
	args := append([]string{testfiles.Repo(t, "examples", "kernels", "fp8.yaml"), "--dtype", "f8_e4m3", "--fp16", "off",
		"--context", "16"}, device...)
	r := greta(t, append([]string{"check"}, args...)...)
	if r.code != 0 || !strings.Contains(r.err, "kernel fp8_vulkan (fp8.comp): used: checked at") ||
		!strings.Contains(r.out, "custom.linear") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

// Kernels with a planted mistake are refused with the first element that is wrong, and within ten seconds.
func TestCustomKernelRefused(t *testing.T) {
	device, _ := vulkanDevice(t)
	// Software drivers end loops after some number of turns: many workgroups then make what a loop alone does elsewhere.
	hang := "for (int a = 0; a < 1000000000; a++) sum = sin(sum + x[row + a % k]);"
	replace := strings.NewReplacer
	for i, c := range []struct {
		name          string
		shader, block *strings.Replacer
		want          string
	}{
		{"last row",
			replace(rmsStore, "y[row + i] = w[i] * x[row + i] * scale + (gl_WorkGroupID.x == gl_NumWorkGroups.x - 1 "+
				"&& i == k - 1 ? 1.0 : 0.0);"), nil, "rows=1 D=256: y[0, 255] of f32[1, 256] is "},
		{"last of many rows", replace(rmsStore, "y[row + i] = w[i] * x[row + i] * (gl_WorkGroupID.x == 32 ? 1.01 : 1) "+
			"* scale;"),
			nil, "rows=33 D=256: y[32, 0] of f32[33, 256] is "},
		{"past the end", replace("float scale", "y[k * gl_NumWorkGroups.x + 5] = 1; float scale"), nil,
			"it writes past the end of y f32[1, 256]: to byte 1044, it has 1024"},
		{"far behind the end", replace("float scale", "y[k * gl_NumWorkGroups.x + 1000000] = 1; float scale"), nil,
			"it writes past the end of y f32["},
		{"operand", replace("readonly buffer X", "buffer X", "float scale", "x[row] = 1; float scale"), nil,
			"it writes to its operand x, at byte 0"},
		{"hang", replace("uint row = gl_WorkGroupID.x * k", "uint row = 0", "float sum = 0;", "float sum = 0; "+hang),
			replace("grid: rows", "grid: 60000"),
			"it hangs: launching rms BLOCK=64 at rmsnorm rows=1 D=256 took longer than 3s"},
		{"grid too small", nil, replace("grid: rows", "grid: max(rows - 1, 1)"),
			"rows=2 D=256: y[1, 0] of f32[2, 256] was not written"},
		{"grid too large", nil, replace("grid: rows", "grid: rows + 1"), "it writes past the end of y"},
		{"odd sizes", replace("i < k", "i < k / 2 * 2"), nil, "rows=5 D=67: y[0, "},
		{"adds to what is there", replace("writeonly buffer Y", "buffer Y", rmsStore,
			"y[row + i] += w[i] * x[row + i] * scale;"),
			nil, "y[0, 0] of f32[1, 256] was not written"},
	} {
		if i%2 > 0 && !testfiles.Exhaustive() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			path := customFiles(t, c.shader, c.block)
			start := time.Now()
			r := greta(t, append([]string{"dump", "--stage", "plan", path, "--fp16", "off", "--context", "16"}, device...)...)
			if r.code != exitMismatch || !strings.Contains(r.err, c.want) || !strings.Contains(r.err, "is refused") {
				t.Errorf("exit code %d, %q is wanted:\n%s%s", r.code, c.want, r.out, r.err)
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// What a kernel asks for that cannot be is an error that says what to do.
func TestCustomKernelErrors(t *testing.T) {
	device, _ := vulkanDevice(t)
	replace := strings.NewReplacer
	for _, c := range []struct {
		name          string
		shader, block *strings.Replacer
		args          []string
		code          int
		want          string
	}{
		{"syntax", replace("void main() {", "void main() { nonsense"), nil, device, exitFailed, "nonsense"},
		{"syntax, once", replace("void main() {", "void main() { nonsense"),
			replace("[64, 128]", "[32, 64, 128]"), device, exitFailed, "(so with BLOCK=64 and 1 more)"},
		{"threads", replace("local_size_x = BLOCK", "local_size_x = BLOCK, local_size_y = 1024"), nil, device, exitFailed,
			"its workgroup has 64×1024×1 = 65536 threads, it runs at most "},
		{"shared memory", replace("sums[BLOCK]", "sums[BLOCK * 65536]"), nil, device, exitFailed,
			"it has 16777216 bytes of shared memory, a workgroup gets at most "},
		{"no file", nil, replace("rms.comp", "gone.comp"), device, exitFailed, "gone.comp: no such file"},
		{"cpu", nil, nil, []string{"--backend", "cpu"}, exitFailed,
			"the cpu backend takes no kernels of one's own; --backend vulkan runs it"},
		{"cpu, not always", nil, replace("always: true", "always: false"), []string{"--backend", "cpu"}, 0,
			"greta's own is used"},
		{"condition", nil, replace("grid: rows\n    constants: {BLOCK: [64, 128]}", "grid: rows\n    when: D == 1\n    "+
			"constants: {BLOCK: [64, 128]}"), device, exitFailed, "when: does not hold for its sizes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := customFiles(t, c.shader, c.block)
			r := greta(t, append([]string{"dump", "--stage", "plan", path, "--context", "16"}, c.args...)...)
			if r.code != c.code || !strings.Contains(r.err, c.want) || strings.Count(r.err, "undeclared identifier") > 1 {
				t.Errorf("exit code %d, %q is wanted:\n%s%s", r.code, c.want, r.out, r.err)
			}
		})
	}
}

// A kernel that is slower than greta's own is not used, and that is said.
func TestCustomKernelSlower(t *testing.T) {
	device, _ := vulkanDevice(t)
	path := customFiles(t, strings.NewReplacer("float sum = 0;", "float sum = 0; for (int n = 0; n < 600; n++) "+
		"sum += sin(x[row + n % k] + float(n)); sum *= 1e-30;"), strings.NewReplacer("always: true", "always: false"))
	r := greta(t, append([]string{"dump", "--stage", "plan", path, "--fp16", "off", "--context", "16"}, device...)...)
	if r.code != 0 || !strings.Contains(r.err, "not used: checked at") ||
		!strings.Contains(r.out, "h: rmsnorm") || !strings.Contains(r.out, "not kernel rms: ") ||
		!strings.Contains(r.out, "slower than greta's own") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

// TestBenchOpKernel: a kernel is measured beside greta's own; a wrong one is refused and not timed.
func TestBenchOpKernel(t *testing.T) {
	device, _ := vulkanDevice(t)
	path := customFiles(t, nil, nil)
	bench := append([]string{"bench", "op", "--kernel", path, "--m", "3", "--d", "128", "--no-store", "--cache", "warm",
		"--min-time", "1ms", "--fp16", "off"}, device...)
	r := greta(t, bench...)
	if r.code != 0 || !strings.Contains(r.out, "| custom:rms BLOCK=") || !strings.Contains(r.out, "| rmsnorm ") ||
		!strings.Contains(r.err, "kernel rms BLOCK=") || !strings.Contains(r.err, "than greta's own with") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	wrong := customFiles(t, strings.NewReplacer(rmsStore, "y[row + i] = w[i] * x[row + i];"), nil)
	bench[3] = wrong
	if r = greta(t, bench...); r.code != exitMismatch || !strings.Contains(r.err, "is refused: rms BLOCK=64, at ") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	for want, args := range map[string][]string{
		"the cpu backend takes no kernels of one's own": {"--kernel", path},
		"no kernel is for what is measured":             append([]string{"silu", "--kernel", path}, device...),
		"--profile does not go with it":                 {"--kernel", path, "--profile", "quick"},
		"no such file":                                  {"--kernel", path + "x"},
	} {
		if r := greta(t, append([]string{"bench", "op"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %q is wanted:\n%s", args, r.code, want, r.err)
		}
	}
}
