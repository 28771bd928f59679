//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/greta-project/greta/backends/vulkan/vk"
)

// apiVersion is the least version of a device, 1.2: timeline of features and
// 8-bit and 16-bit types are core there.
const apiVersion = 1<<22 | 2<<12

// instance is the connection to the loader.
type instance struct {
	c         *vk.Commands
	handle    vk.Instance
	messenger vk.DebugUtilsMessengerEXT
}

func failed(call string, r vk.Result) error { return fmt.Errorf("%s: %w", call, r) }

// manifestsNamed says which manifests of drivers the loader was told to take instead of those installed.
func manifestsNamed() string {
	for _, v := range []string{"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} {
		if files := os.Getenv(v); files != "" {
			return fmt.Sprintf("; only drivers of %s=%s are looked at", v, files)
		}
	}
	return ""
}

func openInstance(opt Options) (*instance, error) {
	loader, err := vk.Open(opt.hooks.libraries()...)
	if err != nil {
		return nil, noDevice("the Vulkan loader cannot be loaded (install libvulkan1): " + err.Error())
	}
	global := loader.Global()
	app := (&vk.ApplicationInfo{ApiVersion: 1<<22 | 3<<12, PApplicationName: vk.CString("greta")}).Init()
	info := (&vk.InstanceCreateInfo{PApplicationInfo: app}).Init()
	var messenger *vk.DebugUtilsMessengerCreateInfoEXT
	if opt.Validate {
		messenger = validation(info, opt)
	}
	in := &instance{}
	if r := global.CreateInstance(info, nil, &in.handle); r != vk.VK_SUCCESS {
		if r == vk.VK_ERROR_INCOMPATIBLE_DRIVER {
			return nil, noDevice("no driver is installed (vkCreateInstance: " + r.Error() + ")" + manifestsNamed())
		}
		return nil, fmt.Errorf("vkCreateInstance: %w%s", r, manifestsNamed())
	}
	in.c = loader.ForInstance(in.handle)
	opt.hooks.tamper(in.c)
	if messenger != nil {
		if r := in.c.CreateDebugUtilsMessengerEXT(in.handle, messenger, nil, &in.messenger); r != vk.VK_SUCCESS {
			in.close()
			return nil, failed("vkCreateDebugUtilsMessengerEXT", r)
		}
	}
	return in, nil
}

// validation asks for the validation layer, whose messages go to opt.Message.
func validation(info *vk.InstanceCreateInfo, opt Options) *vk.DebugUtilsMessengerCreateInfoEXT {
	tell := opt.Message
	callback := purego.NewCallback(func(severity, types uint32, data *vk.DebugUtilsMessengerCallbackDataEXT,
		_ unsafe.Pointer) uintptr {
		if tell != nil {
			tell(vk.GoStringAt(data.PMessageIdName) + ": " + vk.GoStringAt(data.PMessage))
		}
		return 0 // the call goes on
	})
	m := (&vk.DebugUtilsMessengerCreateInfoEXT{
		MessageSeverity: vk.DebugUtilsMessageSeverityFlagsEXT(vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT |
			vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT),
		MessageType: 7, PfnUserCallback: callback}).Init()
	enable := []vk.ValidationFeatureEnableEXT{vk.VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT}
	if opt.Bounds {
		enable[0] = vk.VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT
	}
	features := (&vk.ValidationFeaturesEXT{PNext: unsafe.Pointer(m), EnabledValidationFeatureCount: uint32(len(enable)),
		PEnabledValidationFeatures: &enable[0]}).Init()
	info.PNext = unsafe.Pointer(features)
	info.EnabledLayerCount, info.PpEnabledLayerNames = 1, vk.CStrings([]string{"VK_LAYER_KHRONOS_validation"})
	exts := []string{"VK_EXT_debug_utils", "VK_EXT_validation_features"}
	info.EnabledExtensionCount, info.PpEnabledExtensionNames = uint32(len(exts)), vk.CStrings(exts)
	return m
}

