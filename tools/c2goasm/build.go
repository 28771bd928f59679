package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	sourceDir  = "csrc/cpu"
	packageDir = "backends/cpu/simd"
	llvmMajor  = "19"
	// maxFrame is what a kernel may use of the stack, in bytes. Below a Go
	// function that has checked its stack there are at least 800 bytes (the
	// runtime's StackNosplit); return addresses and alignment take some.
	maxFrame = 600
)

// level is one instruction set that the kernels are compiled for.
type level struct {
	name  string
	arch  string // GOARCH
	flags []string
}

// set is a table of kernels with the C files and levels that it is made from.
type set struct {
	typ    string   // the Go type that names them
	file   string   // where it is declared
	table  string   // the generated table's file, without level and ending
	units  []string // the C files; none: those that are in no other set
	levels []level
}

var sets = []set{
	{"kernels", "kernels.go", "table", nil, levels},
	{"panelKernels", "panelkernels.go", "panels", []string{"panel.c"}, append([]level{
		{"i8mm", "arm64", []string{"-march=armv8.2-a+dotprod+i8mm"}},
	}, panelLevels...)},
	{"wideKernels", "widekernels.go", "wide", []string{"panelwide.c"}, panelLevels[:1]},
	{"bf16Kernels", "bf16kernels.go", "bf16", []string{"bf16.c"}, []level{
		{"avx512", "amd64", append([]string{"-mavx512bf16"}, levels[0].flags...)},
	}},
	{"compactKernels", "compactkernels.go", "compact", []string{"compact.c"}, levels[:2]},
	{"compactF16Kernels", "compactkernels.go", "compactf16", []string{"compact_f16.c"}, []level{
		{"avx512", "amd64", append([]string{"-mavx512vbmi"}, levels[0].flags...)},
	}},
	{"probeKernels", "probekernels.go", "probes", []string{"probe.c"}, panelLevels},
	{"probeBF16Kernels", "probekernels.go", "probebf16", []string{"probe_bf16.c"}, []level{
		{"avx512", "amd64", append([]string{"-mavx512bf16"}, levels[0].flags...)},
	}},
	{"amxKernels", "amxkernels.go", "tiles", []string{"amx.c"}, []level{
		// Tiles have the sizes that the code gives them by number: none may be renamed.
		{"amx", "amd64", append([]string{"-mavx512bf16", "-mavx512vnni", "-mamx-tile", "-mamx-bf16", "-mllvm",
			"-break-anti-dependencies=none"}, levels[0].flags...)},
	}},
}

// has says whether a C file belongs to the set.
func (s *set) has(unit string) bool {
	if s.units != nil {
		return slices.Contains(s.units, unit)
	}
	return !slices.ContainsFunc(sets, func(o set) bool { return slices.Contains(o.units, unit) })
}

var levels = []level{
	{"avx512", "amd64", []string{"-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx2", "-mfma", "-mf16c",
		"-mprefer-vector-width=512", "-mtune=znver4"}},
	{"avx2", "amd64", []string{"-mavx2", "-mfma", "-mf16c", "-mtune=znver3"}},
	{"neon", "arm64", nil},
}

// panelLevels differ by their dot products of bytes.
var panelLevels = []level{
	{"avx512", "amd64", append([]string{"-mavx512vnni"}, levels[0].flags...)},
	{"avxvnni", "amd64", append([]string{"-mavxvnni"}, levels[1].flags...)},
	{"avx2", "amd64", levels[1].flags},
	{"dotprod", "arm64", []string{"-march=armv8.2-a+dotprod"}},
	{"neon", "arm64", nil},
}

var archFlags = map[string][]string{
	// A signal may arrive at any instruction. On amd64 the red zone would be
	// lost; on arm64 the handler expects g in x28, and x18 belongs to the
	// platform on some systems. Go's stack on amd64 is aligned to 8 bytes.
	"amd64": {"--target=x86_64-linux-gnu", "-mno-red-zone", "-mstack-alignment=8", "-fPIE", "-mcmodel=small"},
	"arm64": {"--target=aarch64-linux-gnu", "-ffixed-x18", "-ffixed-x28", "-fno-pic", "-mcmodel=tiny"},
}

var commonFlags = []string{
	"-std=c17", "-O2", "-ffreestanding", "-fno-builtin", "-nostdlibinc",
	"-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-jump-tables",
	"-fomit-frame-pointer", "-fno-math-errno", "-ffp-contract=off",
	// The code says itself what is to be vectorised and unrolled.
	"-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops",
	"-Wall", "-Wextra", "-Werror", fmt.Sprintf("-Wframe-larger-than=%d", maxFrame),
}

type file struct {
	name string // inside packageDir
	data []byte
}

