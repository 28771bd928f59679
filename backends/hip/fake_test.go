package hip

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/greta-project/greta/tensor"
)

// fake is a provider in Go: memory is the host's, kernels are not run but
// recorded. It counts what is alive, and can fail one call.
type fake struct {
	mu      sync.Mutex // compilers are called by several goroutines
	who     vendor
	none    bool // counts no devices
	lacks   map[fn]bool
	answers map[fn]uintptr // codes that functions return, where not 0
	calls   []fakeCall
	failAt  int // index of the call that fails, -1: none
	code    uintptr
	live    map[string]map[uintptr]bool
	memory  map[uintptr][]uint64 // keeps it from the collector
	next    uintptr
	capture bool
	copies  []func() // of the last graph
	isas    []string
	name    []byte          // of the last error, as C has it
	pairs   int             // clusters of two blocks that it says run at once, of four half as many
	source  string          // last compiled
	opens   map[uintptr]int // how often memory of another process is open
	peers   bool            // devices reach each other's memory
	// Memory of another process, by descriptors: what each is of, what was imported, what is mapped where.
	descriptors, imported, mapped map[uintptr]uintptr
	version                       uint64 // of AMD's driver
}

type fakeCall struct {
	f    fn
	args []uintptr
}

func newFake(who vendor) *fake {
	return &fake{who: who, failAt: -1, code: 719, live: map[string]map[uintptr]bool{}, memory: map[uintptr][]uint64{},
		next: 0x1000, opens: map[uintptr]int{}, version: 60241134, descriptors: map[uintptr]uintptr{},
		imported: map[uintptr]uintptr{}, mapped: map[uintptr]uintptr{}}
}

func (f *fake) vendor() vendor    { return f.who }
func (f *fake) has(n fn) bool     { return f.who.symbol(n) != "" && !f.lacks[n] }
func (f *fake) files() []string   { return []string{"fake.so"} }
func (f *fake) targets() []string { return f.isas }

func (f *fake) create(kind string, out uintptr) uintptr {
	f.next += 0x10
	return f.put(kind, f.next, out)
}

func (f *fake) put(kind string, h, out uintptr) uintptr {
	if f.live[kind] == nil {
		f.live[kind] = map[uintptr]bool{}
	}
	f.live[kind][h] = true
	*word(out) = uint64(h)
	return 0
}

func (f *fake) destroy(kind string, h uintptr) uintptr {
	if !f.live[kind][h] {
		panic(fmt.Sprintf("%s %#x is destroyed, but does not live", kind, h))
	}
	delete(f.live[kind], h)
	delete(f.memory, h)
	return 0
}

// must panics where a handle is not alive: a use after its end.
func (f *fake) must(kind string, h uintptr) {
	if !f.live[kind][h] {
		panic(fmt.Sprintf("%s %#x is used, but does not live", kind, h))
	}
}

func (f *fake) leaks() []string {
	var all []string
	for kind, handles := range f.live {
		if n := len(handles); n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, kind))
		}
	}
	slices.Sort(all)
	return all
}

func (f *fake) alloc(kind string, n, out uintptr) uintptr {
	words := make([]uint64, n/8+1)
	at := uintptr(unsafe.Pointer(&words[0]))
	f.memory[at] = words
	return f.put(kind, at, out)
}

func word(p uintptr) *uint64 { return (*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&p))) }

func mem(p uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}

