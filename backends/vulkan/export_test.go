//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"strings"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/internal/mapped"
)

// SetMaxRange makes the device's storage ranges smaller than they are.
func (d *Device) SetMaxRange(bytes uint32) { d.p.limits.MaxStorageBufferRange = bytes }

// SetMaxAllocation makes the device's largest allocation of weights smaller than it
// is, and says how much the parts of a larger one share.
func (d *Device) SetMaxAllocation(bytes, lap int) { d.mostWeight, d.lap = bytes, lap }

// ForgetBarriers makes recorders leave out the barriers between dispatches.
func (d *Device) ForgetBarriers() { d.careless = true }

// Idle waits for the device, and so for what a validation layer finds out behind its back.
func (d *Device) Idle() { d.c.DeviceWaitIdle(d.handle) }

// Unfolded makes every launch of a program have its own dispatch.
func (d *Device) Unfolded(on bool) { d.plain = on }

// Ordered makes the device one that starts workgroups in the order of dispatches, as software devices do.
func (d *Device) Ordered() { d.ordered = true }

// Lose makes recordings leave out the first dispatch that others wait for by themselves.
func (d *Device) Lose(on bool) { d.lose = on }

// LeastSubgroup is the smallest size that subgroups have.
func (d *Device) LeastSubgroup() int { return d.p.MinSubgroup }

// Handed counts the dispatches that wait for the stage before them by themselves.
func Handed(x backends.Executable) (n int) {
	for i := range x.(*executable).dispatches {
		if x.(*executable).dispatches[i].handed {
			n++
		}
	}
	return n
}

// Dispatches counts all dispatches.
func Dispatches(x backends.Executable) int { return len(x.(*executable).dispatches) }

// DispatchesOf counts those of each launch.
func DispatchesOf(x backends.Executable) (n []int) {
	e := x.(*executable)
	for i := range e.program.Launches {
		n = append(n, e.first[i+1]-e.first[i])
	}
	return n
}

// Left counts the words that a program left in places for results, where who comes next waits for others.
func Left(x backends.Executable) (n int, err error) {
	e := x.(*executable)
	if !e.handed {
		return 0, nil
	}
	b := make([]byte, e.round*int(e.apart))
	if err := e.d.read(e.results, 0, b); err != nil {
		return 0, err
	}
	for _, w := range words(b) {
		if w != notYet {
			n++
		}
	}
	return n, nil
}

// Apart is the memory that results of their own take at most, bytes.
func (d *Device) Apart(most uint64) { d.mostApart = most }

// Round is how many steps of a program have places for their results at the same time.
func Round(x backends.Executable) int { return x.(*executable).round }

// Touches is what a dispatch that can wait and says when its results are there does with buffers, by their numbers.
type Touches struct{ Waits, Writes []int }

// HandedOver says which of such dispatches follow the one before without a barrier between them.
func HandedOver(list []Touches) []bool {
	buffers := make([]buffer, 16)
	e := &executable{}
	for _, t := range list {
		x := dispatch{waits: true, says: true, push: []uint32{0}}
		for _, n := range t.Waits {
			x.asks[0] = append(x.asks[0], &buffers[n])
			x.used = append(x.used, span{b: &buffers[n], to: 4})
		}
		for _, n := range t.Writes {
			x.used = append(x.used, span{b: &buffers[n], to: 4, write: true})
		}
		e.dispatches = append(e.dispatches, x)
	}
	e.links = []link{{to: len(e.dispatches)}}
	e.handOver()
	handed := make([]bool, len(list))
	for i := range list {
		handed[i] = e.dispatches[i].handed
	}
	return handed
}

// Said gives what the executable says of itself, see backends.Noter.
func Said(x backends.Executable) string { return x.(*executable).Note() }

// SetTile fixes the size of tiles: 32, 64 or 128.
func (d *Device) SetTile(n int) { d.tile = n }

