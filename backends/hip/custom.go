package hip

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
)

// Kernels that users wrote: sources that the run-time compiler takes, or code for the device's vendor. Constants are
// macros of a source, which may include this package's headers (prelude.h) and files beside it.

// CustomEndings are those of the sources that it takes.
func (dev *Device) CustomEndings() []string {
	if dev.d.vendor() == amd {
		return []string{".hip", ".hsaco"}
	}
	return []string{".hip", ".cubin"}
}

// customKernel is a user's kernel for a node.
type customKernel struct {
	backends.CustomBase
	program program
}

// CustomKernel compiles a kernel, or loads its code. Pointers reach all memory, so that exposed changes nothing.
func (dev *Device) CustomKernel(n *graph.Node, k *custom.Instance, _ bool) (backends.Kernel, error) {
	base, err := backends.NewCustomBase(n, k)
	if err != nil {
		return nil, err
	}
	c := &customKernel{CustomBase: base, program: program("custom:" + k.Name + ":" + k.Hash)}
	if !dev.c.knows(c.program) {
		source := ""
		if k.Ending() == ".hip" {
			if source, err = customSource(k); err != nil {
				return nil, err
			}
		}
		dev.c.add(c.program, source, k.Code)
	}
	if err := dev.prepare([]program{c.program}); err != nil {
		return nil, fmt.Errorf("%v: %s: %w", k.Kernel, k.Path, err)
	}
	if err := dev.findEntry(code{c.program, k.Entry}); err != nil {
		return nil, fmt.Errorf("%v: %s has no function %s (entry: says which; a source declares it extern \"C\" "+
			"__global__): %w", k.Kernel, k.Path, k.Entry, err)
	}
	return &kernel{dev: dev, name: base.Name() + "." + dev.info.Level, rel: k.Tolerance, own: c,
		choice: &choice{name: k.Name, why: base.Why(), bind: func(b *binder) { b.custom(c) }}}, nil
}

func (dev *Device) findEntry(c code) error {
	defer dev.enter()()
	_, err := dev.function(c)
	return err
}

// custom binds a launch of a user's kernel.
func (b *binder) custom(k *customKernel) {
	l := k.Launch
	d := b.start(k.program, k.Of.Entry, l.Block[0], l.Grid[0], l.Grid[1], l.Grid[2])
	d.blockYZ, d.shared, d.waits = [2]int{l.Block[1], l.Block[2]}, l.Shared, true
	for _, a := range l.Args {
		if a.Number() {
			d.args.add(a.Bits)
			continue
		}
		o, _, err := k.Operand(b.l, a)
		if err != nil {
			b.failf("%w", err)
			return
		}
		if o.Packing == "" {
			d.ptr(b.dense(o))
			continue
		}
		at, err := b.dev.where(o.Buffer, o.Offset, 0)
		if err != nil {
			b.failf("%w", err)
			return
		}
		d.ptr(at)
	}
}

// customSource is a source with its constants as macros and its headers put in.
func customSource(k *custom.Instance) (string, error) {
	var b strings.Builder
	for _, c := range k.Kernel.Constants {
		fmt.Fprintf(&b, "#define %s %d\n", c.Name, k.Constants[c.Name])
	}
	seen := map[string]bool{}
	err := customInclude(&b, k, string(k.Code), 1, seen)
	return b.String(), err
}

// mostIncludes is how deep files may include each other.
const mostIncludes = 16

func customInclude(b *strings.Builder, k *custom.Instance, text string, depth int, seen map[string]bool) error {
	for line := range strings.Lines(text) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "#include \"")
		if !ok {
			if !strings.HasPrefix(line, "#pragma once") {
				b.WriteString(line)
			}
			continue
		}
		name, _, _ = strings.Cut(name, "\"")
		if depth > mostIncludes {
			return fmt.Errorf("%v: %s: files include each other more than %d deep", k.Kernel, name, mostIncludes)
		}
		path := filepath.Join(filepath.Dir(k.Path), name)
		own, err := os.ReadFile(path)
		switch {
		case seen[path]:
		case err == nil:
			seen[path] = true
			if err := customInclude(b, k, string(own), depth+1, seen); err != nil {
				return err
			}
		case slices.Contains(kernelHeaders(), name):
			if err := include(b, name, seen); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%v: %s includes %s, which is neither beside it nor one of greta's (%s)", k.Kernel, k.Path, name,
				strings.Join(kernelHeaders(), ", "))
		}
		b.WriteByte('\n')
	}
	if !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
	return nil
}

// kernelHeaders are this package's headers.
func kernelHeaders() []string {
	return slices.DeleteFunc(kernelNames(), func(name string) bool { return !strings.HasSuffix(name, ".h") })
}

// foreign is a program that a user wrote: its source, or its code where that is empty.
type foreign struct {
	source string
	image  []byte
}

func (c *compiler) knows(p program) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.foreign[p]
	return ok
}

func (c *compiler) add(p program, source string, image []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.foreign == nil {
		c.foreign = map[program]foreign{}
	}
	c.foreign[p] = foreign{source, image}
}

// text gives a program's source; of a user's that is code already, the code.
func (c *compiler) text(p program) (source string, image []byte, err error) {
	c.mu.Lock()
	f, ok := c.foreign[p]
	c.mu.Unlock()
	switch {
	case !ok:
		source, err = p.source()
	case f.source == "":
		image = f.image
	default:
		source = f.source
	}
	return source, image, err
}

var _ backends.CustomKernels = (*Device)(nil)
