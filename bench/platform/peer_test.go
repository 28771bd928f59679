package platform

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/bench/profile"
	"github.com/greta-project/greta/bench/record"
)

// fakePeer is a device whose memory is the host's. It says where a call is not on its own goroutine.
type fakePeer struct {
	t      *testing.T
	name   string
	mu     sync.Mutex
	inside bool
	near   []string // devices that it reaches directly
	wrong  bool     // its copies lose the last byte
	fails  bool
	alive  int
}

type fakeMemory struct {
	of   *fakePeer
	data []byte
}

func (m *fakeMemory) Size() int { return len(m.data) }
func (m *fakeMemory) Write(at int, src []byte) error {
	m.of.check()
	copy(m.data[at:], src)
	return nil
}
func (m *fakeMemory) Read(at int, dst []byte) error { m.of.check(); copy(dst, m.data[at:]); return nil }
func (m *fakeMemory) Address() uint64               { return 0 }
func (m *fakeMemory) Host() []byte                  { return nil }
func (m *fakeMemory) Free() error                   { m.of.check(); m.of.alive--; return nil }

func (p *fakePeer) check() {
	if !p.inside {
		p.t.Errorf("%s is used outside of do", p.name)
	}
}

func (p *fakePeer) id() string { return p.name }
func (p *fakePeer) do(f func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside = true
	defer func() { p.inside = false }()
	return f()
}
func (p *fakePeer) alloc(n int) (memory, error) {
	p.check()
	p.alive++
	return &fakeMemory{p, make([]byte, n)}, nil
}
func (p *fakePeer) memoryGBs() (float64, error) { return 1e6, nil }
func (p *fakePeer) reach(to peerDevice) (bool, error) {
	p.check()
	return slices.Contains(p.near, to.id()), nil
}
func (p *fakePeer) copies(to, from memory, bytes, n int) sampler {
	return func() (float64, float64, error) {
		p.check()
		if p.fails {
			return 0, 0, errors.New("the link is down")
		}
		a, b := to.(*fakeMemory), from.(*fakeMemory)
		if a.of == b.of || b.of != p {
			p.t.Errorf("%s copies from %s to %s", p.name, b.of.name, a.of.name)
		}
		if p.wrong {
			bytes--
		}
		copy(a.data[:bytes], b.data[:bytes])
		time.Sleep(time.Millisecond)
		return float64(n) * 1e-3, float64(n) * 2e-3, nil
	}
}
func (p *fakePeer) close() error { return nil }

func runPeers(devices []peerDevice, text string) (all []record.Result, s *session, err error) {
	s = &session{ctx: context.Background(), backend: "hip", opt: Options{Repetitions: 2, MinTime: time.Millisecond,
		Plan: []profile.Platform{{Bench: "peer", Params: map[string]profile.Text{"bytes": profile.Text(text)}}},
		Emit: func(r *record.Result) error { all = append(all, *r); return nil }}}
	err = s.peers(devices)
	return all, s, err
}

// Three devices: six ways, three pairs at once, each with its check; what is direct is said.
func TestPeers(t *testing.T) {
	three := []*fakePeer{{t: t, name: "0", near: []string{"1"}}, {t: t, name: "1", near: []string{"0"}}, {t: t, name: "2"}}
	var devices []peerDevice
	for _, p := range three {
		devices = append(devices, p)
	}
	all, _, err := runPeers(devices, "64,4099")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, r := range all {
		if r.Verdict != record.OK {
			t.Errorf("%s: %s %s", r.Name(), r.Verdict, r.Reason)
		}
		count[r.Bench]++
		p := r.Params
		if p["from"] == p["to"] && p["from"] != "" {
			t.Errorf("%s copies to itself", r.Name())
		}
		pair := p["from"] + p["to"] + p["a"] + p["b"]
		if want := map[bool]string{true: "direct", false: "by the host"}[pair == "01" || pair == "10"]; p["access"] != want {
			t.Errorf("%s: access %q, want %q", r.Name(), p["access"], want)
		}
		switch {
		case r.Bench == "platform/peer/both" && (r.Clock != record.HostClock || r.Bytes != 2*64 && r.Bytes != 2*4099):
			t.Errorf("%s: %v bytes by the %s's clock", r.Name(), r.Bytes, r.Clock)
		case r.Bench == "platform/peer/copy" && (r.Clock != record.DeviceClock || r.Samples[0] != 1e-3):
			t.Errorf("%s: %v s by the %s's clock", r.Name(), r.Samples[0], r.Clock)
		}
	}
	if count["platform/peer/latency"] != 6 || count["platform/peer/copy"] != 12 || count["platform/peer/both"] != 6 {
		t.Errorf("%v", count)
	}
	for _, p := range three {
		if p.alive != 0 {
			t.Errorf("device %s has %d memories left", p.name, p.alive)
		}
	}
}

