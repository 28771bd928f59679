package hip

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"unsafe"
)

// A null device: it takes every call, has memory without an end, and runs
// nothing. Programs that are captured on it say which kernels they would need on
// an architecture that is not here.

// nullDriver is its provider.
type nullDriver struct {
	who   vendor
	units int
	wave  int
	note  func(program) // is told of each program that is to be compiled

	mu   sync.Mutex
	next uint64
	host map[uintptr]*[]byte // memory that the host reaches
}

func (p *nullDriver) vendor() vendor    { return p.who }
func (p *nullDriver) files() []string   { return nil }
func (p *nullDriver) targets() []string { return nil }

// has says that there is everything but a compiler.
func (p *nullDriver) has(f fn) bool { return p.who.symbol(f) != "" && f < fnRtcVersion }

func (p *nullDriver) invoke(f fn, a []uintptr) uintptr {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := func(out uintptr, v uint64) { *(*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&out))) = v }
	switch f {
	case fnAttribute:
		value := map[uintptr]int{attrUnits.of(p.who): p.units, attrWarpSize.of(p.who): p.wave}[a[1]]
		*word32(a[0]) = int32(value)
	case fnMemoryInfo:
		set(a[0], math.MaxInt64)
		set(a[1], math.MaxInt64)
	case fnAlloc:
		set(a[0], p.next)
		p.next += (uint64(a[1]) + 511) &^ 255
	case fnHostAlloc:
		b, ok := nullHost(a[1]).Get().(*[]byte)
		if !ok {
			b = new(make([]byte, a[1]+64))
		}
		at := uintptr(unsafe.Pointer(&(*b)[0])) // which is where it stays: Go moves nothing on its heap
		p.host[at] = b
		set(a[0], uint64(at))
	case fnHostFree:
		if b := p.host[a[0]]; b != nil {
			nullHost(uintptr(len(*b) - 64)).Put(b)
		}
		delete(p.host, a[0])
	case fnClusters:
		*word32(a[0]) = int32(p.units / blocksOf(a[2]))
	case fnDevice, fnRetainContext, fnModuleLoad, fnModuleFunction, fnStreamCreate, fnEventCreate, fnGraphInstantiate:
		p.next += 256
		set(a[0], p.next)
	case fnCaptureEnd:
		p.next += 256
		set(a[1], p.next)
	}
	return 0
}

// blocksOf is how many blocks a cluster has by the first attribute of a launchConfig.
func blocksOf(config uintptr) int {
	c := (*launchConfig)(*(*unsafe.Pointer)(unsafe.Pointer(&config)))
	return int((*launchAttribute)(*(*unsafe.Pointer)(unsafe.Pointer(&c.attributes))).value[0])
}

var nullHosts sync.Map

// nullHost keeps memory of the host of a size that null devices gave back. Like a driver it clears nothing.
func nullHost(size uintptr) *sync.Pool {
	pool, _ := nullHosts.LoadOrStore(size, &sync.Pool{})
	return pool.(*sync.Pool)
}

// vendorOf gives the platform of an architecture's name.
func vendorOf(arch string) (vendor, error) {
	digits, gfx := strings.CutPrefix(arch, "gfx")
	if !gfx {
		if digits, gfx = strings.CutPrefix(arch, "sm_"); !gfx {
			return 0, fmt.Errorf("%q is no architecture: gfx942 or sm_90 are examples", arch)
		}
		if n := len(digits); n < 2 || n > 4 || strings.Trim(digits[:n-1], "0123456789") != "" ||
			!strings.Contains("0123456789af", digits[n-1:]) {
			return 0, fmt.Errorf("%q is no architecture of NVIDIA: sm_90 is an example", arch)
		}
		return nvidia, nil
	}
	if n := len(digits); n < 3 || n > 5 || strings.Trim(digits, "0123456789abcdef") != "" {
		return 0, fmt.Errorf("%q is no architecture of AMD: gfx942 is an example", arch)
	}
	return amd, nil
}

// usualUnits is how many compute units the best known card of an architecture has:
// it decides how work is divided.
var usualUnits = map[string]int{
	"gfx906": 60, "gfx908": 120, "gfx90a": 104, "gfx942": 304, "gfx950": 256, "gfx1030": 72, "gfx1031": 40, "gfx1032": 32,
	"gfx1100": 96, "gfx1101": 60, "gfx1102": 32, "gfx1103": 12, "gfx1150": 16, "gfx1151": 40, "gfx1200": 32, "gfx1201": 64,
	"sm_75": 40, "sm_80": 108, "sm_86": 84, "sm_89": 128, "sm_90": 132,
}

// openNull gives a null device. note is told of each program that it would
// compile. units 0: as the best known card has.
func openNull(arch string, units int, note func(program)) (*Device, error) {
	who, err := vendorOf(arch)
	if err != nil {
		return nil, err
	}
	if units == 0 {
		if units = usualUnits[arch]; units == 0 {
			units = 64
		}
	}
	wave := 32
	if strings.HasPrefix(arch, "gfx9") {
		wave = 64
	}
	p := &nullDriver{who: who, units: units, wave: wave, note: note, next: 1 << 20, host: map[uintptr]*[]byte{}}
	return openDevice(&driver{p}, Found{Arch: arch, Name: "null device"}, Options{Cache: &Cache{}})
}
