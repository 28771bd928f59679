package hip

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/greta-project/greta/tensor"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// targets are what kernels are compiled for here, without a card or a driver.
var targetNames = []string{"gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1103", "gfx1151", "gfx1201", "sm_75", "sm_80",
	"sm_89", "sm_90"}

// programsFor are programs that launchers ask for on a target, one of each
// kind: every type of weight, narrow and wide, aligned and not. Of sm_89, which has fp8 instructions and else
// what sm_80 has, those with them.
// It is a list, in one piece.
func programsFor(arch string) []program {
	var all []program
	for _, t := range tensor.Types() {
		name, ok := weightNames[t]
		if !ok {
			continue
		}
		w := define("W_TYPE", name)
		for _, columns := range []int{1, 2, 8} {
			rows, unroll, resident := matvecShape(t, columns)
			all = append(all, newProgram("matvec.hip", w, "W_SCALAR=0", "X_SCALAR=0", define("NR", rows), define("NC", columns),
				define("UNROLL", unroll), define("BLOCKS", resident), "BIAS=0"))
		}
		all = append(all, newProgram("tile.hip", w, "W_SCALAR=0", "BIAS=2"),
			newProgram("tile128.hip", w, "W_SCALAR=0", "BIAS=2", "X_SCALAR=0"),
			newProgram("embed.hip", w, "W_SCALAR=0"))
		vec := []string{w, "W_SCALAR=0", "X_SCALAR=0", onOff("INT8", int8Types[t]), define("CHUNK", chunkBlocks(t)),
			define("UNROLL", vecUnroll(t)), "NORM=1", "NORM_F32=0", "TURNS=5", "BIAS=0"}
		all = append(all, newProgram("vec.hip", append(vec, "MATS=1", "PAIRED=0", "PAIRED_OF=of_swiglu", "BLOCKS=1",
			"STREAM=0", "STAGES=0", "DRAW=0")...))
		// x as it is: it goes from registers to shared memory whole
		if slices.Contains([]tensor.Type{tensor.F32, tensor.F16, tensor.Q8_0, tensor.Q4_K, tensor.F8E4M3}, t) &&
			strings.HasPrefix(arch, "gfx") {
			all = append(all, newProgram("vec.hip", w, "W_SCALAR=0", "X_SCALAR=0", "INT8=0", define("CHUNK", chunkBlocks(t)),
				define("UNROLL", vecUnroll(t)), "NORM=0", "NORM_F32=0", "TURNS=2", "BIAS=0",
				"MATS=1", "PAIRED=0", "PAIRED_OF=of_swiglu", "BLOCKS=1", "STREAM=0", "STAGES=0", "DRAW=0"))
		}
		if hasHalves(arch) {
			all = append(all, newProgram("vec.hip", append(vec, "MATS=2", "PAIRED=1", "PAIRED_OF=of_geglu_e", "BLOCKS=2",
				"STREAM=1", "STAGES=2", "DRAW=2", "ROUND=0", onOff("APART", apartRows(t)))...),
				newProgram("vec.hip", append(vec, "MATS=3", "PAIRED=0", "PAIRED_OF=of_swiglu", "BLOCKS=2", "STREAM=1", "STAGES=5",
					"DRAW=2", "ROUND=0", onOff("APART", apartRows(t)))...),
				newProgram("halves.hip", w, "W_SCALAR=0", "ROUND=0", "NORM=0", "BF16=0", "TO16=f2h"))
		}
		if hasMatrixCores(arch) && t != tensor.F32 {
			all = append(all, newProgram("matrix.hip", w, "W_SCALAR=0", "BIAS=0", "FULL=0"),
				newProgram("matrix.hip", w, "W_SCALAR=0", "BIAS=2", "FULL=0", "IDS=1", onOff("ROUNDED", hasHalves(arch))))
			if slices.Contains(fp8Types(arch), t) {
				all = append(all, newProgram("matrix.hip", w, "W_SCALAR=0", "BIAS=0", "FULL=0", "FP8=1"),
					newProgram("matrix.hip", w, "W_SCALAR=0", "BIAS=2", "FULL=1", "FP8=1"))
			}
		}
	}
	// factors of rows
	vec := []string{"W_TYPE=W_E4M3", "W_SCALAR=0", "X_SCALAR=0", "INT8=0", "CHUNK=64", "UNROLL=1", "NORM=1", "NORM_F32=0",
		"TURNS=5", "BIAS=3", "DRAW=2", "PAIRED_OF=of_swiglu"}
	all = append(all, newProgram("vec.hip", append(vec, "MATS=3", "PAIRED=0", "BLOCKS=1", "STREAM=0", "STAGES=0",
		"SCALED=1")...))
	if hasHalves(arch) {
		all = append(all, newProgram("vec.hip", append(vec, "MATS=2", "PAIRED=1", "BLOCKS=1", "STREAM=1", "STAGES=5",
			"APART=0", "ROUND=0", "SCALED=1")...),
			newProgram("vec.hip", append(vec, "MATS=2", "PAIRED=1", "BLOCKS=2", "STREAM=1", "STAGES=2", "APART=0",
				"ROUND=1")...))
	}
	if hasHalves(arch) { // matrices of two types
		for i, first := range mixedTypes {
			for _, second := range mixedTypes[i+1:] {
				all = append(all, newProgram("vec.hip", define("W_TYPE", weightNames[first]), "W_SCALAR=0", "X_SCALAR=0", "INT8=1",
					define("CHUNK", 2*chunkBlocks(first)), "UNROLL=2", "NORM=1", "NORM_F32=1", "TURNS=2",
					"BIAS=0", "MATS=3", "PAIRED=0", "PAIRED_OF=of_swiglu", "BLOCKS=2", "STREAM=1", "STAGES=2", "DRAW=0", "APART=0",
					"ROUND=0", define("W_TYPE2", weightNames[second]), "FIRST=2", define("CHUNK2", chunkBlocks(second))))
			}
		}
	}
	for _, w := range []string{"W_TYPE=W_F32", "W_TYPE=W_F16"} {
		all = append(all, newProgram("matvec.hip", w, "W_SCALAR=1", "X_SCALAR=1", "NR=4", "NC=1", "UNROLL=2", "BLOCKS=8",
			"BIAS=1"),
			newProgram("tile.hip", w, "W_SCALAR=1", "BIAS=0"), newProgram("embed.hip", w, "W_SCALAR=1"))
	}
	for _, a := range []string{
		"DH=128 DV=128 KT=1 VT=1 VE=8 QB=4 CAP=0 G_PARTS=1", "DH=128 DV=128 KT=1 VT=1 VE=8 QB=1 CAP=0 G_PARTS=16",
		"DH=256 DV=256 KT=1 VT=1 VE=8 QB=2 CAP=1 G_PARTS=8", "DH=64 DV=64 KT=0 VT=0 VE=4 QB=4 CAP=0 G_PARTS=4",
		"DH=96 DV=96 KT=2 VT=2 VE=8 QB=4 CAP=0 G_PARTS=2", "DH=7 DV=5 KT=0 VT=0 VE=1 QB=2 CAP=0 G_PARTS=1",
		"DH=128 DV=128 KT=3 VT=3 VE=8 QB=4 CAP=0 G_PARTS=4", "DH=128 DV=128 KT=7 VT=7 VE=8 QB=4 CAP=0 G_PARTS=4",
		"DH=64 DV=96 KT=7 VT=3 VE=1 QB=1 CAP=0 G_PARTS=4",
		"DH=64 DV=64 KT=0 VT=0 VE=4 QB=4 CAP=0 G_PARTS=2 MORE=1", "DH=32 DV=32 KT=0 VT=0 VE=4 QB=1 CAP=0 G_PARTS=1 MORE=1",
	} {
		all = append(all, newProgram("attention.hip", append(strings.Fields(a), define("G_PART", attentionPart))...))
	}
	if hasHalves(arch) {
		all = append(all, newProgram("flash.hip", "DH=128", "DV=128", "CAP=0", "ASYNC=1"),
			newProgram("flash.hip", "DH=64", "DV=128", "CAP=1", "ASYNC=1"),
			newProgram("flash.hip", "DH=192", "DV=128", "CAP=0", "ASYNC=1"),
			newProgram("flash.hip", "DH=64", "DV=64", "CAP=0", "ASYNC=1", "SINKS=1"))
		all = append(all, moveFile)
		for _, a := range []string{"DH=128 KT=1 VE=8 QB=1 CAP=0", "DH=128 KT=2 VE=8 QB=4 CAP=0", "DH=64 KT=0 VE=4 QB=2 CAP=1",
			"DH=64 KT=1 VE=8 QB=2 CAP=0", "DH=256 KT=1 VE=8 QB=2 CAP=1"} {
			for _, fold := range []string{"FOLD=0 EARLY=0", "FOLD=1 EARLY=0", "FOLD=1 EARLY=1", "FOLD=1 EARLY=1 SINKS=1"} {
				all = append(all, newProgram("attention_decode.hip", append(strings.Fields(a),
					append([]string{define("CLUSTER", attendCluster)}, strings.Fields(fold)...)...)...))
			}
		}
	}
	if strings.HasPrefix(arch, "sm_") && hasMatrixCores(arch) {
		all = append(all, newProgram("flash.hip", "DH=128", "DV=128", "CAP=0", "ASYNC=0"),
			newProgram("flash.hip", "DH=96", "DV=32", "CAP=1", "ASYNC=0"))
		for _, dh := range []int{64, 80, 96, 112, 128, 160, 192, 256} {
			all = append(all, splitProgram(dh, tensor.F16, 0, 3, false), splitProgram(dh, tensor.BF16, 32, 2, true))
		}
		all = append(all, splitProgram(128, tensor.F16, 32, 3, false), splitProgram(64, tensor.BF16, 0, 6, false))
		for _, s := range copyShapes {
			all = append(all, newProgram("tilecopy.hip", define("TM", s.rows), define("TN", s.columns), define("BK", s.step),
				define("STAGES", s.stages), define("RESIDENT", s.blocks), "BIAS=2"))
		}
	}
	if hasHalves(arch) {
		for _, s := range f8Shapes {
			for _, w := range []string{"W_TYPE=W_E4M3", "W_TYPE=W_E5M2", "W_TYPE=W_E4M3Z", "W_TYPE=W_E5M2Z"} {
				all = append(all, s.program(w, "BIAS=2", tensor.F32, ""))
			}
		}
		for _, s := range fp8Shapes {
			all = append(all, s.program("W_TYPE=W_E4M3", "BIAS=2", tensor.F32, ""),
				s.program("W_TYPE=W_E5M2", "BIAS=0", tensor.F16, ""))
		}
		all = append(all, f8Shapes[0].program("W_TYPE=W_E5M2", "BIAS=0", tensor.BF16, ""),
			f8Shapes[0].program("W_TYPE=W_E4M3", "BIAS=2", tensor.F32, "swiglu"),
			fp8Shapes[0].program("W_TYPE=W_E5M2", "BIAS=0", tensor.F32, "geglu_t"))
		for _, fp8 := range []string{"FP8=0", "FP8=1"} {
			all = append(all, newProgram("f8.hip", "ROWS=1", fp8, "NORM=1", "X_F16=0", "X_SCALAR=0", "KEEP=2"),
				newProgram("f8.hip", "ROWS=1", fp8, "NORM=0", "X_F16=1", "X_SCALAR=1", "KEEP=12"))
		}
		for _, s := range gemmShapes {
			shape := []string{define("BN", s.columns), define("STAGES", s.stages), define("RESIDENT", s.blocks),
				define("LAG", s.lag)}
			all = append(all, newProgram("gemm.hip", append(shape, "MATS=3", "PAIRED=0", "PAIRED_OF=of_swiglu", "MMA_BF16=0",
				"BIAS=0", "FULL=1")...),
				newProgram("gemm.hip", append(shape, "MATS=2", "PAIRED=1", "PAIRED_OF=of_geglu_t", "MMA_BF16=1", "BIAS=2",
					"FULL=0")...))
		}
		for _, s := range slices.Concat(pipelineShapes, narrowShapes, partShapes) {
			shape := []string{"DECODE=0", define("BN", s.columns), define("STAGES", s.stages), define("CLUSTER", s.cluster),
				define("PARTS", max(s.parts, 1))}
			all = append(all, newProgram("pipeline.hip", append(shape, "FULL=1", "EVEN=1", "MATS=3", "PAIRED=0",
				"PAIRED_OF=of_swiglu", "MMA_BF16=0", "BIAS=0")...),
				newProgram("pipeline.hip", append(shape, "FULL=0", "EVEN=0", "MATS=2", "PAIRED=1", "PAIRED_OF=of_geglu_t",
					"MMA_BF16=1", "BIAS=2")...))
		}
		for i, t := range []tensor.Type{tensor.Q4_0, tensor.Q8_0, tensor.Q4_K, tensor.Q6_K} {
			for _, s := range decodes(t) { // those of single blocks are what clusters' shapes are for few rows too
				shape := []string{define("DECODE", s.decode), define("W_TYPE", weightNames[t]), "W_SCALAR=0",
					define("BN", s.columns), define("STAGES", s.stages), define("CLUSTER", s.cluster)}
				all = append(all, newProgram("pipeline.hip", append(shape, onOff("FULL", i == 0), "EVEN=1", "MATS=3", "PAIRED=0",
					"PAIRED_OF=of_swiglu", "MMA_BF16=0", "BIAS=0")...),
					newProgram("pipeline.hip", append(shape, "FULL=0", onOff("EVEN", i == 0), "MATS=2", "PAIRED=1",
						"PAIRED_OF=of_swiglu", "MMA_BF16=0", "BIAS=1")...))
			}
		}
		all = append(all, newProgram("halves.hip", "W_TYPE=W_F16", "W_SCALAR=0", "ROUND=1", "NORM=1", "BF16=0", "TO16=f2h",
			"X_SCALAR=0", "KEEP=12"),
			newProgram("halves.hip", "W_TYPE=W_F16", "W_SCALAR=0", "ROUND=1", "NORM=0", "BF16=1", "TO16=f2b", "X_SCALAR=1",
				"KEEP=12"))
	}
	for _, d := range []int{64, 4096, 16384} {
		p, _ := normFile(d)
		all = append(all, p)
	}
	if hasHalves(arch) {
		all = append(all, expertsPrograms()...)
	}
	all = append(all, pointFile, drawFile, filterFile, generalFile, spreadFile, recurrenceFile, routeFile, ropeFile,
		ropeFiles(3))
	for _, r := range []struct {
		n, lanes, vectors int
		flags             string
	}{{256, rowLanes, 2, "SSM=1 MANY=0"}, {16, rowLanes, 2, "SSM=1 MANY=1"}, {1000, rowLanes, 2, "SSM=1 MANY=1"},
		{128, columnLanes, 3, "DELTA=1 MANY=0"}, {127, columnLanes, 3, "DELTA=1 MANY=1"},
		{64, columnLanes, 5, "DPLR=1 MANY=1 RANK=1 EARLY=0"},
		{128, columnLanes, 5, "DPLR=1 MANY=1 RANK=0 EARLY=1"}, {9, columnLanes, 5, "DPLR=1 MANY=0 RANK=0 EARLY=0"}} {
		flags := strings.Fields(r.flags)
		many, _ := rowsFile(r.n, r.lanes, r.vectors, flags...)
		all = append(all, headsFile(r.n, r.lanes, flags...), many)
	}
	shape := func(block, parts int) attentionShape {
		return attentionShape{block: block, parts: parts, least: attentionPart}
	}
	all = append(all, attentionProgram(64, 64, 1, 1, 8, shape(4, 4), false, []string{"MORE=1"}),
		attentionProgram(9, 5, 0, 0, 1, shape(1, 1), true, []string{"MORE=1"}),
		attentionProgram(64, 64, 0, 0, 8, shape(2, 1), false, []string{"MORE=1", "COUNT=512", "APART=2"}))
	all = append(all, pagedProgram(128, 128, 1, 1, 8, shape(4, 1), false, 32, nil),
		pagedProgram(128, 128, 1, 1, 8, shape(1, 16), true, 16, nil),
		pagedProgram(7, 5, 0, 0, 1, shape(2, 1), false, 5, nil),
		pagedProgram(128, 128, 3, 3, 8, shape(4, 4), false, 32, nil),
		pagedProgram(128, 128, 7, 7, 8, shape(4, 4), false, 32, nil),
		pagedProgram(64, 64, 1, 1, 8, shape(4, 4), false, 32, []string{"MORE=1"}),
		pagedProgram(64, 64, 0, 0, 4, shape(2, 1), false, 32, []string{"MORE=1", "COUNT=512", "APART=2"}))
	if arch == "sm_89" {
		all = slices.DeleteFunc(all, func(p program) bool { return !strings.Contains(string(p), "FP8=1") })
	}
	return all
}

