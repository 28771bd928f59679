package hip

import (
	"runtime"
	"unsafe"
)

// Launches that start while the one before them ends: programmatic dependent
// launch of NVIDIA's driver, from Hopper on. begin_next and wait_previous in
// prelude.h are its other half. And launches in clusters of blocks.

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	grid, block [3]uint32
	shared, _   uint32
	stream      uintptr
	attributes  uintptr
	count, _    uint32
}

// launchAttribute is CUlaunchAttribute: a number and a value of up to 64 bytes.
type launchAttribute struct {
	id, _ uint32
	value [16]uint32
}

const (
	attributeCluster       = 4 // blocks of a cluster along x, y and z
	attributeSerialization = 6 // programmatic stream serialization
)

// earlyLaunch is what launchWith passes, kept by the device: pinned, and read
// by the driver during the call only.
type earlyLaunch struct {
	config     launchConfig
	attributes [2]launchAttribute
}

// launchWith launches a dispatch in clusters, where it says so; early: it may
// start before the kernel before it on the stream has ended.
func (dev *Device) launchWith(what string, f uintptr, p *dispatch, early bool, stream, params uintptr) error {
	return dev.d.call(fnLaunchConfig, what, dev.configure(p, early, stream), f, params, 0)
}

// configure gives the address of what says how to launch a dispatch, until the next.
func (dev *Device) configure(p *dispatch, early bool, stream uintptr) uintptr {
	e, count := dev.early, uint32(0)
	if early {
		e.attributes[count] = launchAttribute{id: attributeSerialization, value: [16]uint32{1}}
		count++
	}
	if p.cluster > 1 {
		e.attributes[count] = launchAttribute{id: attributeCluster, value: [16]uint32{uint32(p.cluster), 1, 1}}
		count++
	}
	e.config = launchConfig{
		grid: [3]uint32{uint32(p.grid[0]), uint32(p.grid[1]), uint32(p.grid[2])}, block: [3]uint32{uint32(p.block), 1, 1},
		shared: uint32(p.shared), stream: stream, attributes: uintptr(unsafe.Pointer(&e.attributes)), count: count,
	}
	return uintptr(unsafe.Pointer(&e.config))
}

// emptyKernel is a function that does nothing, in PTX, which the driver compiles.
const emptyKernel = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n\x00"

// findClusters asks how many clusters of two and of four blocks run at once where a block has a
// multiprocessor for itself. A cluster's blocks share one group of multiprocessors, so fewer
// may fit than half of them; one that does not fit waits for another's end. A driver that
// refuses to say, as one that may compile nothing does, leaves clusters 0, and products take single
// blocks; what is wrong with the device besides, the next call says.
func (dev *Device) findClusters() {
	if !dev.d.has(fnClusters) {
		return
	}
	const what = "clusters of blocks"
	defer dev.enter()()
	image, name := []byte(emptyKernel), []byte("nothing\x00")
	var pin runtime.Pinner
	defer pin.Unpin()
	m, err := dev.d.get(fnModuleLoad, what, 0, address(&pin, image))
	if err != nil {
		return
	}
	defer func() {
		if dev.d.call(fnModuleUnload, what, uintptr(m)) != nil {
			clear(dev.clusters[:])
		}
	}()
	// more than half of a multiprocessor's
	const shared = 160 << 10
	f, err := dev.d.get(fnModuleFunction, what, 0, uintptr(m), address(&pin, name))
	if err != nil || dev.allowShared(what, uintptr(f), shared) != nil {
		return
	}
	for i := range dev.clusters {
		blocks := 2 << i
		p := &dispatch{grid: [3]int{dev.units / blocks * blocks, 1, 1}, block: gemmThreads, cluster: blocks, shared: shared}
		if n, err := dev.d.get(fnClusters, what, 0, uintptr(f), dev.configure(p, false, 0)); err == nil {
			dev.clusters[i] = max(int(int32(n)), 0)
		}
	}
}

// fits is how many clusters of one, two or four blocks run at once, a block a multiprocessor.
func (dev *Device) fits(blocks int) int {
	if blocks == 1 {
		return dev.units
	}
	dev.askFits.Do(dev.findClusters)
	return dev.clusters[blocks/4]
}
