//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// The paths that a health check tries before they are used (docs/health.md). With all
// of them off, every kernel computes in f32 and needs no feature beyond Vulkan 1.2.

const (
	pathMatrix = "matrix" // products of many rows by cooperative matrices
	// products of many rows whose weights are decoded to where matrices take them from, attention
	// alike
	pathRegDecode = "regdecode"
	pathBFloat    = "bf16"    // products of many rows with weights of bf16 by cooperative matrices of it
	pathFlash     = "flash"   // attention of many tokens in one pass, by matrices with functions of elements
	pathInt8Dot   = "int8dot" // products of few rows by integer dot products
	pathOverlap   = "overlap" // stages of a token's step that begin before those before them have ended
)

// taken says which paths kernels that are chosen from now on may use.
type taken struct{ matrix, regDecode, bfloat, flash, int8Dot, overlap bool }

// tensorCore is how cooperative matrices are used: their size in each
// dimension, and the subgroup that they belong to.
type tensorCore struct{ size, subgroup int }

// core gives the shape of cooperative matrices for which modules are compiled and
// which the device has; zero: none.
func (d *Device) core() tensorCore {
	switch {
	case !d.has.matrix:
	case has(d.p.Matrices, "16x16x16 f16·f16+f32→f32") && d.subgroups(32):
		return tensorCore{16, 32}
	case has(d.p.Matrices, "8x8x8 f16·f16+f32→f32") && d.subgroups(8):
		return tensorCore{8, 8}
	}
	return tensorCore{}
}

// flash is a configuration of attention_flash.comp: rows of queries and positions that a workgroup
// multiplies at a time, its invocations, the suffix of its modules.
type flash struct {
	rows, positions, invocations int
	suffix                       string
}

// flash gives the configuration that the device has matrices for; zero: none.
func (d *Device) flash() flash {
	for _, f := range []struct {
		flash
		has   bool
		scope vk.ScopeKHR
	}{
		{flash{64, 64, 256, "64"}, d.has.shared, vk.VK_SCOPE_WORKGROUP_KHR},
		{flash{8, 16, 8, "8"}, d.has.elements && d.p.Kind == Software && d.subgroups(8), vk.VK_SCOPE_SUBGROUP_KHR},
	} {
		if f.has && slices.ContainsFunc(d.p.flexible, func(p vk.CooperativeMatrixFlexibleDimensionsPropertiesNV) bool {
			whole := func(n int, unit uint32) bool { return unit > 0 && n%int(unit) == 0 }
			return p.Scope == f.scope && (f.scope == vk.VK_SCOPE_SUBGROUP_KHR || int(p.WorkgroupInvocations) == f.invocations) &&
				p.AType == vk.VK_COMPONENT_TYPE_FLOAT16_KHR && p.BType == p.AType &&
				p.CType == vk.VK_COMPONENT_TYPE_FLOAT32_KHR && p.ResultType == p.CType && p.SaturatingAccumulation == 0 &&
				whole(f.rows, p.MGranularity) && whole(f.positions, p.NGranularity) && whole(f.positions, p.KGranularity) &&
				whole(32, p.NGranularity) && whole(32, p.KGranularity) // heads are multiples of 32
		}) {
			return f.flash
		}
	}
	return flash{}
}

// subgroups says whether all subgroups of a workgroup can have a size.
func (d *Device) subgroups(n int) bool {
	return d.p.MinSubgroup == n && d.p.MaxSubgroup == n || d.has.sizes && d.p.MinSubgroup <= n && n <= d.p.MaxSubgroup
}

