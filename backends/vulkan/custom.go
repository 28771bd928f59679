//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
)

// Kernels that users wrote: GLSL, compiled by a compiler that is found on the machine, or SPIR-V. Operands are storage
// buffers with the bindings 0, 1, … of set 0, numbers lie one behind the other in the push constants. Constants
// are macros of a source and specialization constants 0, 1, … of a binary, in the order of the description.

// CustomEndings are those of the sources that it takes.
func (d *Device) CustomEndings() []string { return []string{".comp", ".spv"} }

// customKernel is a user's kernel for a node.
type customKernel struct {
	backends.CustomBase
	shader  string
	spec    []uint32
	exposed bool
}

// CustomKernel compiles a kernel, or loads its code.
func (d *Device) CustomKernel(n *graph.Node, k *custom.Instance, exposed bool) (backends.Kernel, error) {
	base, err := backends.NewCustomBase(n, k)
	if err != nil {
		return nil, err
	}
	c := &customKernel{CustomBase: base, shader: "custom:" + k.Name + ":" + k.Hash, exposed: exposed}
	limit := d.p.limits.MaxComputeWorkGroupCount
	for i, g := range base.Launch.Grid {
		if uint32(g) > limit[i] {
			return nil, fmt.Errorf("%v: a grid of %v is more than the %v of %s", k.Kernel, base.Launch.Grid, limit, d.p.Name)
		}
	}
	bindings := 0
	for _, a := range base.Launch.Args {
		if !a.Number() {
			bindings++
		}
	}
	if k.Ending() == ".spv" {
		for _, x := range k.Kernel.Constants {
			c.spec = append(c.spec, uint32(k.Constants[x.Name]))
		}
	}
	if d.custom[c.shader] == nil {
		code := k.Code
		if k.Ending() == ".comp" {
			if code, err = compileShader(k); err != nil {
				return nil, err
			}
		}
		if d.custom[c.shader], err = moduleWords(code, k); err != nil {
			return nil, err
		}
	}
	if not := needs(d.custom[c.shader], c.entry(), c.spec).exceeds(&d.p.limits); not != "" {
		return nil, fmt.Errorf("%v: %s is too large for %s: %s", k.Kernel, k.Path, d.p.Name, not)
	}
	if _, err = d.pipeline(c.shader, c.entry(), bindings, c.spec, 0); err != nil {
		return nil, fmt.Errorf("%v: the driver takes no %s: %w", k.Kernel, k.Path, err)
	}
	return &kernel{name: base.Name(), why: base.Why(), rel: k.Tolerance, packed: -1, own: c,
		bind: func(b *bind) error { return b.custom(c) }}, nil
}

const spirvMagic = 0x07230203

// moduleWords are a module's, aligned; the driver trusts what it is given, so that what is none is refused here.
func moduleWords(code []byte, k *custom.Instance) ([]uint32, error) {
	if len(code) < 20 || len(code)%4 != 0 || binary.LittleEndian.Uint32(code) != spirvMagic {
		return nil, fmt.Errorf("%v: %s is no SPIR-V module", k.Kernel, k.Path)
	}
	words := make([]uint32, len(code)/4)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(code)), code)
	// A module without the entry that is asked for crashes drivers.
	var entries []string
	for i := 5; i < len(words); {
		n := int(words[i] >> 16)
		if n == 0 || i+n > len(words) {
			return nil, fmt.Errorf("%v: %s is a damaged SPIR-V module: instruction at word %d", k.Kernel, k.Path, i)
		}
		if words[i]&0xffff == opEntryPoint && n > 3 && words[i+1] == glCompute {
			name, _ := entryName(words[i+3 : i+n])
			entries = append(entries, name)
		}
		i += n
	}
	if k.Ending() == ".comp" && slices.Contains(entries, "main") || slices.Contains(entries, k.Entry) {
		return words, nil
	}
	has := "none"
	if len(entries) > 0 {
		has = strings.Join(entries, ", ")
	}
	return nil, fmt.Errorf("%v: %s has no compute entry %s (entry: says which); it has %s", k.Kernel, k.Path, k.Entry, has)
}

// entry is the name by which a module is entered.
func (c *customKernel) entry() string {
	if c.Of.Ending() == ".comp" {
		return "main"
	}
	return c.Of.Entry
}

// shaderLimit is how long a compiler of GLSL may take.
const shaderLimit = 30 * time.Second

// compileShader turns GLSL into SPIR-V by the first compiler that is found.
func compileShader(k *custom.Instance) ([]byte, error) {
	dir, err := os.MkdirTemp("", "greta-shader-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "out.spv")
	var args []string
	for _, c := range k.Kernel.Constants {
		args = append(args, fmt.Sprintf("-D%s=%d", c.Name, k.Constants[c.Name]))
	}
	var compiler string
	for _, name := range []string{"glslc", "glslangValidator"} {
		if path, err := exec.LookPath(name); err == nil {
			compiler = path
			if name == "glslc" {
				args = append(args, "--target-env=vulkan1.2", "-O", "-fshader-stage=compute", "-o", out, k.Path)
			} else {
				args = append(args, "--target-env", "vulkan1.2", "-S", "comp", "-o", out, k.Path)
			}
			break
		}
	}
	if compiler == "" {
		return nil, fmt.Errorf("%v: %s is GLSL, and neither glslc nor glslangValidator was found: install one (Debian: "+
			"glslc or glslang-tools), or name a .spv that was compiled elsewhere", k.Kernel, k.Path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), shaderLimit)
	defer cancel()
	command := exec.CommandContext(ctx, compiler, args...)
	command.WaitDelay = time.Second
	said, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%v: %s took longer than %v", k.Kernel, compiler, shaderLimit)
	}
	if err != nil {
		text := strings.TrimSpace(string(said))
		words := slices.DeleteFunc(command.Args, func(a string) bool { return a == "-o" || a == out })
		return nil, &custom.CompileError{Kernel: k.Kernel, Command: fmt.Sprintf("%s: %v", strings.Join(words, " "), err),
			Said: text[:min(len(text), 4096)]}
	}
	return os.ReadFile(out)
}

// custom binds a launch of a user's kernel.
func (b *bind) custom(k *customKernel) error {
	x := b.call(k.shader)
	x.entry, x.spec = k.entry(), k.spec
	for _, a := range k.Launch.Args {
		if a.Number() {
			x.push = append(x.push, uint32(a.Bits))
			continue
		}
		o, write, err := k.Operand(b.l, a)
		if err != nil {
			return err
		}
		n := o.Extent()
		if o.Packing != "" {
			n = o.Buffer.Size() - o.Offset
		}
		if off := b.bytes(x, o.Buffer, o.Offset, n, write); off != 0 {
			return fmt.Errorf("%v: an operand begins %d bytes behind where bindings can", k.Of.Kernel, off)
		}
		if s := &x.bound[len(x.bound)-1]; k.exposed && s.b != nil {
			s.to = min(s.b.bytes, s.from+uint64(b.d.p.limits.MaxStorageBufferRange))
		}
	}
	if len(x.push) == 0 {
		x.push = []uint32{0}
	}
	g := k.Launch.Grid
	b.run3(x, g[0], g[1], g[2])
	return b.err
}

var _ backends.CustomKernels = (*Device)(nil)
