package hip

// The one table of driver functions, by the names of both providers. Where
// NVIDIA's has a version, it is the one whose arguments equal HIP's.

// fn is a function of the driver or of the run-time compiler.
type fn int

const (
	fnInit fn = iota
	fnDriverVersion
	fnDeviceCount
	fnDevice
	fnDeviceName
	fnAttribute
	fnTotalMemory
	fnRetainContext
	fnReleaseContext
	fnSetDevice
	fnMemoryInfo
	fnAlloc
	fnFree
	fnHostAlloc
	fnHostFree
	fnAllocManaged
	fnCopyIn
	fnCopyOut
	fnCopyDevice
	fnFill
	fnModuleLoad
	fnModuleUnload
	fnModuleFunction
	fnOccupancy
	fnClusters    // NVIDIA alone: how many clusters of blocks fit at once
	fnSetFunction // NVIDIA alone: AMD's kernels take all shared memory unasked
	fnLaunch
	fnLaunchConfig // NVIDIA alone: with attributes
	fnTensorMap    // NVIDIA alone: what a kernel needs to copy tiles
	fnStreamCreate
	fnStreamDestroy
	fnStreamWait
	fnStreamWaitEvent
	fnCaptureBegin
	fnCaptureEnd
	fnGraphInstantiate
	fnGraphUpload // optional: ROCm 5.2 has none
	fnGraphLaunch
	fnGraphExecDestroy
	fnGraphDestroy
	fnEventCreate
	fnEventDestroy
	fnEventRecord
	fnEventWait
	fnEventElapsed
	fnErrorName
	fnPeerCan // the three: copies between devices, for benchmarks
	fnPeerEnable
	fnPeerCopy
	fnAddressRange // the three: memory of another process
	fnOpenShared
	fnCloseShared
	fnImport // the seven: memory of another process, by a descriptor
	fnReserve
	fnMap
	fnAccess
	fnUnmap
	fnUnreserve
	fnRelease
	fnProperties // AMD alone: holds the architecture's name
	fnRtcVersion
	fnRtcCreate
	fnRtcCompile
	fnRtcLogSize
	fnRtcLog
	fnRtcCodeSize
	fnRtcCode
	fnRtcDestroy
	numFns
)