// SetUnits says how many tiles make a round that is to be even; 0: no product is halved.
func (d *Device) SetUnits(n int) { d.units = n }

// LeftRows is how many rows of w, the last, are left to tiles of so many columns instead of those of so many.
func LeftRows(tiles, rows, across, units, cols, narrow int) int {
	return leftRows(tiles, rows, across, units, &matrixVariant{cols: cols}, &matrixVariant{cols: narrow})
}

// HalvedBlocks says how many blocks of tiles of a product are halved.
func HalvedBlocks(tiles, blocks, across, cols, units int) int {
	return halvedBlocks(tiles, blocks, across, cols, units)
}

// Half gives the column at which the second half of a product's columns begins.
func Half(cols int) int { return half(cols) }

// Made says whether a pipeline of a shader was made.
func (d *Device) Made(shader string) bool {
	for key := range d.pipelines {
		if strings.HasPrefix(key, shader) {
			return true
		}
	}
	return false
}

// Blocks is the number of allocations.
func (d *Device) Blocks() int { return len(d.blocks) }

// Submits is the number of submissions since the device was opened.
func (d *Device) Submits() int { return d.submits }

// Stage makes the device treat its memory as out of the host's reach, as a card's is.
func (d *Device) Stage(on bool) { d.distant = on }

// Near makes the host write Step memory on both sides, as a card's small one. It says whether the
// device has memory for that.
func (d *Device) Near() bool {
	d.types.near = d.types.step
	return d.p.memory.MemoryTypes[d.types.near[0]].PropertyFlags&visible != 0
}

// Tells makes programs that are captured from now on tell their end by a word, as on a card whose
// driver lets the host see it.
func (d *Device) Tells() {
	p := *d.p
	p.tells, p.Kind = true, Discrete
	d.p, d.clock.polls = &p, time.Hour
}

// Timeless makes the device one without timestamps.
func (d *Device) Timeless() {
	p := *d.p
	p.stamps = false
	d.p = &p
}

// Told is the number of waits that ended by a word.
func (d *Device) Told() int { return d.clock.told }

// Parts is the number of weights that were too large for one allocation.
func (d *Device) Parts() int { return d.parted }

// Flights is the most submissions that were under way at a time since the last call.
func (d *Device) Flights() int {
	n := d.clock.most
	d.clock.most = 0
	return n
}

// Returned is the number of bytes of Step memory that were copied to the host's side.
func (d *Device) Returned() int { return d.returned }

// Waited is the time that waits for the device have taken.
func (d *Device) Waited() time.Duration { return d.clock.blocked }

// Drain waits for all copies through staging memory.
func (d *Device) Drain() error { return d.drain() }

// FillSlots copies data to staging memory, slot by slot, and no further.
func (d *Device) FillSlots(data []byte) error {
	for len(data) > 0 {
		t, err := d.stage()
		if err != nil {
			return err
		}
		n := min(len(data), slotBytes)
		mapped.Copy(t.host.mapped, data[:n])
		data = data[n:]
	}
	return nil
}

// SendSlots copies n bytes from staging memory to a buffer, whatever they are.
func (d *Device) SendSlots(to backends.Buffer, n int) error {
	for at := 0; at < n; at += slotBytes {
		t, err := d.stage()
		if err != nil {
			return err
		}
		if err := d.copyRange(t, to.(*buffer), t.host, at, 0, min(slotBytes, n-at)); err != nil {
			return err
		}
	}
	return nil
}

// Faulty adds faults to options: replace may change the addresses of commands.
func Faulty(o Options, replace func(*vk.Commands)) Options {
	o.hooks = &hooks{replace: replace}
	return o
}

// WithLoader names the library that is the loader.
func WithLoader(o Options, names ...string) Options {
	o.hooks = &hooks{loader: names}
	return o
}

// ShortenBindings makes bindings end before what kernels read and write.
func (d *Device) ShortenBindings() { d.shorten = 512 }