// A copy that loses a byte fails; one that cannot be made is an error that leaves nothing behind; one device is said.
func TestPeersThatFail(t *testing.T) {
	a, b := &fakePeer{t: t, name: "0", wrong: true}, &fakePeer{t: t, name: "1"}
	all, s, err := runPeers([]peerDevice{a, b}, "4096")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if bad := r.Params["from"] == "0" || r.Bench == "platform/peer/both"; (r.Verdict == record.Failed) != bad {
			t.Errorf("%s: %s", r.Name(), r.Verdict)
		}
	}
	if s.wrong.Failed != 3 {
		t.Errorf("%d failed, 3 are expected", s.wrong.Failed)
	}
	a.wrong, b.fails = false, true
	if _, _, err := runPeers([]peerDevice{a, b}, "4096"); err == nil ||
		!strings.Contains(err.Error(), "the link is down") {
		t.Errorf("a link that is down: %v", err)
	}
	if a.alive+b.alive != 0 {
		t.Errorf("%d memories are left", a.alive+b.alive)
	}
	all, _, err = runPeers([]peerDevice{a}, "64")
	if err != nil || len(all) != 1 || all[0].Verdict != record.Skipped ||
		!strings.HasPrefix(all[0].Reason, "one device: nothing between devices to measure") {
		t.Errorf("one device: %v %+v", err, all)
	}
}

// Members begin each figure together, work on until all have it, and who fails or leaves keeps nobody.
func TestTogether(t *testing.T) {
	const members = 3
	ta := newTogether(members)
	var mu sync.Mutex
	running, most, done := 0, 0, 0
	var wait sync.WaitGroup
	for i := range members {
		s := &session{ctx: context.Background(), bench: &Benchmark{Name: "x"}, backend: "cpu",
			opt: Options{Repetitions: 2 + 3*i, MinTime: time.Millisecond, together: ta, Emit: func(*record.Result) error {
				mu.Lock()
				defer mu.Unlock()
				done++
				return nil
			}}}
		op := hostTimed(func() error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(2 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		})
		wait.Go(func() {
			defer ta.leave()
			for k := range 4 - i { // one has fewer figures than the others
				p := point{prepare: op, most: 1, check: func() (record.Check, error) { return exact(0, 1), nil }}
				if i == 1 && k == 0 {
					p.check = func() (record.Check, error) { return record.Check{}, errors.New("broken") }
				}
				if _, err := s.measure(p); (err != nil) != (i == 1 && k == 0) {
					t.Errorf("member %d, figure %d: %v", i, k, err)
				}
			}
		})
	}
	wait.Wait()
	if most != members || done != 4+2+2 {
		t.Errorf("%d at once at most, %d figures", most, done)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := newTogether(2).meet(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for nobody, told to end: %v", err)
	}
}

// Two devices with all that a benchmark needs, as bench platform --devices runs them.
func TestRunTogether(t *testing.T) {
	var members []Member
	for _, id := range []string{"0", "1"} {
		dev, err := cpu.NewLevel("go", 1)
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		members = append(members, Member{id, dev})
	}
	var all []record.Result
	opt := Options{Repetitions: 2, MinTime: time.Millisecond, Emit: func(r *record.Result) error {
		all = append(all, *r)
		return nil
	},
		Plan: []profile.Platform{{Bench: "latency", Params: map[string]profile.Text{"bytes": "4096,8192"}}}}
	if err := RunTogether(context.Background(), opt, members); err != nil {
		t.Fatal(err)
	}
	of := map[string]int{}
	for _, r := range all {
		if r.Verdict != record.OK || r.Params["at_once"] != "2" {
			t.Errorf("%s: %s %s", r.Name(), r.Verdict, r.Reason)
		}
		of[r.Params["device"]+" "+r.Params["bytes"]]++
	}
	if len(of) != 4 {
		t.Errorf("%v", of)
	}
	all = nil
	if err := RunPeers(context.Background(), opt, members); err != nil || len(all) != 1 ||
		all[0].Verdict != record.Skipped {
		t.Errorf("processors are no peers: %v %+v", err, all)
	}
}
