package platform

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/errlist"
)

// peer: copies between the memories of two devices, for all pairs.
var peerBench = define(Benchmark{
	Name:   "peer",
	About:  "copies between devices: bandwidth and latency of every pair, each way and both at once",
	Params: map[string]string{"bytes": "size of a copy"},
	GPU:    func(*GPU) error { return &Missing{onlyOne} },
	Lacks: map[string]string{"cpu": "the processor is one device",
		"vulkan": "Vulkan's devices share memory through handles of the system, which greta does not use; HIP has it"},
})

// onlyOne is said where there is nothing to copy between.
const onlyOne = "one device: nothing between devices to measure (with several: --devices all)"

// RunPeers measures copies between the devices, all pairs both ways. With one device, and for backends that cannot,
// there is one SKIPPED result that says so. The plan's parameters of "peer" count, nothing else of it.
func RunPeers(ctx context.Context, opt Options, members []Member) error {
	s := &session{ctx: ctx, opt: opt, backend: members[0].Device.Info().Backend}
	var devices []peerDevice
	for _, m := range members {
		d, ok := m.Device.(*hip.Device)
		if !ok || len(members) < 2 {
			break // peers says why
		}
		devices = append(devices, newHIPPeer(m.ID, d))
	}
	err := s.peers(devices)
	for _, d := range devices {
		err = errlist.Join(err, d.close())
	}
	if s.wrong != (Wrong{}) {
		err = errlist.Join(err, &s.wrong)
	}
	return err
}

// peerDevice is a device of several. Its calls but do belong into do.
type peerDevice interface {
	id() string
	// do runs a function on the device's own goroutine, and waits for it.
	do(f func() error) error
	alloc(bytes int) (memory, error)
	// memoryGBs is the modelled bandwidth of its memory, 0 where unknown.
	memoryGBs() (float64, error)
	// reach allows direct access to another's memory; false: copies go by way of the host.
	reach(to peerDevice) (direct bool, err error)
	// copies makes a sampler of n copies from memory of this device to another's.
	copies(to, from memory, bytes, n int) sampler
	close() error
}

// end is a device with what is copied from it and to it.
type peerEnd struct {
	peerDevice
	source, target memory
	content        []byte // of source
	roof           float64
}

// peers measures all pairs.
func (s *session) peers(devices []peerDevice) (err error) {
	s.bench, s.params = peerBench, map[string][]int{}
	for _, p := range s.opt.Plan {
		if p.Bench == "peer" {
			if s.params, err = sizesOf(p); err != nil {
				return err
			}
		}
	}
	if why := peerBench.Lacks[s.backend]; why != "" {
		return s.skip("", nil, "%s", why)
	}
	if len(devices) < 2 {
		return s.skip("", nil, "%s", onlyOne)
	}
	sizes := s.sizes("bytes", 64<<10, 1<<20, 16<<20, 256<<20)
	largest := latencyBytes
	for _, n := range sizes {
		largest = max(largest, n)
	}
	ends := make([]*peerEnd, len(devices))
	for i, d := range devices {
		e := &peerEnd{peerDevice: d, content: make([]byte, ceil(largest, 4)*4)}
		ends[i] = e
		for k := 0; k < len(e.content); k += 4 {
			binary.LittleEndian.PutUint32(e.content[k:], mix(uint32(k/4)^uint32(i+1)<<24))
		}
		defer func() { err = errlist.Join(err, d.do(e.free)) }()
		if err := d.do(func() error { return e.start(len(e.content)) }); err != nil {
			return fmt.Errorf("device %s: %w", d.id(), err)
		}
	}
	for _, from := range ends {
		for _, to := range ends {
			if from != to {
				if err := s.oneWay(from, to, sizes); err != nil {
					return err
				}
			}
		}
	}
	for i, a := range ends {
		for _, b := range ends[i+1:] {
			if err := s.bothWays(a, b, sizes); err != nil {
				return err
			}
		}
	}
	return nil
}

// latencyBytes is the size of the copies whose time is that of starting one.
const latencyBytes = 4

func (e *peerEnd) start(bytes int) (err error) {
	if e.roof, err = e.memoryGBs(); err != nil {
		return err
	}
	if e.source, err = e.alloc(bytes); err != nil {
		return err
	}
	if e.target, err = e.alloc(bytes); err != nil {
		return err
	}
	return e.source.Write(0, e.content)
}

func (e *peerEnd) free() error {
	var errs []error
	for _, m := range []memory{e.source, e.target} {
		if m != nil {
			errs = append(errs, m.Free())
		}
	}
	return errlist.Join(errs...)
}

// clear empties the first n bytes of what is copied to; holds compares them with another's content.
func (e *peerEnd) clear(n int) error {
	return e.do(func() error { return e.target.Write(0, make([]byte, n)) })
}

func (e *peerEnd) holds(other *peerEnd, n int) (bool, error) {
	got := make([]byte, n)
	err := e.do(func() error { return e.target.Read(0, got) })
	return bytes.Equal(got, other.content[:n]), err
}

