package hip

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Where launches overlap, step memory is copied by launches of a kernel instead of
// copies of the driver: the first launch of a program starts while they end, and the
// last one tells the program's end by a word in the host's memory, at which the host
// looks. See stepcopy.hip.

const (
	moveRanges  = 4       // RANGES in stepcopy.hip
	moveThreads = 256     // NT there
	moveBlock   = 4 << 10 // bytes that a block copies at once
	moveBlocks  = 64      // the most of a launch
	// moveMost is the bytes up to which launches copy: more come sooner by the driver's
	// copies, which take longer to begin.
	moveMost = 128 << 10
	// lookFor is how long the host looks at the word, before it lets the driver wait:
	// longer than a token takes.
	lookFor = 5 * time.Millisecond
)

// stepCopies are a captured program's copies, and the word by which it tells its end.
type stepCopies struct {
	in, out *bound
	at      uintptr // pinned memory of the host
	told    *uint32 // the word there: how many runs have ended
	runs    uint32  // how many were submitted
}

// canMove says whether ranges are of the kind that stepcopy.hip copies.
func canMove(list []stepRange) bool {
	bytes := 0
	for _, r := range list {
		if (r.from|r.to)%4 != 0 {
			return false
		}
		bytes += r.to - r.from
	}
	return len(list) <= moveRanges && bytes <= moveMost
}

// prepareMoves makes the launches that copy, where the device takes them.
func (e *executable) prepareMoves() error {
	dev := e.dev
	if !dev.overlaps || len(e.out) == 0 || !canMove(e.in) || !canMove(e.out) {
		return nil
	}
	defer dev.enter()()
	at, err := dev.d.get(fnHostAlloc, "end of "+e.program.Name, 0, 64, 0)
	if err != nil {
		return err
	}
	word := view(uintptr(at), 64)
	clear(word)
	e.copies = &stepCopies{at: uintptr(at), told: (*uint32)(unsafe.Pointer(unsafe.SliceData(word)))}
	if len(e.in) > 0 {
		if e.copies.in, err = e.move(e.in, 0); err != nil {
			return err
		}
	}
	e.copies.out, err = e.move(e.out, e.copies.at)
	return err
}

// move is the launch that copies ranges, to the device where told is 0.
func (e *executable) move(list []stepRange, told uintptr) (*bound, error) {
	words, bytes := make([]uint64, 2*moveRanges+moveRanges/2), 0
	for i, r := range list {
		device, host := uint64(r.b.at)+uint64(r.from), uint64(r.b.side.at)+uint64(r.from)
		if told == 0 {
			words[i], words[moveRanges+i] = device, host
		} else {
			words[i], words[moveRanges+i] = host, device
		}
		n := r.to - r.from
		words[2*moveRanges+i/2] |= uint64(uint32(n)) << (32 * (i % 2))
		bytes += n
	}
	count, err := e.dev.ticket()
	if err != nil {
		return nil, err
	}
	b := &binder{dev: e.dev}
	d := b.start(moveFile, "move", moveThreads, min(ceil(bytes, moveBlock), moveBlocks), 1, 1)
	d.args.add(words...)
	d.ptr(count, told)
	d.late = len(d.args.values)
	d.u32(0)
	return newBound("copies of "+e.program.Name, 0, b.parts), b.err
}

var moveFile = newProgram("stepcopy.hip")

// hurry lets a program's first launch begin while its inputs are copied, where that can hold
// back those behind it.
func (e *executable) hurry() {
	if e.copies == nil || e.copies.in == nil || len(e.levels) == 0 {
		return
	}
	if first := holder(e.levels[0]); first != nil {
		for _, d := range []*dispatch{first, e.copies.in.parts[0]} {
			d.args.values[d.late] = 1
		}
	}
}

// holder is the one launch of a level, where it can hold back those behind it.
func holder(level []*bound) *dispatch {
	if len(level) == 1 && len(level[0].parts) == 1 && level[0].parts[0].late > 0 {
		return level[0].parts[0]
	}
	return nil
}

// chainLaunches is how many launches a program of several steps may have: sixteen steps of a
// Llama block, of which each takes 7 µs less than queued by itself (docs/lab/gpu.md).
const chainLaunches = 256

// holdBack lets each step of a program but the first hold back its launches until those of
// the step before have ended, which they may read from before they wait: positions of
// the caches. It gives the levels whose launches cannot do so.
func holdBack(levels [][]*bound, begins []int) (serial []int) {
	for i, l := range begins {
		if i == 0 || l == len(levels) {
			continue
		}
		if d := holder(levels[l]); d != nil {
			d.args.values[d.late] = 1
		} else {
			serial = append(serial, l)
		}
	}
	return serial
}

// bounds are the launches that there are.
func (m *stepCopies) bounds() (all []*bound) {
	if m == nil {
		return nil
	}
	for _, b := range []*bound{m.in, m.out} {
		if b != nil {
			all = append(all, b)
		}
	}
	return all
}

// programs adds what the copies need.
func (m *stepCopies) programs(all []program) []program {
	for _, b := range m.bounds() {
		all = b.programs(all)
	}
	return all
}

// run puts one of the launches on the stream, where there is one.
func (m *stepCopies) run(dev *Device, b *bound, follows bool) error {
	if b == nil {
		return nil
	}
	return b.runOn(dev, dev.stream, follows)
}

// ended looks for the end of the last run, for a while. What the run wrote to the
// host's memory can be read then.
func (m *stepCopies) ended() bool {
	start := time.Now()
	for n := 1; ; n++ {
		if atomic.LoadUint32(m.told) == m.runs {
			return true
		}
		if n%1024 == 0 && time.Since(start) > lookFor {
			return false
		}
	}
}

func (m *stepCopies) free(dev *Device) error {
	for _, b := range m.bounds() {
		b.free()
	}
	return dev.d.call(fnHostFree, "", m.at)
}
