//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	flags "flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// What AMD's compiler makes of each kernel, without a card: Mesa's driver as a null
// device. radv.sh runs this test once for each GPU and puts the lines together in
// testdata/radv.txt.

var radvOut = flags.String("radv", "", "`file`, named as the GPU, to which TestRADV writes what AMD's compiler made "+
	"of each kernel")

// onPaper replaces what a null device has not: memory, recording, submission. What is
// left compiles.
func onPaper(t *testing.T) func(c *vk.Commands) {
	nothing := purego.NewCallback(func() uintptr { return 0 })
	handles := uint64(1 << 20)
	give := func(out *uint64) uintptr {
		handles++
		*out = handles
		return 0
	}
	object := purego.NewCallback(func(_, _, _ uintptr, out *uint64) uintptr { return give(out) })
	memory := purego.NewCallback(func(_ uintptr, m *vk.PhysicalDeviceMemoryProperties2) uintptr {
		m.MemoryProperties = vk.PhysicalDeviceMemoryProperties{MemoryTypeCount: 1, MemoryHeapCount: 1}
		m.MemoryProperties.MemoryTypes[0].PropertyFlags = local | visible | coherent | cached
		m.MemoryProperties.MemoryHeaps[0] = vk.MemoryHeap{Size: 1 << 36,
			Flags: vk.MemoryHeapFlags(vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)}
		if m.PNext != nil { // the budget, which an engine's rehearsal compares with what a model needs
			(*vk.PhysicalDeviceMemoryBudgetPropertiesEXT)(m.PNext).HeapBudget[0] = 1 << 36
		}
		return 0
	})
	sizes := map[uint64]uint64{}
	buffer := purego.NewCallback(func(_ uintptr, info *vk.BufferCreateInfo, _ uintptr, out *uint64) uintptr {
		give(out)
		sizes[*out] = info.Size
		return 0
	})
	need := purego.NewCallback(func(_ uintptr, info *vk.BufferMemoryRequirementsInfo2, m *vk.MemoryRequirements2) uintptr {
		m.MemoryRequirements = vk.MemoryRequirements{Size: sizes[uint64(info.Buffer)], Alignment: 256, MemoryTypeBits: 1}
		return 0
	})
	allocate := purego.NewCallback(func(_ uintptr, info *vk.MemoryAllocateInfo, _ uintptr, out *uint64) uintptr {
		give(out)
		sizes[*out] = info.AllocationSize
		return 0
	})
	regions := map[uint64][]byte{}
	mapped := purego.NewCallback(func(_ uintptr, memory, _, _ uint64, _ uint32, out *unsafe.Pointer) uintptr {
		data, err := syscall.Mmap(-1, 0, int(sizes[memory]), syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			t.Error(err)
			return 1
		}
		regions[memory] = data
		*out = unsafe.Pointer(&data[0])
		return 0
	})
	free := purego.NewCallback(func(_ uintptr, memory uint64, _ uintptr) uintptr {
		if data, ok := regions[memory]; ok {
			delete(regions, memory)
			if err := syscall.Munmap(data); err != nil {
				t.Error(err)
			}
		}
		return 0
	})
	return func(c *vk.Commands) {
		for _, p := range []*uintptr{&c.QueueSubmitAddr, &c.WaitSemaphoresAddr, &c.BeginCommandBufferAddr,
			&c.EndCommandBufferAddr,
			&c.CmdBindPipelineAddr, &c.CmdBindDescriptorSetsAddr, &c.CmdPushConstantsAddr, &c.CmdDispatchAddr,
			&c.CmdPipelineBarrierAddr,
			&c.CmdCopyBufferAddr, &c.CmdFillBufferAddr, &c.AllocateDescriptorSetsAddr, &c.UpdateDescriptorSetsAddr,
			&c.DestroyDescriptorPoolAddr, &c.AllocateCommandBuffersAddr, &c.FreeCommandBuffersAddr, &c.BindBufferMemory2Addr,
			&c.DestroyBufferAddr} {
			*p = nothing
		}
		c.CreateSemaphoreAddr, c.CreateDescriptorPoolAddr = object, object
		c.CreateBufferAddr, c.GetBufferMemoryRequirements2Addr = buffer, need
		c.AllocateMemoryAddr, c.MapMemoryAddr, c.FreeMemoryAddr = allocate, mapped, free
		c.GetPhysicalDeviceMemoryProperties2Addr = memory
	}
}