// build gives every generated file, in a fixed order.
func build(root string) ([]file, error) {
	tools, err := findTools()
	if err != nil {
		return nil, err
	}
	units, err := filepath.Glob(filepath.Join(root, sourceDir, "*.c"))
	if err != nil || len(units) == 0 {
		return nil, fmt.Errorf("no C sources in %s (is -root the repository?)", sourceDir)
	}
	slices.Sort(units)
	var files []file
	for _, st := range sets {
		sigs, err := readSignatures(filepath.Join(root, packageDir, st.file), st.typ)
		if err != nil {
			return nil, err
		}
		for _, l := range st.levels {
			have := map[string]bool{}
			for _, u := range units {
				if !st.has(filepath.Base(u)) {
					continue
				}
				b, err := tools.compile(u, l)
				if err != nil {
					return nil, fmt.Errorf("%s for %s: %w", filepath.Base(u), l.name, err)
				}
				unit := strings.TrimSuffix(filepath.Base(u), ".c")
				asm, err := emit(unit, l, b, sigs, have)
				if err != nil {
					return nil, fmt.Errorf("%s for %s: %w", filepath.Base(u), l.name, err)
				}
				files = append(files, file{fmt.Sprintf("%s_%s_%s.s", unit, l.name, l.arch), asm})
			}
			table, err := emitTable(st.typ, l, sigs, have)
			if err != nil {
				return nil, err
			}
			files = append(files, file{fmt.Sprintf("%s_%s_%s.go", st.table, l.name, l.arch), table})
		}
	}
	return files, nil
}

// tableName names the variable that holds a level's kernels: avx512PanelKernels.
func tableName(typ string, l level) string { return l.name + strings.ToUpper(typ[:1]) + typ[1:] }

// emitTable writes the Go declarations of a level's kernels and the table that
// holds them.
func emitTable(typ string, l level, sigs []signature, have map[string]bool) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated by c2goasm; DO NOT EDIT.\n\n//go:build %s && !noasm\n\npackage simd\n\nimport "+
		"\"unsafe\"\n\n", l.arch)
	name := tableName(typ, l)
	fmt.Fprintf(&b, "// %s are the kernels compiled for %s.\nvar %s = %s{\n", name, l.name, name, typ)
	for _, s := range sigs {
		if !have[s.c] {
			return nil, fmt.Errorf("%s.%s wants the C function %s, which no file in %s defines for %s", typ, s.field, s.c,
				sourceDir, l.name)
		}
		fmt.Fprintf(&b, "%s: %s,\n", s.field, s.stub(l))
	}
	fmt.Fprint(&b, "}\n")
	for _, s := range sigs {
		fmt.Fprintf(&b, "\n//go:noescape\nfunc %s%s\n", s.stub(l), s.text)
	}
	return format.Source(b.Bytes())
}

type toolchain struct{ clang, lld, objdump string }

// findTools finds LLVM's programs and refuses another version than the pinned.
func findTools() (t toolchain, err error) {
	for _, p := range []struct {
		name, want string
		at         *string
	}{
		{"clang", "clang version " + llvmMajor + ".", &t.clang},
		{"ld.lld", "LLD " + llvmMajor + ".", &t.lld},
		{"llvm-objdump", "LLVM version " + llvmMajor + ".", &t.objdump},
	} {
		*p.at = p.name + "-" + llvmMajor
		out, err := exec.Command(*p.at, "--version").CombinedOutput()
		if err != nil {
			return t, fmt.Errorf("%s: %w (Debian: apt-get install clang-19 lld-19 llvm-19)", *p.at, err)
		}
		if !strings.Contains(string(out), p.want) {
			return t, fmt.Errorf("%s --version: want %q, found %q", *p.at, p.want, strings.SplitN(string(out), "\n", 2)[0])
		}
	}
	return t, nil
}

// output runs a program and gives its standard output; errors carry stderr.
func output(name string, args ...string) ([]byte, error) {
	c := exec.Command(name, args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, stderr.String())
	}
	return out, nil
}

// compile builds one C file for one level and links it into a block.
func (t toolchain) compile(unit string, l level) (*block, error) {
	tmp, err := os.MkdirTemp("", "c2goasm")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	obj, elf, script := filepath.Join(tmp, "a.o"), filepath.Join(tmp, "a.elf"), filepath.Join(tmp, "a.ld")
	if err := os.WriteFile(script, []byte(linkScript), 0o644); err != nil {
		return nil, err
	}
	args := slices.Concat(archFlags[l.arch], commonFlags, l.flags, []string{"-c", unit, "-o", obj})
	if _, err := output(t.clang, args...); err != nil {
		return nil, err
	}
	if _, err := output(t.lld, "-static", "-nostdlib", "-e", "0", "-T", script, obj, "-o", elf); err != nil {
		return nil, err
	}
	dis, err := output(t.objdump, "-d", "-z", "--no-show-raw-insn", "--x86-asm-syntax=intel", "--section=.blob", elf)
	if err != nil {
		return nil, err
	}
	return readBlock(elf, dis)
}
