//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

const (
	pushBytes = 128 // of constants: what every device has
	workgroup = 256 // invocations, where a kernel has no reason for another number
	statusLen = 4   // words of what a kernel found wrong
)

// Device is an open device. It belongs to one goroutine at a time, which has its turn.
type Device struct {
	mutex  backends.FairMutex
	in     *instance
	p      *physical
	c      *vk.Commands
	handle vk.Device
	queue  vk.Queue
	opt    Options
	tiled  bool
	has    features
	on     taken
	chosen func(n *graph.Node) string // variants asked for; nil: none

	shorten  uint64 // set by a test: bytes by which bindings are too short
	careless bool   // set by a test: no barriers between dispatches
	lose     bool   // set by a test: the first dispatch of a step that others wait for is not recorded
	plain    bool   // set by a test: nothing is folded (fusion.go)
	distant  bool   // set by a test: the host reaches no memory of the device's
	tile     int    // set by a test: the size of tiles

	mostApart uint64 // bytes; a test may want fewer

	commands  vk.CommandPool
	cache     pipelineCache
	pipelines map[string]*pipeline
	custom    map[string][]uint32 // modules of users' kernels, by the names of their shaders
	layouts   map[int]*layout     // by the number of bindings
	types     memoryTypes

	clock    clock
	blocks   []*block
	submits  int // since the device was opened
	returned int // bytes of Step memory that came back to the host's side
	parted   int // weights that were too large for one allocation
	// mostWeight is the largest allocation of a weight, and lap what two parts of a
	// larger one share: from the device's limits, or what a test set.
	mostWeight, lap int

	empty   *buffer // stands for operands that are left out
	staging [slots]*transfer
	next    int // slot of the next copy
	tables  map[string]*table
	units   int  // whose rounds of tiles are filled by halves (splitk.go); 0: none are
	ordered bool // starts workgroups in the order of dispatches, whatever the driver
	// temporaries hold converted activations
	temporaries map[string]*buffer
	lost        error // after VK_ERROR_DEVICE_LOST every call gives this
}

// New opens a device. Its error is a *backends.NoDevice where there is none to open.
func New(opt Options) (*Device, error) {
	in, err := openInstance(opt)
	if err != nil {
		return nil, err
	}
	d := newDevice(in, opt)
	if err := d.open(); err != nil {
		return nil, errlist.Join(err, d.Close())
	}
	return d, nil
}

func newDevice(in *instance, opt Options) *Device {
	return &Device{in: in, opt: opt, pipelines: map[string]*pipeline{}, custom: map[string][]uint32{},
		layouts: map[int]*layout{},
		tables:  map[string]*table{}, mostApart: mostApart}
}

// open finds the physical device that the options ask for, and starts it.
func (d *Device) open() error {
	all, err := d.in.devices()
	if err != nil {
		return err
	}
	if d.p, err = choose(all, d.opt); err != nil {
		return err
	}
	chain, exts := d.opt.hooks.statistics(d.enable())
	for _, e := range []string{budgetExt} {
		if d.p.exts[e] {
			exts = append(exts, e)
		}
	}
	return d.start(chain, exts)
}

