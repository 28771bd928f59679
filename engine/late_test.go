package engine

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/greta-project/greta/backends"
)

// ordered is a device of its own that chooses tokens and notes what is done in which order.
type ordered struct {
	backends.Device
	*journal
}

type journal struct {
	mu   sync.Mutex
	done []string
	fail bool // the next choice
}

func (j *journal) note(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done = append(j.done, what)
}

func (d ordered) Info() backends.Info {
	i := d.Device.Info()
	i.Queued, i.Picks = true, 40
	return i
}

func (d ordered) Capture(p *backends.Program) (backends.Executable, error) {
	e, err := d.Device.Capture(p)
	name := "step"
	if strings.Contains(p.Name, "choice") {
		name = "choice"
	}
	return &orderedProgram{e, d.journal, name}, err
}

type orderedProgram struct {
	backends.Executable
	*journal
	name string
}

func (p *orderedProgram) Submit() error {
	p.note("submit " + p.name)
	if p.name == "choice" && p.fail {
		p.fail = false
		return errors.New("the choice broke")
	}
	return p.Executable.Submit()
}

func (p *orderedProgram) Wait() error {
	p.note("wait " + p.name)
	return p.Executable.Wait()
}

// asking is a mask that notes when it is asked.
type asking struct {
	odd
	*journal
}

func (a *asking) Allowed(bits []uint32) error {
	a.note("mask")
	return a.odd.Allowed(bits)
}

// TestMasksWhileTheDeviceComputes: masks are made when the device has the step up to the logits, of which the choice
// is submitted behind it; without masks a step is one program. The tokens are those that the host chooses.
func TestMasksWhileTheDeviceComputes(t *testing.T) {
	texts := map[string][][][]int32{}
	for _, name := range []string{"host", "device"} {
		j := &journal{}
		dev := newCPU(t, 2)
		if name == "device" {
			dev = ordered{dev, j}
		}
		s := newScheduler(t, newEngine(t, Options{Model: small(t), Device: dev, Context: 64}),
			SchedulerOptions{Tokens: 512, Page: 8, NoPrefix: true})
		ask := func(r Request) [][]int32 {
			t.Helper()
			h, err := s.Add(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(h)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for i := range 4 {
			r := Request{Prompt: []int32{int32(i), 3, 5}, Max: 6, Sampling: Sampling{Seed: 3}}
			if i%2 == 1 {
				r.Sampling.Temperature = 0.8
			}
			j.done = nil
			r.Mask = &asking{odd{last: int32(i)}, j}
			texts[name] = append(texts[name], ask(r))
			if i == 0 && name == "device" {
				want := []string{"submit step", "mask", "submit choice", "wait step", "wait choice"}
				if !slices.Equal(j.done, slices.Repeat(want, 6)) {
					t.Errorf("six tokens: %q", j.done)
				}
			}
		}
		j.done = nil
		ask(Request{Prompt: []int32{1, 3, 5}, Max: 2})
		if slices.Contains(j.done, "submit choice") {
			t.Errorf("without masks: %q", j.done)
		}
	}
	for i, want := range texts["host"] {
		for k := range want {
			if got := texts["device"][i][k]; !slices.Equal(got, want[k]) {
				t.Errorf("request %d, choice %d: %v, the host chooses %v", i, k, got, want[k])
			}
		}
	}
}

// TestLateChoiceFails: where the choice cannot be submitted the step up to the logits is waited for all the same, the
// request ends with the error, and those behind it are answered.
func TestLateChoiceFails(t *testing.T) {
	j := &journal{}
	s := newScheduler(t, newEngine(t, Options{Model: small(t), Device: ordered{newCPU(t, 1), j}, Context: 64}),
		SchedulerOptions{Tokens: 512, Page: 8})
	ask := func() ([][]int32, error) {
		h, err := s.Add(t.Context(), Request{Prompt: []int32{1, 3, 5}, Max: 4, Mask: &asking{odd{}, j}})
		if err != nil {
			t.Fatal(err)
		}
		return read(h)
	}
	j.fail = true
	if _, err := ask(); err == nil || !strings.Contains(err.Error(), "the choice broke") {
		t.Errorf("the choice fails: %v", err)
	}
	if want := []string{"submit step", "mask", "submit choice", "wait step"}; !slices.Equal(j.done, want) {
		t.Errorf("done: %q", j.done)
	}
	freed(t, s)
	if got, err := ask(); err != nil || len(got[0]) != 4 {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}