// resources is what a compiler says that a kernel takes.
type resources struct{ target, kernel, text string }

var remark = regexp.MustCompile(`remark: +([A-Za-z ]+?)(?: \[[^\]]*\])?: (\S+) \[-Rpass`)

// compileOffline compiles a program with clang and gives its assembly, and for
// AMD the resources of its kernels.
func compileOffline(clang, arch, dir string, number int, p program) (asm string, all []resources, err error) {
	source, err := p.source()
	if err != nil {
		return "", nil, err
	}
	stem := filepath.Join(dir, fmt.Sprintf("%s-%d", arch, number))
	if err := os.WriteFile(stem+".hip", []byte(source), 0o644); err != nil {
		return "", nil, err
	}
	args := []string{"-x", "hip", "--offload-arch=" + arch, "-nogpuinc", "-nogpulib", "-mcumode", "-ffp-contract=fast",
		"-Rpass-analysis=kernel-resource-usage"}
	if strings.HasPrefix(arch, "sm_") {
		args = []string{"-x", "cuda", "--cuda-gpu-arch=" + cudaArch(arch), "--cuda-feature=+ptx80", "-nocudainc",
			"-nocudalib"}
	}
	args = append(args, "--cuda-device-only", "-std=c++17", "-O3", "-Wall", "-Werror", "-S", "-o", stem+".s", stem+".hip")
	out, err := exec.Command(clang, args...).CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("%s for %s: %w\n%s", p, arch, err, out)
	}
	b, err := os.ReadFile(stem + ".s")
	os.Remove(stem + ".s")
	os.Remove(stem + ".hip")
	values := map[string]string{}
	for _, m := range remark.FindAllStringSubmatch(string(out), -1) {
		values[m[1]] = m[2]
		if m[1] != "LDS Size" { // the last of a kernel
			continue
		}
		if values["VGPRs Spill"] != "0" || values["ScratchSize"] != "0" {
			return "", nil, fmt.Errorf("%s for %s: %s spills: %v", p, arch, values["Function Name"], values)
		}
		all = append(all, resources{arch, values["Function Name"],
			fmt.Sprintf("vgpr %s agpr %s sgpr %s (%s spilled) lds %s waves %s",
				values["VGPRs"], values["AGPRs"], values["SGPRs"], values["SGPRs Spill"], values["LDS Size"], values["Occupancy"])})
		clear(values)
	}
	return string(b), all, err
}