// start makes the logical device, with a chain of features and with extensions.
func (d *Device) start(chain unsafe.Pointer, exts []string) error {
	d.tiled = d.p.Kind != Software
	d.units = d.p.units
	if d.opt.Tiled != 0 {
		d.tiled = d.opt.Tiled > 0
	}
	priority := float32(1)
	queue := (&vk.DeviceQueueCreateInfo{QueueFamilyIndex: d.p.family, QueueCount: 1, PQueuePriorities: &priority}).Init()
	info := (&vk.DeviceCreateInfo{PNext: chain, QueueCreateInfoCount: 1, PQueueCreateInfos: queue,
		EnabledExtensionCount: uint32(len(exts)), PpEnabledExtensionNames: vk.CStrings(exts)}).Init()
	if r := d.in.c.CreateDevice(d.p.handle, info, nil, &d.handle); r != vk.VK_SUCCESS {
		return fmt.Errorf("%s: %w", d.p.Name, failed("vkCreateDevice", r))
	}
	d.c = vk.ForDevice(d.in.c, d.handle)
	d.opt.hooks.tamper(d.c)
	d.c.GetDeviceQueue(d.handle, d.p.family, 0, &d.queue)
	pool := (&vk.CommandPoolCreateInfo{QueueFamilyIndex: d.p.family,
		Flags: vk.CommandPoolCreateFlags(vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT)}).Init()
	if r := d.c.CreateCommandPool(d.handle, pool, nil, &d.commands); r != vk.VK_SUCCESS {
		return failed("vkCreateCommandPool", r)
	}
	if err := errlist.Join(d.clock.open(d), d.cache.open(d)); err != nil {
		return err
	}
	d.types, d.mostWeight, d.lap = chooseTypes(&d.p.memory, d.p.Kind), d.p.MaxAllocation, d.p.MaxAllocation/8
	d.openPaths()
	var err error
	d.empty, err = d.newBuffer(64, d.types.local, "a placeholder")
	return err
}

// Turn is for goroutines that share the device.
func (d *Device) Mutex() *backends.FairMutex { return &d.mutex }

// Info describes the device.
func (d *Device) Info() backends.Info {
	d.in.memories(d.p)
	return backends.Info{Backend: "vulkan", Name: d.p.Name, Level: string(d.p.Kind), Float: tensor.F32, Align: 64,
		Fusions: fusions, Memory: d.p.Memory(), Threads: 1, Driver: d.p.Driver,
		Running: backends.Running{Window: foldWindow, Queued: true, Picks: pickMost, Chain: chainLaunches}}
}

// Description tells what is known of the device.
func (d *Device) Description() Description { return d.p.Description }

// Close gives everything back.
func (d *Device) Close() error {
	if d.handle != 0 {
		if r := d.c.DeviceWaitIdle(d.handle); r != vk.VK_SUCCESS && d.lost == nil {
			d.lost = failed("vkDeviceWaitIdle", r)
		}
		d.cache.close(d)
		for _, p := range d.pipelines {
			d.c.DestroyPipeline(d.handle, p.handle, nil)
		}
		for _, l := range d.layouts {
			d.c.DestroyPipelineLayout(d.handle, l.pipeline, nil)
			d.c.DestroyDescriptorSetLayout(d.handle, l.set, nil)
		}
		for _, t := range d.tables {
			t.buffer.release()
		}
		for _, t := range d.temporaries {
			t.release()
		}
		for _, t := range d.staging {
			if t != nil {
				t.close()
			}
		}
		if d.empty != nil {
			d.empty.release()
		}
		for len(d.blocks) > 0 {
			d.dropBlock(d.blocks[0])
		}
		d.clock.close(d)
		if d.commands != 0 {
			d.c.DestroyCommandPool(d.handle, d.commands, nil)
		}
		d.c.DestroyDevice(d.handle, nil)
		d.handle = 0
	}
	if d.in != nil {
		d.in.close()
		d.in = nil
	}
	return nil
}

