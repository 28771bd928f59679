//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import "greta/tensor"

// In a step of one token, what lies between two stages takes as long as their work: the last
// workgroups end, caches are flushed, workgroups of the next stage start and wait for their
// first weights. Where a driver starts workgroups in the order of dispatches, a stage of
// kernels that know how is recorded without a barrier before it: its workgroups start as
// those before leave room, ask for their first weights, and wait until a counter says that all of
// the stage before have ended (handed.glsl). Nothing waits for what has not started, so
// that none waits forever. Vulkan promises no such order, so this is a path of drivers that are
// known to keep it, which a health check tries (handedtry.go); and a wait has an end: a step in which one was in
// vain fails.

// mostStages is how many counters a step has, the last of which counts waits in vain. handWords is the
// number of constants, a kernel's last ones, that say which counter it waits for and how many workgroups that stage
// has, and which is its own.
const mostStages, handWords = 4096, 3

// handRoom is for how many elements of x kernels of a format have room in shared memory at least, which decides how
// many workgroups share a multiprocessor: what was fastest on one H200.
var handRoom = map[tensor.Type]int{tensor.Q4_0: 11008, tensor.Q8_0: 11008}

// handOne are the formats whose products before a norm take a row a subgroup and 1,024 invocations there.
var handOne = map[tensor.Type]bool{tensor.Q4_0: true, tensor.Q8_0: true}

// aheadOf is the room for x in a product of so many columns that can be handed over, in elements, 0: it cannot.
func (b *bind) aheadOf(t tensor.Type, cols int) int {
	const each, others = 44, 1024 // bytes of 32 elements with their scale and sum of squares; of what else is shared
	room := max(cols, handRoom[t])
	switch {
	case !b.d.on.ahead || cols%128 != 0 || cols/32*each+others > b.d.p.Shared:
		return 0
	case room/32*each+others > b.d.p.Shared:
		return cols
	}
	return room
}

// hand binds the counters to a dispatch that can be handed over, of which so many workgroups count.
func (b *bind) hand(c *dispatch, can bool, ends int) {
	if !can {
		b.none(c)
		return
	}
	t, err := b.d.ended()
	if err != nil {
		b.fail(err)
		return
	}
	c.bound = append(c.bound, span{b: t, to: t.bytes})
	c.ends = ends
}

// ended is where the counters lie.
func (d *Device) ended() (*buffer, error) { return d.temporary("ended", 4*mostStages) }

// stages are dispatches between barriers, in the order of recording.
func stages(list []dispatch) (all [][]int) {
	var last stage
	for _, i := range schedule(list) {
		if last.add(&list[i]) || len(all) == 0 {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], i)
	}
	return all
}

// handOver finds stages all of whose dispatches can wait for the one before, all of whose count.
func (e *executable) handOver() (err error) {
	before := 0 // workgroups that count of the stage before
	for n, stage := range stages(e.dispatches) {
		ends := 0
		for _, i := range stage {
			if e.dispatches[i].ends == 0 {
				ends = 0
				break
			}
			ends += e.dispatches[i].ends
		}
		if n >= mostStages-1 {
			ends = 0
		}
		for _, i := range stage {
			if ends == 0 {
				break
			}
			x := &e.dispatches[i]
			words := x.push[len(x.push)-handWords:]
			words[2] = uint32(n)
			if before > 0 {
				words[0], words[1] = uint32(n-1), uint32(before)+e.d.miscount
				x.handed = true
				if e.ended, err = e.d.ended(); err != nil {
					return err
				}
			}
		}
		before = ends
	}
	return nil
}