// matrixInstruction is what the assembly of matrix.hip must have.
func matrixInstruction(arch string) string {
	switch {
	case strings.HasPrefix(arch, "sm_"):
		return "mma.sync.aligned.m16n8k16"
	case strings.HasPrefix(arch, "gfx9"):
		return "v_mfma_f32_16x16x16"
	}
	return "v_wmma_f32_16x16x16"
}

// fp8Instruction is what that of kernels with FP8 must have.
func fp8Instruction(arch, file string, e5m2 bool) string {
	w, amd := "e4m3", "fp8"
	if e5m2 {
		w, amd = "e5m2", "bf8"
	}
	switch {
	case file == "f8.hip":
		return "k32.f32." + w + ".e4m3"
	case strings.HasPrefix(arch, "sm_"):
		return "k32.row.col.f32.e4m3." + w
	case strings.HasPrefix(arch, "gfx9"):
		return "v_mfma_f32_16x16x32_fp8_" + amd
	}
	return "v_wmma_f32_16x16x16_fp8_" + amd
}

// TestTargets compiles kernels for every target, warnings as errors, without
// spills, with the matrix instructions where there are any, and compares what
// they take with testdata/resources.txt. All of them only with
// GRETA_HIP_TARGETS=all, which takes minutes, those whose names begin with certain words
// with GRETA_HIP_TARGETS="tile.hip,vec.hip W_TYPE=W_E5M2"; else one for each target.
// In one piece: a compiler is found, asked, and its answers compared.
func TestTargets(t *testing.T) {
	clang, err := exec.LookPath("clang-19")
	if err != nil {
		if os.Getenv("GRETA_HIP_TARGETS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	which := os.Getenv("GRETA_HIP_TARGETS")
	if which == "" && *rewrite {
		which = "all"
	}
	whole := func(p program) bool {
		return which == "all" || slices.ContainsFunc(strings.Split(which, ","), func(w string) bool {
			return w != "" && strings.HasPrefix(string(p), w)
		})
	}
	known := map[string]bool{}
	b, err := os.ReadFile("testdata/resources.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		known[strings.TrimSpace(line)] = true
	}
	type job struct {
		arch string
		p    program
		n    int
	}
	var jobs []job
	for i, arch := range targetNames {
		if *rewrite && strings.HasPrefix(arch, "sm_") {
			continue // says nothing of resources
		}
		programs := programsFor(arch)
		for k, p := range programs {
			if whole(p) || which == "" && k == 37*i%len(programs) {
				jobs = append(jobs, job{arch, p, len(jobs)})
			}
		}
	}
	if len(jobs) == 0 {
		t.Fatalf("GRETA_HIP_TARGETS=%q begins no program's name, as tile.hip does; they are in backends/hip/kernels", which)
	}
	dir := t.TempDir()
	var mu sync.Mutex
	var lines []string
	var wg sync.WaitGroup
	queue := make(chan job)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range queue {
				asm, res, err := compileOffline(clang, j.arch, dir, j.n, j.p)
				if err != nil {
					t.Error(err)
					continue
				}
				file, _, _ := strings.Cut(string(j.p), " ")
				wants := map[string]string{"matrix.hip": matrixInstruction(j.arch), "gemm.hip": "wgmma.mma_async.sync.aligned.m64n",
					"pipeline.hip": "wgmma.mma_async.sync.aligned.m64n", "flash.hip": "mma.sync.aligned.m16n8k16",
					"attention_split.hip": "mma.sync.aligned.m16n8k16"}
				if strings.Contains(string(j.p), "ASYNC=1") {
					wants[file] = wants["gemm.hip"]
				}
				if strings.Contains(string(j.p), "FP8=1") && !strings.Contains(string(j.p), "ROWS=1") {
					wants[file] = fp8Instruction(j.arch, file, strings.Contains(string(j.p), "W_TYPE=W_E5M2"))
				}
				if want := wants[file]; !strings.Contains(asm, want) {
					t.Errorf("%s for %s has no %s", j.p, j.arch, want)
				}
				mu.Lock()
				for _, r := range res {
					lines = append(lines, fmt.Sprintf("%s %s: %s: %s", r.target, j.p, r.kernel, r.text))
				}
				mu.Unlock()
			}
		})
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	wg.Wait()
	slices.Sort(lines)
	t.Logf("%d programs, %d kernels of AMD", len(jobs), len(lines))
	if *rewrite {
		for line := range known { // those of other files stay
			if _, rest, _ := strings.Cut(line, " "); !whole(program(rest)) {
				lines = append(lines, line)
			}
		}
		slices.Sort(lines)
		if err := os.WriteFile("testdata/resources.txt", []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, l := range lines {
		if !known[l] {
			t.Errorf("testdata/resources.txt does not have this line; go test -run TestTargets -rewrite:\n%s", l)
		}
	}
}

// expertsPrograms are programs of experts.hip for every type that it takes.
func expertsPrograms() (all []program) {
	for t := range int8Types {
		for _, more := range []string{"BLOCKS=2 PAIRED=1 SHARED=0 OF(a,b)=of_mul(of_clamp(a,u2f(0x0u),1.0f),g_sigmoid(b))",
			"BLOCKS=3 PAIRED=0 SHARED=1 OF(a,b)=a"} {
			all = append(all, newProgram("experts.hip", append([]string{define("W_TYPE", weightNames[t]), "W_SCALAR=0",
				define("UNROLL", mostUnits(t)), "BIAS=2"}, strings.Fields(more)...)...))
		}
	}
	return all
}
