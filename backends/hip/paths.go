package hip

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// Paths that are tried on a device before they are used (docs/health.md).

const (
	pathMatrix = "matrix"
	pathHalf   = "fp16"
	pathInt8   = "int8"
	pathAttend = "clusters"
	pathFP8    = "fp8"
)

// Paths lists the fast paths of the device's architecture.
func (dev *Device) Paths() []backends.Path {
	var all []backends.Path
	arch := dev.info.Level
	if hasMatrixCores(arch) {
		about := "products and attention on matrix cores (mma.sync, wgmma)"
		switch {
		case strings.HasPrefix(arch, "gfx9"):
			about = "products on matrix cores (MFMA)"
		case strings.HasPrefix(arch, "gfx"):
			about = "products on matrix cores (WMMA)"
		}
		all = append(all, backends.Path{Name: pathMatrix, About: about, Auto: true, Code: codeHash(dev.c.target),
			Takes: dev.takesCores})
	}
	if hasHalves(arch) && !dev.invariant {
		all = append(all, backends.Path{Name: pathAttend, About: "attention of one token by clusters of blocks", Auto: true,
			Code: codeHash(dev.c.target), Takes: takesAttend})
	}
	if hasHalves(arch) {
		all = append(all, backends.Path{Name: pathHalf, About: "products of rows rounded to f16 (wgmma)", Half: true,
			Auto: true,
			Rel:  2e-3, Code: codeHash(dev.c.target), Takes: takesHalves})
	}
	if !dev.invariant { // then nothing is chosen for one row
		all = append(all, backends.Path{Name: pathInt8, About: "products of a row rounded to 8 bits with block formats " +
			"(dot products of bytes)",
			Half: true, Auto: true, Rel: 1e-2, Code: codeHash(dev.c.target), Takes: func(n *graph.Node) bool {
				return takesLinear(n) && n.In[0].Shape.Rows() == 1 && int8Types[n.In[1].Type] || dev.takesOne(n)
			}})
	}
	if types := fp8Types(arch); types != nil {
		all = append(all, backends.Path{Name: pathFP8, About: fmt.Sprintf("products of rows rounded to 8 bits with "+
			"weights of %v (fp8 matrix instructions)", types),
			OptIn: true, Rel: 5e-2, Types: types, Code: codeHash(dev.c.target), Takes: dev.takesFP8})
	}
	for i := range all {
		takes := all[i].Takes
		all[i].Takes = func(n *graph.Node) bool { return takes(dev.like(n)) }
		all[i].On = dev.on(all[i].Name)
	}
	return all
}

// SetPath turns a path on or off, for kernels that are chosen from then on.
func (dev *Device) SetPath(name string, on bool) error {
	for _, p := range dev.Paths() {
		if p.Name == name {
			dev.off[name] = !on
			dev.say()
			return nil
		}
	}
	return fmt.Errorf("hip: %s has no path %q", dev.info.Level, name)
}

// openPaths sets the paths as a device opens: exact ones on, half ones as the
// options say, and those that users opt into off.
func (dev *Device) openPaths(fp16 backends.Choice) {
	dev.off = map[string]bool{}
	for _, p := range dev.Paths() {
		dev.off[p.Name] = p.OptIn || p.Half && fp16 != backends.On
	}
	dev.say()
}

// Rounding is what the paths that are on round.
func (dev *Device) Rounding() ops.Rounding {
	r := ops.Rounding{Quant: dev.on(pathInt8) && !dev.invariant, F16: hasHalves(dev.info.Level) && dev.on(pathHalf)}
	r.BF16 = r.F16 // weights of bf16 meet activations of bf16 there
	if dev.on(pathFP8) {
		r.F8 = fp8Types(dev.info.Level)
	}
	return r
}

// say makes Info tell the peak of the paths that are on.
func (dev *Device) say() {
	dev.info.GFlops = dev.gflops
	if dev.on(pathFP8) && fp8Types(dev.info.Level) != nil {
		dev.info.GFlops = 2 * dev.gflops // fp8 instructions do twice as much as those of f16 on all cards that have them
	}
}

// on says whether a path is used.
func (dev *Device) on(path string) bool { return !dev.off[path] }

// codeHash changes with any kernel and with the compiler's options.
func codeHash(t target) string {
	h := sha256.Sum256(fmt.Append(nil, t.options(), kernelsHash()))
	return hex.EncodeToString(h[:8])
}

// kernelsHash changes with any kernel and with what kernels include.
var kernelsHash = sync.OnceValue(func() string {
	h := sha256.New()
	for _, name := range kernelNames() {
		fmt.Fprintln(h, name, len(kernelFiles()[name]))
		io.WriteString(h, kernelFiles()[name])
	}
	return hex.EncodeToString(h.Sum(nil))
})

// driverName names the driver and the compiler with their versions.
func (d *driver) driverName(compiler string) (string, error) {
	v, err := d.get(fnDriverVersion, "", 0)
	if err != nil {
		return "", err
	}
	n := int(int32(v))
	if d.vendor() == nvidia {
		return fmt.Sprintf("CUDA %d.%d%s, compiler %s", n/1000, n%1000/10, kernelModule("/proc/driver/nvidia/version"),
			compiler), nil
	}
	return fmt.Sprintf("HIP %d.%d.%d%s, compiler %s", n/10000000, n/100000%100, n%100000,
		kernelModule("/sys/module/amdgpu/version"), compiler), nil
}

// kernelModule gives the version of the driver's part in the system's kernel,
// with a blank before it; "" where the system does not say.
func kernelModule(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	for word := range strings.FieldsSeq(line) {
		if word[0] >= '0' && word[0] <= '9' && strings.Contains(word, ".") {
			return " " + word
		}
	}
	return ""
}