// symbols are the functions' names in each provider; "" where it has none.
var symbols = [numFns]struct{ amd, nvidia string }{
	fnInit:           {"hipInit", "cuInit"},
	fnDriverVersion:  {"hipDriverGetVersion", "cuDriverGetVersion"},
	fnDeviceCount:    {"hipGetDeviceCount", "cuDeviceGetCount"},
	fnDevice:         {"hipDeviceGet", "cuDeviceGet"},
	fnDeviceName:     {"hipDeviceGetName", "cuDeviceGetName"},
	fnAttribute:      {"hipDeviceGetAttribute", "cuDeviceGetAttribute"},
	fnTotalMemory:    {"hipDeviceTotalMem", "cuDeviceTotalMem_v2"},
	fnRetainContext:  {"hipDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain"},
	fnReleaseContext: {"hipDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2"},
	fnSetDevice:      {"hipSetDevice", "cuCtxSetCurrent"}, // a device's number there, a context here
	fnMemoryInfo:     {"hipMemGetInfo", "cuMemGetInfo_v2"},
	fnAlloc:          {"hipMalloc", "cuMemAlloc_v2"},
	fnFree:           {"hipFree", "cuMemFree_v2"},
	fnHostAlloc:      {"hipHostMalloc", "cuMemHostAlloc"},
	fnHostFree:       {"hipHostFree", "cuMemFreeHost"},
	fnAllocManaged:   {"hipMallocManaged", "cuMemAllocManaged"},
	fnCopyIn:         {"hipMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2"},
	fnCopyOut:        {"hipMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2"},
	fnCopyDevice:     {"hipMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2"},
	fnFill:           {"hipMemsetD8Async", "cuMemsetD8Async"},
	fnModuleLoad:     {"hipModuleLoadData", "cuModuleLoadData"},
	fnModuleUnload:   {"hipModuleUnload", "cuModuleUnload"},
	fnModuleFunction: {"hipModuleGetFunction", "cuModuleGetFunction"},
	fnOccupancy: {"hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
		"cuOccupancyMaxActiveBlocksPerMultiprocessor"},
	fnClusters:         {"", "cuOccupancyMaxActiveClusters"},
	fnSetFunction:      {"", "cuFuncSetAttribute"},
	fnLaunch:           {"hipModuleLaunchKernel", "cuLaunchKernel"},
	fnLaunchConfig:     {"", "cuLaunchKernelEx"},
	fnTensorMap:        {"", "cuTensorMapEncodeTiled"},
	fnStreamCreate:     {"hipStreamCreateWithFlags", "cuStreamCreate"},
	fnStreamDestroy:    {"hipStreamDestroy", "cuStreamDestroy_v2"},
	fnStreamWait:       {"hipStreamSynchronize", "cuStreamSynchronize"},
	fnStreamWaitEvent:  {"hipStreamWaitEvent", "cuStreamWaitEvent"},
	fnCaptureBegin:     {"hipStreamBeginCapture", "cuStreamBeginCapture_v2"},
	fnCaptureEnd:       {"hipStreamEndCapture", "cuStreamEndCapture"},
	fnGraphInstantiate: {"hipGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags"},
	fnGraphUpload:      {"hipGraphUpload", "cuGraphUpload"},
	fnGraphLaunch:      {"hipGraphLaunch", "cuGraphLaunch"},
	fnGraphExecDestroy: {"hipGraphExecDestroy", "cuGraphExecDestroy"},
	fnGraphDestroy:     {"hipGraphDestroy", "cuGraphDestroy"},
	fnEventCreate:      {"hipEventCreateWithFlags", "cuEventCreate"},
	fnEventDestroy:     {"hipEventDestroy", "cuEventDestroy_v2"},
	fnEventRecord:      {"hipEventRecord", "cuEventRecord"},
	fnEventWait:        {"hipEventSynchronize", "cuEventSynchronize"},
	fnEventElapsed:     {"hipEventElapsedTime", "cuEventElapsedTime"},
	fnErrorName:        {"hipGetErrorName", "cuGetErrorName"},
	fnPeerCan:          {"hipDeviceCanAccessPeer", "cuDeviceCanAccessPeer"},
	fnPeerEnable:       {"hipDeviceEnablePeerAccess", "cuCtxEnablePeerAccess"},
	fnPeerCopy:         {"hipMemcpyPeerAsync", "cuMemcpyPeerAsync"},
	fnAddressRange:     {"hipMemGetAddressRange", "cuMemGetAddressRange_v2"},
	fnOpenShared:       {"hipIpcOpenMemHandle", "cuIpcOpenMemHandle_v2"},
	fnCloseShared:      {"hipIpcCloseMemHandle", "cuIpcCloseMemHandle"},
	fnImport:           {"hipMemImportFromShareableHandle", "cuMemImportFromShareableHandle"},
	fnReserve:          {"hipMemAddressReserve", "cuMemAddressReserve"},
	fnMap:              {"hipMemMap", "cuMemMap"},
	fnAccess:           {"hipMemSetAccess", "cuMemSetAccess"},
	fnUnmap:            {"hipMemUnmap", "cuMemUnmap"},
	fnUnreserve:        {"hipMemAddressFree", "cuMemAddressFree"},
	fnRelease:          {"hipMemRelease", "cuMemRelease"},
	fnProperties:       {"hipGetDeviceProperties", ""},
	fnRtcVersion:       {"hiprtcVersion", "nvrtcVersion"},
	fnRtcCreate:        {"hiprtcCreateProgram", "nvrtcCreateProgram"},
	fnRtcCompile:       {"hiprtcCompileProgram", "nvrtcCompileProgram"},
	fnRtcLogSize:       {"hiprtcGetProgramLogSize", "nvrtcGetProgramLogSize"},
	fnRtcLog:           {"hiprtcGetProgramLog", "nvrtcGetProgramLog"},
	fnRtcCodeSize:      {"hiprtcGetCodeSize", "nvrtcGetCUBINSize"},
	fnRtcCode:          {"hiprtcGetCode", "nvrtcGetCUBIN"},
	fnRtcDestroy:       {"hiprtcDestroyProgram", "nvrtcDestroyProgram"},
}

// optional says what happens without a function that greta can do without, "" for others.
func (f fn) optional() string {
	switch f {
	case fnGraphUpload:
		return "the first run of every captured step is some milliseconds slower"
	case fnClusters:
		return "products of many rows are some percent slower"
	case fnPeerCan, fnPeerEnable, fnPeerCopy:
		return "copies between devices cannot be measured"
	case fnCopyDevice, fnAddressRange, fnOpenShared, fnCloseShared:
		return "tensors of a GPU are not handed from process to process"
	case fnImport, fnReserve, fnMap, fnAccess, fnUnmap, fnUnreserve, fnRelease:
		return "tensors in a GPU's memory that has no handle, such as JAX's, are not handed from process to process"
	}
	return ""
}

// vendor is which provider a table belongs to.
type vendor int

const (
	amd vendor = iota
	nvidia
)

func (v vendor) String() string { return [...]string{"amd", "nvidia"}[v] }

// symbol is the name of f in a provider.
func (v vendor) symbol(f fn) string {
	if v == amd {
		return symbols[f].amd
	}
	return symbols[f].nvidia
}

// Constants that differ or that have no better name.
const (
	captureRelaxed    = 2 // any thread may end it
	streamNonBlocking = 1
	eventDefault      = 0
	eventNoTiming     = 2
	errNoDevice       = 100 // both providers
	errInvalidDevice  = 101
	errOutOfMemory    = 2   // both providers
	errNotSupported   = 801 // both providers
	errPeerEnabled    = 704 // both providers: direct access was allowed before
)

// attribute is a device's property by its number in each provider.
type attribute struct{ amd, nvidia uintptr }

var (
	attrWarpSize      = attribute{87, 10}
	attrUnits         = attribute{63, 16} // compute units, multiprocessors
	attrBusWidth      = attribute{59, 37} // bits
	attrMemoryClock   = attribute{60, 36} // kHz
	attrClock         = attribute{5, 13}  // kHz
	attrCapacityMajor = attribute{23, 75}
	attrCapacityMinor = attribute{61, 76}
)

func (a attribute) of(v vendor) uintptr {
	if v == amd {
		return a.amd
	}
	return a.nvidia
}