// Kernel chooses the kernel of a node.
func (d *Device) Kernel(n *graph.Node) (backends.Kernel, error) {
	e, ok := kernels[n.Op.Name]
	if !ok {
		return nil, backends.Unsupportedf("vulkan", n, "it is not in the table of kernels")
	}
	if why := ops.Beyond(n); why != "" && n.Op == ops.Attention && (isCoded(n.In[1].Type) || isCoded(n.In[2].Type)) {
		return nil, backends.Unsupportedf("vulkan", n, "%s over caches of eight bits: no kernel of this backend does that",
			why)
	}
	if far := ops.Place(n, "far_q"); n.Op == ops.PagedAttention && len(n.In) > far && isCoded(n.In[1].Type) {
		return nil, backends.Unsupportedf("vulkan", n, "far_q over caches of eight bits: no kernel of this backend does that")
	}
	for _, v := range n.Out {
		if n.Op.Kind != graph.Update && v.Type != tensor.F32 && v.Type != tensor.I32 {
			return nil, backends.Unsupportedf("vulkan", n, "%s: results are f32 here", v)
		}
	}
	for i, v := range n.In {
		if v == nil || v.Type == tensor.F32 || v.Type == tensor.I32 {
			continue
		}
		if k := v.Root().Kind; k != graph.Weight && k != graph.State {
			return nil, backends.Unsupportedf("vulkan", n, "operand %d is %s: activations are f32 here", i, v)
		}
		if _, ok := typeCodes[v.Type]; !ok {
			return nil, backends.Unsupportedf("vulkan", n, "operand %d is %s, which no kernel decodes", i, v)
		}
		if t := n.Op.Sig.In[i].Type; e.typed < 0 && n.Op != ops.Rows && (t == "T" || t == "any") {
			return nil, backends.Unsupportedf("vulkan", n, "operand %d is %s; f32 is read there", i, v)
		}
		if !e.decodes(i) && !narrow(v.Type) && !(isCoded(v.Type) && slices.Contains(e.caches, i)) {
			return nil, backends.Unsupportedf("vulkan", n, "operand %d is %s; f32, f16 and bf16 can be read there", i, v)
		}
	}
	k := &kernel{name: n.Op.Name, bind: e.bind, packed: -1, on: d.on}
	if len(e.wide) > 0 && packingOf(n.In[e.wide[0]].Type) != nil && n.In[e.wide[0]].Root().Kind == graph.Weight {
		k.packed = e.wide[0]
	}
	var err error
	if k.variant, err = d.variantOf(n); err != nil {
		return nil, err
	}
	rounding := d.Rounding()
	k.why, k.rel = d.why(n, &e, k.variant), rounding.Tolerance(n)
	if e.typed >= 0 {
		k.name += "." + n.In[e.typed].Type.String()
	}
	if e.scratch != nil {
		k.scratch = e.scratch(d, n)
	}
	return k, nil
}

// Rounding is what the paths that are on round.
func (d *Device) Rounding() ops.Rounding {
	return ops.Rounding{Quant: d.on.int8Dot, BF16: d.on.bfloat, F16: d.on.matrix || d.on.regDecode || d.on.flash}
}

// kernel is the choice for a node.
type kernel struct {
	name    string
	why     string
	rel     float64
	bind    binder
	scratch int
	on      taken
	variant *matrixVariant // nil: it has none
	packed  int            // the operand that lies packed, -1: none
	own     *customKernel  // that a user wrote; nil: it is this package's
}

func (k *kernel) Name() string { return k.name }

func (k *kernel) Traits() backends.Traits {
	return backends.Traits{Scratch: k.scratch, Tolerance: k.rel, Why: k.why}
}

// Instance is what a user's kernel was made of, nil for others.
func (k *kernel) Instance() *custom.Instance {
	if k.own == nil {
		return nil
	}
	return k.own.Of
}

func (k *kernel) Packing(arg int) *backends.Packing {
	if k.own != nil {
		return k.own.Packing(arg)
	}
	if arg != k.packed {
		return nil
	}
	return packing
}

// check turns a result code into an error that names the call and what it was
// for, and remembers that a device is lost.
func (d *Device) check(r vk.Result, call, what string) error {
	if r == vk.VK_SUCCESS {
		return nil
	}
	err := fmt.Errorf("%s (%s): %w", call, what, r)
	if r == vk.VK_ERROR_DEVICE_LOST {
		d.lost = backends.Lost(fmt.Errorf("%s: the device was lost: %w", d.p.Name, err))
		return d.lost
	}
	return err
}

// words sees mapped memory as 32-bit words.
func words(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
