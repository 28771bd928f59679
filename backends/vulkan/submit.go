//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/internal/errlist"
)

// Submission: every command buffer that is given to the queue signals one timeline
// semaphore of the device with the next number, so that "done" is a comparison and
// several may be under way. A long wait sleeps for most of the time that the last run
// of the same commands took, and then polls, a short one polls: waking a thread up
// costs more than the end of a step is worth. A captured program's end is told by a word in the host's memory as well,
// where a driver is known to let the host see it at once.

// clock is the device's timeline.
type clock struct {
	semaphore vk.Semaphore
	given     uint64 // the last number that a submission was told to signal
	reached   uint64 // the last number that was seen
	most      int    // submissions that were under way at a time
	told      int    // waits that a word has ended
	// polls is how long waits poll at least, whatever is usual: what a test sets where the machine may be slow.
	polls time.Duration
	// blocked is the time that waits have taken, for who measures the host's own work.
	blocked time.Duration

	value *uint64               // what polling reads into
	until *vk.SemaphoreWaitInfo // what sleeping waits for
	goal  *uint64
	pins  runtime.Pinner
	poll  []uintptr // arguments
	sleep []uintptr
}

func (c *clock) open(d *Device) error {
	kind := (&vk.SemaphoreTypeCreateInfo{SemaphoreType: vk.VK_SEMAPHORE_TYPE_TIMELINE}).Init()
	info := (&vk.SemaphoreCreateInfo{PNext: unsafe.Pointer(kind)}).Init()
	if r := d.c.CreateSemaphore(d.handle, info, nil, &c.semaphore); r != vk.VK_SUCCESS {
		return d.check(r, "vkCreateSemaphore", "timeline")
	}
	semaphore := &c.semaphore
	c.value, c.goal = new(uint64), new(uint64)
	c.pins.Pin(semaphore)
	c.pins.Pin(c.value)
	c.pins.Pin(c.goal)
	c.until = (&vk.SemaphoreWaitInfo{SemaphoreCount: 1, PSemaphores: semaphore, PValues: c.goal}).Init()
	c.pins.Pin(c.until)
	c.poll = []uintptr{uintptr(d.handle), uintptr(c.semaphore), uintptr(unsafe.Pointer(c.value))}
	c.sleep = []uintptr{uintptr(d.handle), uintptr(unsafe.Pointer(c.until)), 0}
	return nil
}

func (c *clock) close(d *Device) {
	if c.semaphore != 0 {
		d.c.DestroySemaphore(d.handle, c.semaphore, nil)
		c.semaphore = 0
	}
	c.pins.Unpin()
}

const (
	forever = ^uint64(0)
	// sleepShare of a step's usual time is slept, the rest polled.
	sleepShare = 0.8
	// mostPolling is how long a wait polls beyond the usual time before it sleeps until
	// the end: the step takes longer than it did.
	mostPolling = 2 * time.Millisecond
)

// leastSleep is the time from which on a wait sleeps. A card's decode steps are polled
// from the start, since a core that slept works up to 20 µs longer on the next one;
// elsewhere the device shares power and cores with who would poll.
func (d *Device) leastSleep() time.Duration {
	if d.p.Kind == Discrete {
		return max(20*time.Millisecond, d.clock.polls)
	}
	return max(200*time.Microsecond, d.clock.polls)
}

// wait returns when the number is reached. usual is how long it is expected to
// take from now on, 0 where nothing is known.
func (c *clock) wait(d *Device, number uint64, usual time.Duration, what string) error {
	if c.reached >= number {
		return nil
	}
	start := time.Now()
	err := c.waitFrom(d, number, usual, what, start)
	c.blocked += time.Since(start)
	if err != nil && d.lost == nil {
		d.c.DeviceWaitIdle(d.handle) // or what still runs would use memory that the caller frees
	}
	return err
}

func (c *clock) waitFrom(d *Device, number uint64, usual time.Duration, what string, start time.Time) error {
	// A software device computes on the processor that would poll.
	if d.p.Kind != Software && usual > 0 {
		if usual >= d.leastSleep() {
			if done, err := c.doze(d, number, uint64(sleepShare*float64(usual)), what); done || err != nil {
				return err
			}
		}
		for time.Since(start) < usual+mostPolling {
			if done, err := c.look(d, number, what); done || err != nil {
				return err
			}
		}
	}
	_, err := c.doze(d, number, forever, what)
	return err
}

// look asks once whether the number is reached.
func (c *clock) look(d *Device, number uint64, what string) (bool, error) {
	if r := call(d.c.GetSemaphoreCounterValueAddr, c.poll); r != vk.VK_SUCCESS {
		return false, d.check(r, "vkGetSemaphoreCounterValue", what)
	}
	if *c.value == forever { // what some drivers give for a lost device
		return false, d.check(vk.VK_ERROR_DEVICE_LOST, "vkGetSemaphoreCounterValue", what)
	}
	c.reached = max(c.reached, *c.value)
	return c.reached >= number, nil
}

// doze sleeps until the number is reached, at most so many nanoseconds.
func (c *clock) doze(d *Device, number, nanoseconds uint64, what string) (bool, error) {
	*c.goal, c.sleep[2] = number, uintptr(nanoseconds)
	switch r := call(d.c.WaitSemaphoresAddr, c.sleep); r {
	case vk.VK_SUCCESS:
		c.reached = max(c.reached, number)
		return true, nil
	case vk.VK_TIMEOUT:
		return false, nil
	default:
		return false, d.check(r, "vkWaitSemaphores", what)
	}
}

