package platform

import (
	"errors"
	"fmt"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/internal/errlist"
)

// hipGPU is a device through HIP.
type hipGPU struct {
	raw   *hip.Raw
	bound []*hip.RawLaunch
}

func newHIP(dev *hip.Device) (gpuDevice, error) {
	raw, err := dev.Raw()
	if err != nil {
		return nil, err
	}
	return &hipGPU{raw: raw}, nil
}

func (h *hipGPU) close() error { return h.raw.Close() }

func (h *hipGPU) limits() (limits, error) {
	l, err := h.raw.Limits()
	return fromHIP(l), err
}

func fromHIP(l hip.Limits) limits {
	return limits{name: l.Name, arch: l.Arch, pci: l.PCI, units: l.Units, wave: l.Wave, clockMHz: l.ClockMHz,
		// Two transfers a clock, as all memories since DDR have.
		memoryGBs: 2 * float64(l.BusBits) / 8 * l.MemoryMHz / 1e3,
		l2:        l.L2, sharedPerUnit: l.SharedPerUnit, threadsPerUnit: l.ThreadsPerUnit,
		free: l.Free, mostBuffer: l.Free, mostBlock: 1024, managed: l.Managed}
}

func (h *hipGPU) alloc(bytes int, kind memoryKind) (memory, error) {
	m, err := h.raw.Alloc(bytes, map[memoryKind]hip.MemoryKind{onDevice: hip.OnDevice, pinned: hip.Pinned,
		managed: hip.Managed}[kind])
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (h *hipGPU) kernel(c code) (*hip.RawKernel, error) {
	text, err := source(c.file)
	if err != nil {
		return nil, err
	}
	return h.raw.Compile("platform/"+c.file+".hip", text, c.function,
		append([]string{fmt.Sprint("BLOCK=", c.block)}, c.macros...)...)
}

func (h *hipGPU) bind(c code, grid, shared int, args ...any) (launch, error) {
	k, err := h.kernel(c)
	if err != nil {
		return nil, err
	}
	plain := make([]any, len(args))
	for i, a := range args {
		plain[i] = a
		if m, ok := a.(memory); ok {
			plain[i] = m.Address()
		}
	}
	l, err := h.raw.Bind(k, grid, c.block, shared, plain...)
	if err == nil {
		h.bound = append(h.bound, l)
	}
	return l, err
}

func (h *hipGPU) forget() {
	for _, l := range h.bound {
		l.Free()
	}
	h.bound = nil
}

func (h *hipGPU) resident(c code, shared int) (int, error) {
	k, err := h.kernel(c)
	if err != nil {
		return 0, err
	}
	return h.raw.Resident(k, c.block, shared)
}

func (h *hipGPU) sequence(how submission, n int, list ...launch) (sampler, func() error, error) {
	launches := make([]*hip.RawLaunch, len(list))
	for i, l := range list {
		launches[i] = l.(*hip.RawLaunch)
	}
	start := func() error {
		for range n {
			for _, l := range launches {
				if err := h.raw.Start(l); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if how != captured {
		return func() (float64, float64, error) { return h.raw.Time(start) }, nil, nil
	}
	g, err := h.raw.Capture(start)
	if err != nil {
		return nil, nil, err
	}
	return func() (float64, float64, error) { return h.raw.Time(g.Start) }, g.Close, nil
}

func (h *hipGPU) trips(l launch, n int) (sampler, func() error, error) {
	one := l.(*hip.RawLaunch)
	run, end, err := hostTimed(func() error { return errlist.Join(h.raw.Start(one), h.raw.Wait()) })(n)
	return run, end, err
}

func (h *hipGPU) noPageable() string    { return "" }
func (h *hipGPU) noGridBarrier() string { return "" }
func (h *hipGPU) noType(string) string  { return "" }
func (h *hipGPU) wholes() string        { return "double" }

func (h *hipGPU) copies(to, from memory, bytes, n int) (sampler, func() error, error) {
	a, ok1 := to.(*hip.RawMemory)
	b, ok2 := from.(*hip.RawMemory)
	if !ok1 || !ok2 {
		return nil, nil, errors.New("memory of another device")
	}
	pieces := max(1, min(a.Size(), b.Size())/max(bytes, 1))
	return func() (float64, float64, error) {
		return h.raw.Time(func() error {
			for i := range n {
				if err := h.raw.StartCopy(a, b, i%pieces*bytes, bytes); err != nil {
					return err
				}
			}
			return nil
		})
	}, nil, nil
}