// access allows direct copies and says what they are then.
func access(from, to *peerEnd) (word string, err error) {
	word = "by the host"
	err = from.do(func() error {
		direct, err := from.reach(to.peerDevice)
		if direct {
			word = "direct"
		}
		return err
	})
	return word, err
}

// oneWay measures copies from a device to another: the time of small ones, and the rate of each size.
func (s *session) oneWay(from, to *peerEnd, sizes []int) error {
	way, err := access(from, to)
	if err != nil {
		return err
	}
	one := func(bench string, n int, params map[string]string) error {
		params["from"], params["to"], params["access"] = from.id(), to.id(), way
		if err := to.clear(n); err != nil {
			return err
		}
		p := point{most: 1024, prepare: func(k int) (sampler, func() error, error) {
			return func() (device, host float64, err error) {
				err = from.do(func() (err error) {
					device, host, err = from.copies(to.target, from.source, n, k)()
					return err
				})
				return device, host, err
			}, nil, nil
		}, check: func() (record.Check, error) {
			same, err := to.holds(from, n)
			return oneOrNone(same, n), err
		}}
		p.Bench, p.Params = bench, params
		if bench == "copy" {
			p.Bytes, p.Roofs.ReadGBs = float64(n), min(from.roof, to.roof)
		}
		_, err := s.measure(p)
		return err
	}
	if err := one("latency", latencyBytes, map[string]string{}); err != nil {
		return err
	}
	for _, n := range sizes {
		if err := one("copy", n, map[string]string{"bytes": itoa(n)}); err != nil {
			return err
		}
	}
	return nil
}

// oneOrNone is a check of a copy as a whole.
func oneOrNone(same bool, n int) record.Check {
	if same {
		return exact(0, n)
	}
	return exact(1, n)
}

// bothWays measures copies of two devices to each other at the same time, by the host's clock: bytes are those of both.
func (s *session) bothWays(a, b *peerEnd, sizes []int) error {
	there, err := access(a, b)
	if err != nil {
		return err
	}
	back, err := access(b, a)
	if err != nil {
		return err
	}
	if there != back {
		there += " there, " + back + " back"
	}
	for _, n := range sizes {
		if err := errlist.Join(a.clear(n), b.clear(n)); err != nil {
			return err
		}
		p := point{most: 1024, prepare: func(k int) (sampler, func() error, error) {
			return func() (float64, float64, error) {
				var wait sync.WaitGroup
				var errs [2]error
				begin := time.Now()
				for i, from := range []*peerEnd{a, b} {
					to := []*peerEnd{b, a}[i]
					wait.Go(func() {
						errs[i] = from.do(func() error {
							_, _, err := from.copies(to.target, from.source, n, k)()
							return err
						})
					})
				}
				wait.Wait()
				return 0, time.Since(begin).Seconds(), errlist.Join(errs[:]...)
			}, nil, nil
		}, check: func() (record.Check, error) {
			one, err := b.holds(a, n)
			two, err2 := a.holds(b, n)
			return oneOrNone(one && two, n), errlist.Join(err, err2)
		}}
		p.Bench, p.Params = "both", map[string]string{"a": a.id(), "b": b.id(), "bytes": itoa(n), "access": there}
		p.Bytes, p.Roofs.ReadGBs = 2*float64(n), min(a.roof, b.roof)
		if _, err := s.measure(p); err != nil {
			return err
		}
	}
	return nil
}

// hipPeer is a device through HIP, with a goroutine of its own, as its lower side demands.
type hipPeer struct {
	name string
	raw  *hip.Raw
	work chan func()
	err  error // of opening
}

func newHIPPeer(id string, dev *hip.Device) *hipPeer {
	p := &hipPeer{name: id, work: make(chan func())}
	go func() {
		p.raw, p.err = dev.Raw()
		for f := range p.work {
			f()
		}
	}()
	return p
}

func (p *hipPeer) id() string { return p.name }

func (p *hipPeer) do(f func() error) (err error) {
	done := make(chan struct{})
	p.work <- func() {
		defer close(done)
		if err = p.err; err == nil {
			err = f()
		}
	}
	<-done
	return err
}

func (p *hipPeer) close() error {
	err := p.do(func() error { return p.raw.Close() })
	close(p.work)
	return err
}

func (p *hipPeer) memoryGBs() (float64, error) {
	l, err := p.raw.Limits()
	return fromHIP(l).memoryGBs, err
}

func (p *hipPeer) alloc(bytes int) (memory, error) {
	m, err := p.raw.Alloc(bytes, hip.OnDevice)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p *hipPeer) reach(to peerDevice) (bool, error) { return p.raw.Reach(to.(*hipPeer).raw) }

func (p *hipPeer) copies(to, from memory, bytes, n int) sampler {
	return func() (float64, float64, error) {
		return p.raw.Time(func() error {
			for range n {
				if err := p.raw.StartPeerCopy(to.(*hip.RawMemory), from.(*hip.RawMemory), 0, bytes); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