// submission is a command buffer that can be run again and again. What its calls
// take is made once and pinned, so that a replay allocates nothing.
type submission struct {
	d      *Device
	what   string
	cb     *vk.CommandBuffer
	info   *vk.SubmitInfo
	times  *vk.TimelineSemaphoreSubmitInfo
	number *uint64 // that this run signals
	flying bool
	seen   bool        // flying, but a word has told the end
	behind *submission // what runs whenever it has ended; nil: nothing

	begun time.Time
	usual time.Duration // from submitting to the end, as it was the last time

	pins   runtime.Pinner
	queued []uintptr // arguments
}

func (d *Device) newSubmission(what string) (*submission, error) {
	s := &submission{d: d, what: what, cb: new(vk.CommandBuffer), number: new(uint64)}
	var err error
	if *s.cb, err = d.newCommandBuffer(); err != nil {
		return nil, err
	}
	s.times = (&vk.TimelineSemaphoreSubmitInfo{SignalSemaphoreValueCount: 1, PSignalSemaphoreValues: s.number}).Init()
	s.info = (&vk.SubmitInfo{PNext: unsafe.Pointer(s.times), CommandBufferCount: 1, PCommandBuffers: s.cb,
		SignalSemaphoreCount: 1, PSignalSemaphores: &d.clock.semaphore}).Init()
	s.pins.Pin(s.cb)
	s.pins.Pin(s.number)
	s.pins.Pin(s.times)
	s.pins.Pin(s.info)
	s.queued = []uintptr{uintptr(d.queue), 1, uintptr(unsafe.Pointer(s.info)), 0}
	return s, nil
}

// follow has another submission run behind every run of s from now on. Waits for s do not wait for it.
func (s *submission) follow(behind *submission) { s.behind = behind }

func call(command uintptr, args []uintptr) vk.Result {
	r, _, _ := purego.SyscallN(command, args...)
	return vk.Result(r)
}

// submit gives the commands to the queue, and then what runs behind them. A run that is still under way is waited for.
func (s *submission) submit() error {
	if err := s.give(); err != nil {
		return err
	}
	s.d.submits++
	if s.behind == nil {
		return nil
	}
	if err := s.behind.give(); err != nil { // which waits for its last run when this one is on its way
		err = errlist.Join(err, s.wait())
		if s.d.lost == nil { // later runs would take what this one left for what they wait for
			s.d.lost = fmt.Errorf("%s: what runs behind %s was refused: %w", s.d.p.Name, s.what, err)
		}
		return s.d.lost
	}
	return nil
}

func (s *submission) give() error {
	d := s.d
	if d.lost != nil {
		return d.lost
	}
	if err := s.wait(); err != nil {
		return err
	}
	*s.number = d.clock.given + 1
	s.begun = time.Now()
	if r := call(d.c.QueueSubmitAddr, s.queued); r != vk.VK_SUCCESS {
		return d.check(r, "vkQueueSubmit", s.what)
	}
	d.clock.given++
	d.clock.most = max(d.clock.most, int(d.clock.given-d.clock.reached))
	s.flying = true
	return nil
}

// wait waits for the end of the run.
func (s *submission) wait() error {
	if !s.flying {
		return nil
	}
	s.flying = false
	usual := s.usual
	if usual > 0 {
		usual = max(usual-time.Since(s.begun), 1)
	}
	seen := s.seen
	s.seen = false
	if err := s.d.clock.wait(s.d, *s.number, usual, s.what); err != nil {
		return err
	}
	if !seen {
		s.usual = time.Since(s.begun)
	}
	return nil
}

// see waits until the last of the commands has set a word of the host's memory, which is 0 before
// they are submitted. They may not have ended for the driver then, which the next wait waits for.
// An H200's driver tells of a token's end by the semaphore 4 µs later, and in one of three
// processes 30.
func (s *submission) see(told *uint32) error {
	if !s.flying || s.seen {
		return nil
	}
	if s.usual == 0 || s.usual >= s.d.leastSleep() {
		return s.wait()
	}
	c, start := &s.d.clock, time.Now()
	there := s.watch(told, start)
	c.blocked += time.Since(start)
	if !there {
		return s.wait()
	}
	s.usual, s.seen = time.Since(s.begun), true
	c.told++
	return nil
}

// watch says whether the word was set before much more than the usual time was over, or the
// semaphore told of the end or of a lost device.
func (s *submission) watch(told *uint32, start time.Time) bool {
	// before the time is looked at, and from one look at the semaphore to the next
	const looks, asked = 64, 100 * time.Microsecond
	for ask := start.Add(asked); ; {
		for range looks {
			if atomic.LoadUint32(told) != 0 {
				return true
			}
		}
		now := time.Now()
		switch {
		case now.Sub(s.begun) > s.usual+max(mostPolling, s.d.clock.polls):
			return false
		case now.After(ask):
			if done, err := s.d.clock.look(s.d, *s.number, s.what); done || err != nil {
				return err == nil && atomic.LoadUint32(told) != 0
			}
			ask = now.Add(asked)
		}
	}
}

func (s *submission) close() error {
	err := s.wait()
	if s.d.opt.Validate {
		// The layer reads what shaders reported in threads of its own, and drops it with the commands.
		s.d.c.DeviceWaitIdle(s.d.handle)
	}
	s.d.c.FreeCommandBuffers(s.d.handle, s.d.commands, 1, s.cb)
	s.pins.Unpin()
	return err
}

// once records, runs and waits.
func (d *Device) once(what string, record func(*recorder)) error {
	s, err := d.newSubmission(what)
	if err != nil {
		return err
	}
	if err = d.begin(*s.cb); err == nil {
		record(&recorder{d: d, cb: *s.cb})
		if err = d.check(d.c.EndCommandBuffer(*s.cb), "vkEndCommandBuffer", what); err == nil {
			err = s.submit()
		}
	}
	return errlist.Join(err, s.close())
}