// TestRADV compiles every kernel, in every variant that the table of operators and a
// 7B model's shapes and steps of one token take, for the GPU that RADV_FORCE_FAMILY names.
// In one piece: kernels are gathered, compiled, and compared with the list.
func TestRADV(t *testing.T) {
	if *radvOut == "" {
		t.Skip("radv.sh runs it")
	}
	gpu := filepath.Base(*radvOut)
	made := map[string][][]uint64{} // statistics of each variant of a kernel
	var dev *Device
	inspect := func(shader string, _ []uint32, p vk.Pipeline) {
		list, err := statistics(dev, p)
		if err != nil {
			t.Fatalf("%s: %v", shader, err)
		}
		made[shader] = append(made[shader], list)
	}
	opt := Options{Device: "0", FP16: backends.On, hooks: &hooks{replace: onPaper(t), inspect: inspect}}
	in, err := openInstance(opt)
	if err != nil {
		t.Fatal(err)
	}
	// A null device cannot be closed.
	dev = &Device{in: in, opt: opt, pipelines: map[string]*pipeline{}, layouts: map[int]*layout{},
		tables: map[string]*table{}}
	if err := dev.open(); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		if p, ok := any(dev).(backends.Pathed); ok {
			for _, path := range p.Paths() {
				if err := p.SetPath(path.Name, on); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, c := range optest.Cases() {
			if optest.Known("vulkan", c.Name) {
				continue
			}
			n, err := c.Bare(tensor.F32)
			if err != nil {
				t.Fatal(err)
			}
			compile(t, dev, n)
		}
		for _, n := range shapes() {
			compile(t, dev, n)
			if n.Op == ops.Linear && n.In[0].Shape[0] == 64 { // tiles that only software devices choose
				dev.tile = 32
				compile(t, dev, n)
				dev.tile = 0
			}
		}
	}
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range slices.Sorted(maps.Keys(typeCodes)) { // what launches are folded into
		if typ != tensor.F16 && typ != tensor.BF16 && !chainTypes[typ] {
			continue
		}
		for _, path := range dev.Paths() {
			if err := dev.SetPath(path.Name, true); err != nil {
				t.Fatal(err)
			}
		}
		for _, kv := range []tensor.Type{tensor.F16, tensor.F32} {
			opt := engine.Options{Model: file, Device: onlyPlans{dev}, Context: 2048, DType: typ, KV: kv,
				Set: map[string]string{"L": "2"}}
			if err := engine.DryRun(opt, 1); err != nil {
				t.Fatalf("a model of %s with caches of %s: %v", typ, kv, err)
			}
		}
	}
	var text strings.Builder
	for _, name := range moduleNames() {
		fmt.Fprintf(&text, "%-24s %-9s %s\n", name, gpu, summary(made[name]))
	}
	if len(made) < 20 {
		t.Errorf("only %d kernels were compiled", len(made))
	}
	if err := os.WriteFile(*radvOut, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// onlyPlans is a device that binds programs, and records and runs nothing.
type onlyPlans struct{ *Device }

func (d onlyPlans) Capture(p *backends.Program) (backends.Executable, error) {
	e, err := d.plan(p, false)
	return e, err
}

// shapes are nodes of a 7B model, and attention over wider heads.
func shapes() (list []*graph.Node) {
	value := func(kind graph.Kind, typ tensor.Type, shape ...int) *graph.Value {
		return &graph.Value{Name: "v", Kind: kind, Type: typ, Shape: shape}
	}
	add := func(op *graph.Op, attr any, out *graph.Value, in ...*graph.Value) {
		list = append(list, &graph.Node{Name: op.Name, Op: op, In: in, Out: []*graph.Value{out}, Attr: attr,
			Float: tensor.F32})
	}
	for _, s := range []int{1, 4, 8, 64, 512} {
		for _, typ := range slices.Sorted(maps.Keys(typeCodes)) {
			for _, n := range []int{4096, 11008} {
				add(ops.Linear, nil, value(graph.Computed, tensor.F32, s, n), value(graph.Input, tensor.F32, s, 4096),
					value(graph.Weight, typ, n, 4096))
			}
		}
		for _, head := range []int{128, 256, 512} {
			for _, kv := range []tensor.Type{tensor.F16, tensor.BF16, tensor.F32} {
				cache := value(graph.State, kv, 2048, 8, head)
				add(ops.Attention, ops.Attention.Attr(), value(graph.Computed, tensor.F32, s, 32, head),
					value(graph.Input, tensor.F32, s, 32, head), cache, cache, value(graph.Input, tensor.I32, s))
			}
		}
	}
	return list
}

// summary gives each statistic of a kernel's variants, or its least and greatest.
func summary(variants [][]uint64) string {
	if len(variants) == 0 {
		return "not chosen for this GPU"
	}
	text := ""
	for i, name := range append([]string{"wave"}, shortNames...) {
		least, most := variants[0][i], variants[0][i]
		for _, v := range variants {
			least, most = min(least, v[i]), max(most, v[i])
		}
		if text += fmt.Sprintf("%s %d", name, least); most > least {
			text += fmt.Sprintf("-%d", most)
		}
		text += "  "
	}
	return text + fmt.Sprintf("variants %d", len(variants))
}

// The statistics that are kept, as Mesa names them and as the lines do. waves are
// those that a SIMD holds at a time.
var (
	longNames = []string{"VGPRs", "SGPRs", "Spilled VGPRs", "Spilled SGPRs", "LDS size", "Scratch size",
		"Subgroups per SIMD", "Code size"}
	shortNames = []string{"vgpr", "sgpr", "vspill", "sspill", "lds", "scratch", "waves", "code"}
)

// compile binds a launch of a node, which makes its pipelines. What the device has no
// kernel for, or no range large enough, is left out.
func compile(t *testing.T, dev *Device, n *graph.Node) {
	t.Helper()
	k, err := dev.Kernel(n)
	if err != nil {
		return
	}
	place := func(v *graph.Value, use backends.Use, p *backends.Packing) (o backends.Operand) {
		if v == nil {
			return o
		}
		size := v.Bytes()
		if p != nil {
			size, o.Packing = p.Size(v.Type, v.Shape), p.ID
		}
		buf, err := dev.Alloc(size, use)
		if err != nil {
			t.Fatal(err)
		}
		buf.(*buffer).fresh = false // nobody reads it
		t.Cleanup(func() { buf.Free() })
		o.Buffer, o.Type, o.Shape, o.Stride = buf, v.Type, v.Shape, v.Type.RowBytes(v.Shape[1:].Elems())
		return o
	}
	l := backends.Launch{Node: n, Kernel: k}
	for i, v := range n.In {
		use := backends.Arena
		if v != nil && v.Kind == graph.Weight {
			use = backends.Weights
		}
		l.In = append(l.In, place(v, use, k.Packing(i)))
	}
	for i, v := range n.Out {
		if n.Op.Kind == graph.Update && n.In[i] != nil && v.Shape.Equal(n.In[i].Shape) { // a state in place
			l.Out = append(l.Out, l.In[i])
		} else {
			l.Out = append(l.Out, place(v, backends.Arena, nil))
		}
	}
	if size := k.Traits().Scratch; size > 0 {
		l.Scratch = place(&graph.Value{Type: tensor.U8, Shape: tensor.Shape{size}}, backends.Arena, nil)
	}
	if e, err := dev.Capture(&backends.Program{Name: n.Name, Launches: []backends.Launch{l}}); err != nil {
		t.Errorf("%v: %v", n, err)
	} else if err := e.Close(); err != nil {
		t.Error(err)
	}
	for _, o := range append(l.In, l.Out...) {
		if o.Buffer != nil {
			o.Buffer.Free()
		}
	}
}

// statistics gives what the driver says of a pipeline's code: the size of a wave, then
// longNames.
func statistics(d *Device, p vk.Pipeline) ([]uint64, error) {
	n := uint32(1)
	properties := (&vk.PipelineExecutablePropertiesKHR{}).Init()
	if r := d.c.GetPipelineExecutablePropertiesKHR(d.handle, (&vk.PipelineInfoKHR{Pipeline: p}).Init(), &n,
		properties); r < 0 || n == 0 {
		return nil, failed("vkGetPipelineExecutablePropertiesKHR", r)
	}
	info := (&vk.PipelineExecutableInfoKHR{Pipeline: p}).Init()
	if r := d.c.GetPipelineExecutableStatisticsKHR(d.handle, info, &n, nil); r != vk.VK_SUCCESS || n == 0 {
		return nil, failed("vkGetPipelineExecutableStatisticsKHR", r)
	}
	list := make([]vk.PipelineExecutableStatisticKHR, n)
	for i := range list {
		list[i].Init()
	}
	if r := d.c.GetPipelineExecutableStatisticsKHR(d.handle, info, &n, &list[0]); r != vk.VK_SUCCESS {
		return nil, failed("vkGetPipelineExecutableStatisticsKHR", r)
	}
	out := []uint64{uint64(properties.SubgroupSize)}
	for _, name := range longNames {
		i := slices.IndexFunc(list, func(s vk.PipelineExecutableStatisticKHR) bool { return vk.GoString(s.Name[:]) == name })
		if i < 0 {
			return nil, fmt.Errorf("the driver does not tell %q", name)
		}
		out = append(out, uint64(list[i].Value))
	}
	return out, nil
}
