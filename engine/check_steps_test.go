package engine

import (
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/tensor"
)

// wrongReplay is the processor, choosing tokens too, with one bit of what some of
// its captured programs give changed. What it launches eagerly is right.
type wrongReplay struct {
	backends.Device
	where func(p *backends.Program, run int) bool // run counts a program's replays
}

type wrongProgram struct {
	backends.Executable
	dev  wrongReplay
	of   *backends.Program
	runs int
}

func (w wrongReplay) Info() backends.Info {
	i := w.Device.Info()
	i.Picks = 8
	return i
}

func (w wrongReplay) Capture(p *backends.Program) (backends.Executable, error) {
	e, err := w.Device.Capture(p)
	return &wrongProgram{Executable: e, dev: w, of: p}, err
}

func (p *wrongProgram) Wait() error {
	if err := p.Executable.Wait(); err != nil {
		return err
	}
	p.runs++
	if !p.dev.where(p.of, p.runs) {
		return nil
	}
	s, err := p.dev.Stream()
	if err != nil {
		return err
	}
	defer s.Close()
	out := &p.of.Launches[len(p.of.Launches)-1].Out[0]
	var b [1]byte
	if err := s.Read(out.Buffer, out.Offset, b[:]); err != nil {
		return err
	}
	b[0] ^= 1
	return s.Write(out.Buffer, out.Offset, b[:])
}

// TestCheckComparesSingleSteps: a bit that differs in one replayed step of one
// token is found, and the step is named.
func TestCheckComparesSingleSteps(t *testing.T) {
	one := func(p *backends.Program) bool { return strings.HasSuffix(p.Name, " S=1") }
	picks := func(p *backends.Program) bool { return p.Launches[len(p.Launches)-1].Node.Name == "choice" }
	sessions := 0 // with the step of one token that is looked for
	for name, c := range map[string]struct {
		where            func(p *backends.Program, run int) bool
		replayAt, repeat string // of the report
	}{
		"nothing":  {func(*backends.Program, int) bool { return false }, "", ""},
		"a prompt": {func(p *backends.Program, _ int) bool { return !one(p) }, "prefill S=10 at position 0", ""},
		"single step": {func(p *backends.Program, run int) bool {
			return one(p) && !picks(p) && run == 4
		}, "decode S=1 at position 3", ""},
		"its choice": {func(p *backends.Program, run int) bool {
			return picks(p) && run == 2
		}, "decode with the choice of a token S=1 at position 2", ""},
		"not always": {func(p *backends.Program, run int) bool {
			if one(p) && run == 6 {
				sessions++
				return sessions == 2
			}
			return false
		}, "", "decode S=1 at position 5"},
	} {
		t.Run(name, func(t *testing.T) {
			dev := wrongReplay{newCPU(t, 1), c.where}
			r, err := Check(t.Context(), CheckOptions{Options: Options{Model: small(t), Device: dev, Context: 16, KV: tensor.F32,
				DType: tensor.F32}, Ref: ref.New()})
			if err != nil {
				t.Fatal(err)
			}
			if r.Diverged != nil || !r.PrefillOK {
				t.Errorf("the operators are right: %+v", r)
			}
			if r.ReplayAt != c.replayAt || r.RepeatAt != c.repeat || r.ReplayOK != (c.replayAt == "") ||
				r.RepeatOK != (c.repeat == "") {
				t.Errorf("replay differs at %q (%v), repeats at %q (%v)", r.ReplayAt, !r.ReplayOK, r.RepeatAt, !r.RepeatOK)
			}
			if r.OK() != (name == "nothing") {
				t.Errorf("the verdict is %v", r.OK())
			}
		})
	}
}

// TestCheckOfOneToken has nothing behind its prompt.
func TestCheckOfOneToken(t *testing.T) {
	dev := wrongReplay{newCPU(t, 1), func(*backends.Program, int) bool { return true }}
	r, err := Check(t.Context(), CheckOptions{Options: Options{Model: small(t), Device: dev, Context: 1, KV: tensor.F32,
		DType: tensor.F32}, Ref: ref.New()})
	if err != nil {
		t.Fatal(err)
	}
	if r.ReplayAt != "prefill S=1 at position 0" {
		t.Errorf("replay differs at %q", r.ReplayAt)
	}
}