// Paths lists what the device could take.
func (d *Device) Paths() []backends.Path {
	var all []backends.Path
	if d.core() != (tensorCore{}) {
		all = append(all, backends.Path{Name: pathMatrix, About: "products and attention by cooperative matrices of f16",
			Half: true, Auto: true, Rel: 2e-3, Code: codeOf("matrix", "experts", "join", "attention_matrix", "form",
				"norm"),
			Takes: func(n *graph.Node) bool {
				return isProduct(n) && d.takesMatrix(n.In[1].Type, d.rows(n.In[0].Shape.Rows())) ||
					n.Op == ops.LinearID && d.groupsByMatrix(n) || d.takesMatrixAttention(n)
			}})
	}
	if d.core().size == 16 && d.p.vendor == nvidia && d.p.Shared >= regDecodeShared {
		all = append(all, backends.Path{Name: pathRegDecode, About: "products and attention by cooperative matrices whose " +
			"factors go straight to where they are multiplied",
			Half: true, Auto: true, Rel: 2e-3, Code: codeOf("regdecode", "join", "attention_ordered", "form", "norm"),
			Takes: func(n *graph.Node) bool {
				return isProduct(n) && d.takesRegDecode(n.In[1].Type, n.In[1].Shape.Last(), d.rows(n.In[0].Shape.Rows())) ||
					d.takesRegDecodeAttention(n)
			}})
	}
	if d.bfloats() {
		all = append(all, backends.Path{Name: pathBFloat, About: "products with weights of bf16 by " +
			"cooperative matrices of it",
			Half: true, Auto: true, Rel: ops.BF16Tolerance, Code: codeOf("matrix_f16", "form", "norm") + bfloatVersion,
			Takes: d.takesBFloat})
	}
	if d.flash() != (flash{}) {
		all = append(all, backends.Path{Name: pathFlash, About: "attention in one pass by cooperative matrices with " +
			"functions of elements",
			Half: true, Auto: true, Rel: 2e-3, Code: codeOf("attention_flash"), Takes: d.takesFlash})
	}
	if d.has.dots {
		all = append(all, backends.Path{Name: pathInt8Dot, About: "products of 8-bit activations and block formats by " +
			"integer dot products",
			Half: true, Auto: true, Rel: 1e-2, Code: codeOf("matvecq", "chainq", "gateq", "handq", "form", "norm",
				"attention_few", "attention_fresh", "attention_one"),
			Takes: func(n *graph.Node) bool {
				return isProduct(n) && takesDots(n.In[1].Type, n.In[0].Shape.Rows()) ||
					n.Op == ops.LinearID && takesDots(n.In[1].Type, 1)
			}})
	}
	if d.has.dots && (d.p.inOrder || d.ordered) && !d.opt.Validate && !d.opt.Invariant {
		all = append(all, backends.Path{Name: pathOverlap, About: "stages of a step that begin while the one before ends, " +
			"without a barrier",
			Half: true, Auto: true, Code: codeOf("chainq", "gateq", "handq", "handvec", "handgate", "attention_one"),
			Takes: func(*graph.Node) bool {
				return false
			}, Try: d.tryOverlap})
	}
	for i := range all {
		all[i].On = *d.on.of(all[i].Name)
	}
	return all
}

// SetPath turns a path on or off, for kernels that are chosen from then on.
func (d *Device) SetPath(name string, on bool) error {
	for _, p := range d.Paths() {
		if p.Name == name {
			d.set(name, on)
			return nil
		}
	}
	return fmt.Errorf("vulkan: %s has no path %q", d.p.Name, name)
}

func (d *Device) set(name string, on bool) { *d.on.of(name) = on }

// of is a path's setting by its name.
func (t *taken) of(name string) *bool {
	switch name {
	case pathMatrix:
		return &t.matrix
	case pathRegDecode:
		return &t.regDecode
	case pathBFloat:
		return &t.bfloat
	case pathFlash:
		return &t.flash
	case pathInt8Dot:
		return &t.int8Dot
	case pathOverlap:
		return &t.overlap
	}
	return new(bool) // not reached: the names are of these
}

// openPaths sets the paths as a device opens.
func (d *Device) openPaths() {
	for _, p := range d.Paths() {
		d.set(p.Name, !p.Half || d.opt.FP16 == backends.On)
	}
}