// stays is set once an instance was left open.
var stays atomic.Bool

// close destroys the instance, but for the process's first: without any the loader
// would unload the drivers, and each time that NVIDIA's is loaded anew it takes more of
// the C library's room for thread-local variables, until it finds none and there seems
// to be no driver (after some thirty times).
func (in *instance) close() {
	if in.messenger != 0 {
		in.c.DestroyDebugUtilsMessengerEXT(in.handle, in.messenger, nil)
	} else if stays.CompareAndSwap(false, true) {
		return
	}
	in.c.DestroyInstance(in.handle, nil)
}

// physical is a device that the instance offers.
type physical struct {
	Description
	handle  vk.PhysicalDevice
	limits  vk.PhysicalDeviceLimits
	memory  vk.PhysicalDeviceMemoryProperties
	exts    map[string]bool
	api     uint32 // version
	family  uint32 // of queues that compute
	stamps  bool   // the family has timestamps
	cacheID string // names device and driver
	vendor  uint32 // its number in PCI
	shuffle bool   // invocations of a subgroup read each other's numbers
	inOrder bool   // NVIDIA's own driver: workgroups start in the order of dispatches
	tells   bool   // the like: the host sees what commands write to its memory before they have ended
	units   int    // multiprocessors; 0: unknown
	// flexible are the matrices whose sizes are free but for granularities
	flexible []vk.CooperativeMatrixFlexibleDimensionsPropertiesNV
}

func (in *instance) devices() ([]*physical, error) {
	var n uint32
	if r := in.c.EnumeratePhysicalDevices(in.handle, &n, nil); r != vk.VK_SUCCESS {
		return nil, failed("vkEnumeratePhysicalDevices", r)
	}
	if n == 0 {
		return nil, noDevice("the drivers found none")
	}
	handles := make([]vk.PhysicalDevice, n)
	if r := in.c.EnumeratePhysicalDevices(in.handle, &n, &handles[0]); r != vk.VK_SUCCESS && r != vk.VK_INCOMPLETE {
		return nil, failed("vkEnumeratePhysicalDevices", r)
	}
	var all []*physical
	for i, h := range handles[:n] {
		p, err := in.describe(h)
		if err != nil {
			return nil, err
		}
		p.Index = i
		all = append(all, p)
	}
	return all, nil
}

var kinds = map[vk.PhysicalDeviceType]Kind{
	vk.VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: Discrete, vk.VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: Integrated,
	vk.VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: Virtual, vk.VK_PHYSICAL_DEVICE_TYPE_CPU: Software,
	vk.VK_PHYSICAL_DEVICE_TYPE_OTHER: Other,
}

// subgroupSizes has the layout of VkPhysicalDeviceSubgroupSizeControlProperties,
// core in 1.3 and an extension before.
const (
	subgroupExt     = "VK_EXT_subgroup_size_control"
	budgetExt       = "VK_EXT_memory_budget"
	matrixExt       = "VK_KHR_cooperative_matrix"
	maintenance4Ext = "VK_KHR_maintenance4"
	pciExt          = "VK_EXT_pci_bus_info"
	smExt           = "VK_NV_shader_sm_builtins"
)