// invoke answers the calls of a driver: in one piece, a case a call.
func (f *fake) invoke(n fn, a []uintptr) uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n == fnErrorName {
		f.name = append([]byte("FAKE_ERROR"), 0)
		p := uintptr(unsafe.Pointer(&f.name[0]))
		if f.who == amd {
			return p
		}
		*word(a[1]) = uint64(p)
		return 0
	}
	f.calls = append(f.calls, fakeCall{n, slices.Clone(a)})
	if code := f.answers[n]; code != 0 {
		return code
	}
	if len(f.calls)-1 == f.failAt {
		if n == fnCaptureEnd {
			f.capture = false
		}
		return f.code
	}
	if f.capture {
		switch n {
		case fnAlloc, fnFree, fnStreamWait, fnEventWait, fnModuleLoad, fnModuleFunction, fnHostAlloc:
			return 900 // not permitted while a stream captures
		case fnCopyIn, fnCopyOut: // a node of the graph
			f.copies = append(f.copies, func() { copy(mem(a[0], int(a[2])), mem(a[1], int(a[2]))) })
			return 0
		}
	}
	switch n {
	case fnDeviceCount:
		*word(a[0]) = 2
		if f.none {
			return errNoDevice
		}
	case fnDevice:
		*word(a[0]) = uint64(a[1])
	case fnDeviceName:
		copy(mem(a[0], int(a[1])), "Fake\x00")
	case fnTotalMemory:
		*word(a[0]) = 1 << 34
	case fnDriverVersion:
		*word(a[0]) = map[vendor]uint64{amd: f.version, nvidia: 13000}[f.who]
	case fnProperties:
		copy(mem(a[0], 4096)[1160:], "gfx942:sramecc+:xnack-\x00")
	case fnAttribute:
		*word(a[0]) = 9
	case fnRetainContext:
		return f.create("context", a[0])
	case fnReleaseContext:
		for h := range f.live["context"] {
			return f.destroy("context", h)
		}
	case fnMemoryInfo:
		*word(a[0]), *word(a[1]) = 1<<34, 1<<35
	case fnAlloc:
		return f.alloc("memory", a[1], a[0])
	case fnFree:
		return f.destroy("memory", a[0])
	case fnHostAlloc:
		return f.alloc("pinned memory", a[1], a[0])
	case fnHostFree:
		return f.destroy("pinned memory", a[0])
	case fnCopyIn, fnCopyOut:
		f.must("stream", a[3])
		copy(mem(a[0], int(a[2])), mem(a[1], int(a[2])))
	case fnCopyDevice:
		f.must("stream", a[3])
		copy(mem(f.behind(a[0]), int(a[2])), mem(f.behind(a[1]), int(a[2])))
	case fnAddressRange:
		words := f.memory[a[2]]
		*word(a[0]), *word(a[1]) = uint64(a[2]), uint64(8*len(words))
	case fnOpenShared: // the handle begins with the address: the other process is this one
		at := uintptr(*word(a[1]))
		if f.memory[at] == nil {
			return 1
		}
		f.opens[at]++
		return f.put("opened memory", at, a[0])
	case fnCloseShared:
		f.must("opened memory", a[0])
		if f.opens[a[0]]--; f.opens[a[0]] == 0 {
			delete(f.live["opened memory"], a[0])
		}
	case fnImport, fnReserve, fnMap, fnAccess, fnUnmap, fnUnreserve, fnRelease:
		return f.mapping(n, a)
	case fnFill:
		clear(mem(a[0], int(a[2])))
	case fnModuleLoad:
		return f.create("module", a[0])
	case fnClusters:
		*word(a[0]) = uint64(f.pairs * 2 / blocksOf(a[2]))
	case fnModuleUnload:
		return f.destroy("module", a[0])
	case fnModuleFunction:
		f.must("module", a[1])
		f.next += 0x10
		*word(a[0]) = uint64(f.next)
	case fnStreamCreate:
		return f.create("stream", a[0])
	case fnStreamDestroy:
		return f.destroy("stream", a[0])
	case fnStreamWait:
		f.must("stream", a[0])
	case fnLaunch:
		f.must("stream", a[8])
	case fnCaptureBegin:
		f.capture, f.copies = true, nil
	case fnCaptureEnd:
		f.capture = false
		return f.create("graph", a[1])
	case fnGraphInstantiate:
		f.must("graph", a[1])
		return f.create("executable", a[0])
	case fnGraphUpload:
		f.must("executable", a[0])
		f.must("stream", a[1])
	case fnGraphLaunch:
		f.must("executable", a[0])
		for _, do := range f.copies {
			do()
		}
	case fnGraphExecDestroy:
		return f.destroy("executable", a[0])
	case fnGraphDestroy:
		return f.destroy("graph", a[0])
	case fnEventCreate:
		return f.create("event", a[0])
	case fnEventDestroy:
		return f.destroy("event", a[0])
	case fnEventRecord, fnEventWait:
		f.must("event", a[0])
	case fnStreamWaitEvent:
		f.must("stream", a[0])
		f.must("event", a[1])
	case fnPeerCan:
		*word(a[0]) = 0
		if f.peers {
			*word(a[0]) = 1
		}
	case fnEventElapsed:
		f.must("event", a[1])
		f.must("event", a[2])
		tensor.View[float32](mem(a[0], 4))[0] = 0.25
	case fnRtcVersion:
		*word(a[0]), *word(a[1]) = 13, 0
	case fnRtcCreate:
		f.source = goStringLong(a[1])
		return f.create("compilation", a[0])
	case fnRtcCompile:
		f.must("compilation", a[0])
	case fnRtcLogSize:
		*word(a[1]) = 5
	case fnRtcLog:
		copy(mem(a[1], 5), "oops\x00")
	case fnRtcCodeSize:
		*word(a[1]) = 8
	case fnRtcCode:
		copy(mem(a[1], 8), "\x7fELFcode")
	case fnRtcDestroy:
		return f.destroy("compilation", uintptr(*word(a[0])))
	}
	return 0
}

// mapping answers what memory by descriptors needs.
func (f *fake) mapping(n fn, a []uintptr) uintptr {
	switch n {
	case fnImport:
		at := f.descriptors[a[1]]
		if at == 0 || a[2] != byDescriptor {
			return 1
		}
		code := f.create("import", a[0])
		f.imported[f.next] = at
		return code
	case fnReserve:
		return f.alloc("reservation", a[1], a[0])
	case fnMap:
		f.must("reservation", a[0])
		f.must("import", a[3])
		at := f.imported[a[3]]
		if int(a[1]) != 8*len(f.memory[at]) || a[2] != 0 {
			return 1
		}
		f.mapped[a[0]] = at
		f.live["mapping"] = map[uintptr]bool{a[0]: true}
	case fnAccess:
		f.must("mapping", a[0])
		if words := tensor.View[uint32](mem(a[2], 12)); !slices.Equal(words, []uint32{1, 0, 3}) || a[3] != 1 {
			return 1
		}
	case fnUnmap:
		delete(f.mapped, a[0])
		f.must("mapping", a[0])
		delete(f.live["mapping"], a[0])
	case fnUnreserve:
		if f.live["mapping"][a[0]] {
			return 1
		}
		return f.destroy("reservation", a[0])
	case fnRelease:
		return f.destroy("import", a[0])
	}
	return 0
}

// behind gives the memory that is mapped at an address.
func (f *fake) behind(p uintptr) uintptr {
	for at, memory := range f.mapped {
		if n := uintptr(8 * len(f.memory[memory])); at <= p && p < at+n {
			return memory + p - at
		}
	}
	return p
}

func goStringLong(p uintptr) string {
	n := 0
	for mem(p, n+1)[n] != 0 {
		n++
	}
	return string(mem(p, n))
}
