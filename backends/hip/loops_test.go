package hip

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
)

// The main loop of matrix.hip on AMD's targets: how many instructions of each kind
// a wave executes per step of 32 elements, as compiled, beside the plan of the
// tile. The counts are kept in testdata/loops.txt.

// loopCount is what a loop's blocks hold.
type loopCount struct {
	matrix, global, globalBytes int // matrix instructions; loads of global memory, and their bytes a lane
	ldsLoads, ldsLoadBytes      int
	ldsStores, ldsStoreBytes    int
	waits, barriers             int
	vector, scalar              int // the rest
}

func (c loopCount) String() string {
	return fmt.Sprintf("matrix %d, global loads %d (%d bytes a lane), LDS loads %d (%d), LDS stores %d (%d), waits %d, "+
		"barriers %d, other vector %d, other scalar %d",
		c.matrix, c.global, c.globalBytes, c.ldsLoads, c.ldsLoadBytes, c.ldsStores, c.ldsStoreBytes, c.waits, c.barriers,
		c.vector, c.scalar)
}

var (
	asmBlock  = regexp.MustCompile(`^(?:\.L(BB\d+_\d+):|; %bb)`)
	asmHeader = regexp.MustCompile(`Loop Header: Depth=`)
	asmInLoop = regexp.MustCompile(`in Loop: Header=(BB\d+_\d+) `)
	asmOp     = regexp.MustCompile(`^\t([a-z][a-z0-9_]+)`)
	asmWidth  = regexp.MustCompile(`(?:_b|_u|_i|dwordx)(\d+)$`)
)

// opBytes is how many bytes a lane an instruction of memory moves.
func opBytes(op string) int {
	n := 4
	switch m := asmWidth.FindStringSubmatch(op); {
	case m != nil && strings.Contains(op, "dwordx"):
		w, _ := strconv.Atoi(m[1])
		n = 4 * w
	case m != nil:
		w, _ := strconv.Atoi(m[1])
		n = w / 8
	case strings.HasSuffix(op, "short"):
		n = 2
	case strings.HasSuffix(op, "byte"):
		n = 1
	}
	if strings.Contains(op, "2addr") || strings.Contains(op, "read2") || strings.Contains(op, "write2") {
		n *= 2
	}
	return n
}

// mainLoop counts the loop of a kernel that has the most matrix instructions.
func mainLoop(asm, kernel string) (best loopCount) {
	_, body, _ := strings.Cut(asm, "\n"+kernel+":")
	body, _, _ = strings.Cut(body, "s_endpgm")
	loops := map[string]*loopCount{}
	var in *loopCount
	for line := range strings.Lines(body) {
		if m := asmBlock.FindStringSubmatch(line); m != nil {
			name := ""
			if asmHeader.MatchString(line) {
				name = m[1]
			} else if of := asmInLoop.FindStringSubmatch(line); of != nil {
				name = of[1]
			}
			in = nil
			if name != "" {
				if loops[name] == nil {
					loops[name] = &loopCount{}
				}
				in = loops[name]
			}
			continue
		}
		m := asmOp.FindStringSubmatch(line)
		if m == nil || in == nil {
			continue
		}
		switch op := m[1]; {
		case strings.HasPrefix(op, "v_mfma"), strings.HasPrefix(op, "v_wmma"):
			in.matrix++
		case strings.HasPrefix(op, "global_load"), strings.HasPrefix(op, "flat_load"):
			in.global++
			in.globalBytes += opBytes(op)
		case strings.HasPrefix(op, "ds_load"), strings.HasPrefix(op, "ds_read"):
			in.ldsLoads++
			in.ldsLoadBytes += opBytes(op)
		case strings.HasPrefix(op, "ds_store"), strings.HasPrefix(op, "ds_write"):
			in.ldsStores++
			in.ldsStoreBytes += opBytes(op)
		case strings.HasPrefix(op, "s_wait"):
			in.waits++
		case op == "s_barrier" || op == "s_barrier_wait":
			in.barriers++
		case strings.HasPrefix(op, "v_"):
			in.vector++
		case strings.HasPrefix(op, "s_"):
			in.scalar++
		}
	}
	for _, c := range loops {
		if c.matrix > best.matrix {
			best = *c
		}
	}
	return best
}

// loopPlan is what a wave has to do in a step, by the sizes of the tile in
// matrix.hip: 128 × 64 results a block of 256 threads, waves two abreast.
type loopPlan struct{ matrix, fragmentBytes, activationBytes, weightBytes int }

func planLoop(arch string, t tensor.Type) loopPlan {
	lanes, fragment := 32, 32 // gfx11 holds a row of a fragment in both halves of a wave
	switch {
	case strings.HasPrefix(arch, "gfx9"):
		lanes, fragment = 64, 8
	case strings.HasPrefix(arch, "gfx12"):
		fragment = 16
	}
	const threads, rows, columns, step = 256, matrixRows, 64, matrixStep
	parts := 2
	if t == tensor.BF16 {
		parts = 3
	}
	tm, tn := rows/(threads/lanes/2)/16, columns/2/16
	return loopPlan{
		matrix:          tm * tn * parts * step / 16,
		fragmentBytes:   (tn + tm*parts) * (step / 16) * fragment,
		activationBytes: parts * rows * step * 2 / threads,
		weightBytes:     columns * step * 2 / threads,
	}
}

// TestMatrixLoops compares the main loop of matrix.hip with its plan and with
// testdata/loops.txt, which -rewrite writes anew.
func TestMatrixLoops(t *testing.T) {
	clang := testfiles.Clang(t)
	dir := t.TempDir()
	var lines []string
	for _, arch := range []string{"gfx90a", "gfx942", "gfx1103", "gfx1151", "gfx1201"} {
		for i, typ := range []tensor.Type{tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K} {
			asm, _, err := compileOffline(clang, arch, dir, i, newProgram("matrix.hip", define("W_TYPE", weightNames[typ]),
				"W_SCALAR=0", "BIAS=0", "FULL=1"))
			if err != nil {
				t.Fatal(err)
			}
			got, plan := mainLoop(asm, "matrix"), planLoop(arch, typ)
			lines = append(lines, fmt.Sprintf("%s %s: %v", arch, typ, got))
			what := fmt.Sprintf("%s, weights of %s: %v", arch, typ, got)
			if got.matrix != plan.matrix {
				t.Errorf("%s\n%d matrix instructions are the plan", what, plan.matrix)
			}
			stored := plan.activationBytes + plan.weightBytes
			if plain := typ == tensor.F16 || typ == tensor.BF16; plain &&
				(got.ldsLoadBytes != plan.fragmentBytes || got.ldsStoreBytes != stored || got.globalBytes != stored) {
				t.Errorf("%s\n%d bytes of fragments are the plan, and %d to and from the tiles", what, plan.fragmentBytes, stored)
			} else if got.ldsLoadBytes < plan.fragmentBytes || got.ldsStoreBytes < stored ||
				got.globalBytes < plan.activationBytes {
				t.Errorf("%s\nthat is less than the tile holds: the counts are wrong", what)
			}
		}
	}
	slices.Sort(lines)
	text := strings.Join(lines, "\n") + "\n"
	if *rewrite {
		if err := os.WriteFile("testdata/loops.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile("testdata/loops.txt")
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("testdata/loops.txt differs; go test -run TestMatrixLoops -rewrite:\n%s", text)
	}
}