// describe asks a card for what it can: in one piece, a list of questions, each with the field that
// its answer fills.
func (in *instance) describe(h vk.PhysicalDevice) (*physical, error) {
	p := &physical{handle: h}
	var err error
	if p.exts, err = in.extensions(h); err != nil {
		return nil, err
	}
	p11 := (&vk.PhysicalDeviceVulkan11Properties{}).Init()
	p12 := (&vk.PhysicalDeviceVulkan12Properties{PNext: unsafe.Pointer(p11)}).Init()
	p2 := (&vk.PhysicalDeviceProperties2{}).Init()
	in.c.GetPhysicalDeviceProperties2(h, p2)
	props := &p2.Properties
	p.Name, p.Kind = vk.GoString(props.DeviceName[:]), kinds[props.DeviceType]
	if p.Kind == "" {
		p.Kind = Other
	}
	v := props.ApiVersion
	p.API = fmt.Sprintf("%d.%d.%d", v>>22, v>>12&0x3ff, v&0xfff)
	p.limits, p.api = props.Limits, v
	if v < apiVersion {
		p.Reason = "it has Vulkan " + p.API + ", 1.2 is needed"
		return p, nil
	}
	sizes := (&vk.PhysicalDeviceSubgroupSizeControlProperties{PNext: unsafe.Pointer(p12)}).Init()
	p2.PNext = unsafe.Pointer(p12)
	if p.exts[subgroupExt] || v>>12&0x3ff >= 3 {
		p2.PNext = unsafe.Pointer(sizes)
	}
	m4 := (&vk.PhysicalDeviceMaintenance4Properties{}).Init()
	if p.exts[maintenance4Ext] || v>>12&0x3ff >= 3 {
		m4.PNext = p2.PNext
		p2.PNext = unsafe.Pointer(m4)
	}
	pci := (&vk.PhysicalDevicePCIBusInfoPropertiesEXT{}).Init()
	if p.exts[pciExt] {
		pci.PNext = p2.PNext
		p2.PNext = unsafe.Pointer(pci)
	}
	sm := (&vk.PhysicalDeviceShaderSMBuiltinsPropertiesNV{}).Init()
	if p.exts[smExt] {
		sm.PNext = p2.PNext
		p2.PNext = unsafe.Pointer(sm)
	}
	in.c.GetPhysicalDeviceProperties2(h, p2)
	if p.exts[pciExt] {
		p.Location = fmt.Sprintf("%04x:%02x:%02x.%x", pci.PciDomain, pci.PciBus, pci.PciDevice, pci.PciFunction)
	}
	p.UUID = hex.EncodeToString(p11.DeviceUUID[:])
	p.Driver = strings.TrimSpace(vk.GoString(p12.DriverName[:]) + " " + vk.GoString(p12.DriverInfo[:]))
	p.inOrder = p12.DriverID == vk.VK_DRIVER_ID_NVIDIA_PROPRIETARY
	p.tells = p.inOrder
	p.vendor = p2.Properties.VendorID
	p.units = int(sm.ShaderSMCount)
	p.cacheID = hex.EncodeToString(p2.Properties.PipelineCacheUUID[:])
	p.Subgroup, p.MinSubgroup, p.MaxSubgroup = int(p11.SubgroupSize), int(p11.SubgroupSize), int(p11.SubgroupSize)
	if sizes.MinSubgroupSize > 0 {
		p.MinSubgroup, p.MaxSubgroup = int(sizes.MinSubgroupSize), int(sizes.MaxSubgroupSize)
	}
	p.shuffle = p11.SubgroupSupportedOperations&vk.SubgroupFeatureFlags(vk.VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0
	p.Limits = describeLimits(&p.limits)
	p.MaxAllocation = int(min(p11.MaxMemoryAllocationSize, 1<<62))
	if m4.MaxBufferSize > 0 {
		p.MaxAllocation = int(min(uint64(p.MaxAllocation), m4.MaxBufferSize))
	}
	if p11.SubgroupSupportedOperations&vk.SubgroupFeatureFlags(vk.VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) == 0 ||
		p11.SubgroupSupportedStages&vk.ShaderStageFlags(vk.VK_SHADER_STAGE_COMPUTE_BIT) == 0 {
		p.Reason = "its compute shaders have no arithmetic over subgroups"
	}
	if p.limits.MaxPushConstantsSize < pushBytes || p.Invocations < workgroup {
		p.Reason = fmt.Sprintf("its workgroups of %d, or its %d bytes of push constants, are less than the %d and %d that "+
			"are needed",
			p.Invocations, p.limits.MaxPushConstantsSize, workgroup, pushBytes)
	}
	if err := in.queues(p); err != nil {
		p.Reason = err.Error()
	}
	if !p.stamps {
		p.Tick = 0
	}
	if p.Features = in.features(p); !slices.Contains(p.Features, timelines) {
		p.Reason = "it has no " + timelines
	}
	in.memories(p)
	if p.exts[matrixExt] {
		p.Matrices = in.matrices(h)
	}
	if p.exts[matrix2Ext] {
		p.flexible = in.flexible(h)
	}
	return p, nil
}

func (in *instance) extensions(h vk.PhysicalDevice) (map[string]bool, error) {
	var n uint32
	if r := in.c.EnumerateDeviceExtensionProperties(h, nil, &n, nil); r != vk.VK_SUCCESS {
		return nil, failed("vkEnumerateDeviceExtensionProperties", r)
	}
	list := make([]vk.ExtensionProperties, n+1)
	if r := in.c.EnumerateDeviceExtensionProperties(h, nil, &n, &list[0]); r != vk.VK_SUCCESS && r != vk.VK_INCOMPLETE {
		return nil, failed("vkEnumerateDeviceExtensionProperties", r)
	}
	exts := map[string]bool{}
	for _, e := range list[:n] {
		exts[vk.GoString(e.ExtensionName[:])] = true
	}
	return exts, nil
}

// queues finds a family that computes, one with graphics where there is a choice.
func (in *instance) queues(p *physical) error {
	var n uint32
	in.c.GetPhysicalDeviceQueueFamilyProperties2(p.handle, &n, nil)
	list := make([]vk.QueueFamilyProperties2, n+1)
	for i := range list {
		list[i].Init()
	}
	in.c.GetPhysicalDeviceQueueFamilyProperties2(p.handle, &n, &list[0])
	found := false
	for i, q := range list[:n] {
		f := q.QueueFamilyProperties
		if f.QueueFlags&vk.QueueFlags(vk.VK_QUEUE_COMPUTE_BIT) == 0 || f.QueueCount == 0 {
			continue
		}
		if !found || f.QueueFlags&vk.QueueFlags(vk.VK_QUEUE_GRAPHICS_BIT) != 0 {
			p.family, p.stamps = uint32(i), f.TimestampValidBits > 0
		}
		if found = true; f.QueueFlags&vk.QueueFlags(vk.VK_QUEUE_GRAPHICS_BIT) != 0 {
			break // the main queue runs at the full clock on every driver
		}
	}
	if !found {
		return errors.New("it has no queue that computes")
	}
	return nil
}

func (in *instance) memories(p *physical) {
	budget := (&vk.PhysicalDeviceMemoryBudgetPropertiesEXT{}).Init()
	m := (&vk.PhysicalDeviceMemoryProperties2{}).Init()
	if p.exts[budgetExt] {
		m.PNext = unsafe.Pointer(budget)
	}
	in.c.GetPhysicalDeviceMemoryProperties2(p.handle, m)
	p.memory = m.MemoryProperties
	p.Unified = true
	p.Heaps = nil
	for i, h := range p.memory.MemoryHeaps[:p.memory.MemoryHeapCount] {
		device := h.Flags&vk.MemoryHeapFlags(vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0
		p.Unified = p.Unified && device
		heap := Heap{Size: int(h.Size), Device: device}
		if p.exts[budgetExt] {
			left := budget.HeapBudget[i] - min(budget.HeapBudget[i], budget.HeapUsage[i])
			heap.Budget = int(max(1, min(left, h.Size))) // 0 is what is not known
		}
		p.Heaps = append(p.Heaps, heap)
	}
}

// matrices lists cooperative matrix shapes as MxNxK A·B+C→R of their types.
func (in *instance) matrices(h vk.PhysicalDevice) []string {
	var n uint32
	if in.c.GetPhysicalDeviceCooperativeMatrixPropertiesKHRAddr == 0 ||
		in.c.GetPhysicalDeviceCooperativeMatrixPropertiesKHR(h, &n, nil) != vk.VK_SUCCESS || n == 0 {
		return nil
	}
	list := make([]vk.CooperativeMatrixPropertiesKHR, n)
	for i := range list {
		list[i].Init()
	}
	if in.c.GetPhysicalDeviceCooperativeMatrixPropertiesKHR(h, &n, &list[0]) != vk.VK_SUCCESS {
		return nil
	}
	names := map[vk.ComponentTypeKHR]string{0: "f16", 1: "f32", 2: "f64", 3: "i8", 4: "i16", 5: "i32", 6: "i64", 7: "u8",
		8: "u16", 9: "u32", 10: "u64", bfloatComponent: "bf16"}
	var out []string
	for _, m := range list[:n] {
		name := func(t vk.ComponentTypeKHR) string {
			if s, ok := names[t]; ok {
				return s
			}
			return fmt.Sprintf("type%d", int32(t))
		}
		s := fmt.Sprintf("%dx%dx%d %s·%s+%s→%s", m.MSize, m.NSize, m.KSize, name(m.AType), name(m.BType), name(m.CType),
			name(m.ResultType))
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// flexible lists the matrices whose sizes are free but for granularities.
func (in *instance) flexible(h vk.PhysicalDevice) []vk.CooperativeMatrixFlexibleDimensionsPropertiesNV {
	var n uint32
	if in.c.GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNVAddr == 0 ||
		in.c.GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV(h, &n, nil) != vk.VK_SUCCESS || n == 0 {
		return nil
	}
	list := make([]vk.CooperativeMatrixFlexibleDimensionsPropertiesNV, n)
	for i := range list {
		list[i].Init()
	}
	if in.c.GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV(h, &n, &list[0]) != vk.VK_SUCCESS {
		return nil
	}
	return list[:n]
}

// List describes all devices, also those that cannot be used, with the reason.
func List() ([]Description, error) {
	in, err := openInstance(Options{})
	if err != nil {
		return nil, err
	}
	defer in.close()
	all, err := in.devices()
	if err != nil {
		return nil, err
	}
	list := make([]Description, len(all))
	for i, p := range all {
		list[i] = p.Description
	}
	return list, nil
}

// named says whether a device is the one that was asked for: by number, UUID, PCI
// address, kind, or a part of its name.
func (p *physical) named(name string) bool {
	if n, err := strconv.Atoi(name); err == nil {
		return n == p.Index
	}
	return strings.EqualFold(strings.ReplaceAll(name, "-", ""), p.UUID) || name == p.Location ||
		strings.EqualFold(name, string(p.Kind)) || strings.Contains(strings.ToLower(p.Name), strings.ToLower(name))
}

// choose picks the device that the options ask for: of several that it may mean, the
// first that can be used.
func choose(all []*physical, opt Options) (*physical, error) {
	var lines []string
	for _, p := range all {
		line := fmt.Sprintf("%d %s (%s)", p.Index, p.Name, p.Kind)
		if p.Reason != "" {
			line += ": " + p.Reason
		}
		lines = append(lines, line)
	}
	have := "; there are: " + strings.Join(lines, ", ")
	if opt.Device != "" {
		var unfit error
		for _, p := range all {
			switch {
			case !p.named(opt.Device):
			case p.Reason == "":
				return p, nil
			case unfit == nil:
				unfit = noDevice(p.Name + " cannot be used: " + p.Reason)
			}
		}
		if unfit != nil {
			return nil, unfit
		}
		return nil, noDevice(fmt.Sprintf("none has the number, UUID, address, kind or name %q", opt.Device) + have)
	}
	list := make([]Description, len(all))
	for i, p := range all {
		list[i] = p.Description
	}
	if i := Default(list); i >= 0 {
		return all[i], nil
	}
	how := ""
	for _, p := range all {
		if p.Kind != Software || p.Reason != "" {
			continue
		}
		if opt.Software {
			return p, nil
		}
		if how == "" {
			how = fmt.Sprintf("; a software device must be named, by --device %d or as greta devices lists it", p.Index)
		}
	}
	return nil, noDevice("no hardware device can be used" + how + have)
}
