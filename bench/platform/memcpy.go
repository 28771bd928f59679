package platform

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/greta-project/greta/bench/record"
)

// memcpy: copies over the link between host and device, and back.
var _ = define(Benchmark{
	Name:   "memcpy",
	About:  "copies between the host's memory, pinned and pageable, and the device's, both ways",
	Params: map[string]string{"bytes": "size of a copy"},
	GPU:    memcpyGPU,
	Lacks:  map[string]string{"cpu": "host and device are one; stream has its copies"},
})

const copySeed = 5

// memcpyGPU measures copies each way: in one piece, a benchmark a direction over the same buffers.
func memcpyGPU(g *GPU) error {
	most := min(2<<30, g.limits.mostBuffer, g.limits.free/4)
	var normal []int
	for n := 128 << 10; n <= most; n *= 4 {
		normal = append(normal, n)
	}
	normal = append(normal, most)
	sizes := g.sizes("bytes", normal...)
	largest := 0
	for _, n := range sizes {
		largest = max(largest, n)
	}
	// Small copies go through as much as large ones, so that no cache has what they read.
	if n := g.away(); n < g.limits.mostBuffer && n < g.limits.free/4 && g.peaks.memory > 0 {
		largest = max(largest, n)
	}
	largest = ceil(largest, 4) * 4
	device, err := g.alloc(largest)
	if err != nil {
		return err
	}
	want, err := g.alloc(largest)
	if err != nil {
		return err
	}
	locked, err := g.allocKind(largest, pinned)
	if err != nil {
		return err
	}
	if err := g.once(code{"fill", "words", plainBlock, nil}, ceil(largest/4, plainBlock), want, uint32(largest/4),
		uint32(copySeed)); err != nil {
		return err
	}
	pageable := make([]byte, largest)
	for i := 0; i < largest; i += 4 {
		binary.LittleEndian.PutUint32(pageable[i:], mix(uint32(i/4)^copySeed))
	}
	back := make([]byte, largest)
	// onDevice checks what came to the device, onHost what came back.
	onDevice := func(n int) func() (record.Check, error) {
		return func() (record.Check, error) {
			return g.wrong(n/4, code{"fill", "same", plainBlock, nil}, ceil(n/4, plainBlock), device, want, uint32(n/4))
		}
	}
	onHost := func(got []byte) func() (record.Check, error) {
		return func() (record.Check, error) {
			if bytes.Equal(got, pageable[:len(got)]) {
				return exact(0, len(got)), nil
			}
			return exact(1, len(got)), nil
		}
	}
	for _, n := range sizes {
		params := map[string]string{"bytes": itoa(n)}
		copied := func(name string, to, from memory, check func() (record.Check, error)) error {
			p := point{check: check, prepare: func(k int) (sampler, func() error, error) {
				return g.dev.copies(to, from, n, k)
			}, most: 64}
			p.Bench, p.Params, p.Bytes = "pinned/"+name, params, float64(n)
			p.Roofs.ReadGBs = g.peaks.link
			_, err := g.measure(p)
			return err
		}
		copy(locked.Host(), pageable)
		if err := copied("to_device", device, locked, onDevice(n)); err != nil {
			return err
		}
		clear(locked.Host())
		if err := copied("to_host", locked, want, onHost(locked.Host()[:n])); err != nil {
			return err
		}
		if why := g.dev.noPageable(); why != "" {
			if err := g.skip("pageable", params, "%s", why); err != nil {
				return err
			}
			continue
		}
		if err := device.Write(0, back[:n]); err != nil {
			return err
		}
		for _, way := range []struct {
			name  string
			copy  func() error
			check func() (record.Check, error)
		}{
			{"to_device", func() error { return device.Write(0, pageable[:n]) }, onDevice(n)},
			{"to_host", func() error { return want.Read(0, back[:n]) }, onHost(back[:n])},
		} {
			p := point{check: way.check, prepare: hostTimed(way.copy), most: 64}
			p.Bench, p.Params, p.Bytes = "pageable/"+way.name, params, float64(n)
			p.Roofs.ReadGBs = g.peaks.link
			if _, err := g.measure(p); err != nil {
				return err
			}
		}
		clear(back[:n])
	}
	return nil
}

// hostTimed prepares an operation that the host's clock times.
func hostTimed(op func() error) func(n int) (sampler, func() error, error) {
	return func(n int) (sampler, func() error, error) {
		return func() (float64, float64, error) {
			begin := time.Now()
			for range n {
				if err := op(); err != nil {
					return 0, 0, err
				}
			}
			return 0, time.Since(begin).Seconds(), nil
		}, nil, nil
	}
}
