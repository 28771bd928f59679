package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// smallBlock is a Llama block of 64 channels on a device that has its steps in chains, or singly,
// with the outputs of rows x one by one.
func smallBlock(t *testing.T, launches int, x []float32) (opt Options, s *Session, want [][]float32) {
	block, err := models.Builtin("llama2_block")
	if err != nil {
		t.Fatal(err)
	}
	opt = Options{Model: block, Set: map[string]string{"D": "64", "H": "4", "F": "96"},
		Device: &chaining{Device: newCPU(t, 1), launches: launches}, Context: 32, DType: tensor.F16}
	e, err := New(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if s, err = e.NewSession(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for i := 0; i < len(x); i += 64 {
		out, err := s.Block(x[i : i+64])
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, slices.Clone(out))
	}
	s.Reset()
	return opt, s, want
}

// TestRowPanics: a panic in row leaves the session behind the row that it was told of, with no step under way.
func TestRowPanics(t *testing.T) {
	x := Activations(32*64, 3)
	for _, launches := range []int{0, 120} {
		for _, stop := range []int{0, 1, 5, 30} {
			opt, s, want := smallBlock(t, launches, x)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				_ = s.BlockAll(t.Context(), x, func(i int, _ []float32) error {
					if i == stop {
						panic("row")
					}
					return nil
				})
			}()
			if s.Pos() != stop+1 || s.flying != nil {
				t.Errorf("%d launches, panic in %d: position %d, a step under way: %v", launches, stop, s.Pos(), s.flying != nil)
			}
			if out, err := s.Block(x[(stop+1)*64 : (stop+2)*64]); err != nil || !slices.Equal(out, want[stop+1]) {
				t.Errorf("%d launches, behind a panic in %d: other results, %v", launches, stop, err)
			}
			if !opt.Device.Mutex().TryLock() {
				t.Fatal("the turn is not given back")
			}
			opt.Device.Mutex().Unlock()
		}
	}
}

// TestRowUsesSession: a row that uses or closes the session whose steps it is told of ends the sequence.
func TestRowUsesSession(t *testing.T) {
	x := Activations(32*64, 3)
	for _, launches := range []int{0, 120} {
		for want, use := range map[string]func(s *Session) error{
			"the session is closed": func(s *Session) error { return s.Close() },
			"the session was used": func(s *Session) error {
				s.Reset()
				_, err := s.Block(x[:64])
				return err
			},
		} {
			_, s, _ := smallBlock(t, launches, x)
			rows := 0
			err := s.BlockAll(t.Context(), x[:20*64], func(i int, _ []float32) error {
				rows++
				if i == 3 {
					return use(s)
				}
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), want) || rows != 4 {
				t.Errorf("%d launches: after %d rows %v, want %q", launches, rows, err, want)
			}
		}
	}
}

// TestProgressDecodes: who is told of loading may use a session of the same device.
func TestProgressDecodes(t *testing.T) {
	x := Activations(64, 3)
	opt, s, want := smallBlock(t, 0, x)
	told, done := 0, make(chan error, 1)
	opt.Progress = func(int64, int64) {
		told++
		s.Reset()
		if out, err := s.Block(x); err != nil || !slices.Equal(out, want[0]) {
			t.Errorf("while loading: other results, %v", err)
		}
	}
	go func() {
		e, err := New(context.Background(), opt)
		if err == nil {
			err = e.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil || told == 0 {
			t.Errorf("told %d times, %v", told, err)
		}
	case <-time.After(time.Minute):
		t.Fatal("loading and the session wait for each other")
	}
}

// TestPromptFails: where a step of a prompt fails, the session is behind those before it,
// whatever was submitted behind it.
func TestPromptFails(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	dev := &chaining{Device: newCPU(t, 1)}
	e, err := New(t.Context(), Options{Model: file, Device: dev, Context: 32, Chunk: 4,
		Set: map[string]string{"L": "1", "D": "64", "H": "4", "F": "96", "V": "100"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := newSession(t, e)
	for chunk := range 3 {
		s.Reset()
		dev.fail = dev.begun + 1 + chunk
		if _, err := s.Prefill(t.Context(), make([]int32, 12)); err == nil || s.Pos() != 4*chunk {
			t.Errorf("step %d of the prompt fails: %v, position %d", chunk, err, s.Pos())
		}
	}
}

// TestOwnKeys: an attention without a cache computes a step of all rows, and says why there is none behind it.
func TestOwnKeys(t *testing.T) {
	opt := Options{Model: modelFile(t, "seen.yaml", `block: seen
in:
  x:   float[S, D]
  pos: i32[S]
params: {D: 64, H: 4, Dh: D/H}
names: {hf: "l.$i.*"}
weights:
  w: {shape: [D, D], hf: w}
body:
  q: linear(x, w) as [S, H, Dh]
  y: attention(q, q, q, pos, both=true) as [S, D]
out: y
`), Device: newCPU(t, 1), Context: 32}
	s := newSession(t, newEngine(t, opt))
	x := Activations(9*64, 3)
	for range 2 {
		if out, err := s.Block(x); err != nil || len(out) != len(x) {
			t.Fatalf("%d values of %d, %v", len(out), len(x), err)
		}
		const want = "seen: the attention y.attention reads the keys of its own step"
		if _, err := s.Block(x[:64]); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("a step behind it: %v", err)
		}
		if s.Pos() != 9 {
			t.Errorf("behind what was refused the session is at %d", s.Pos())
		}
		s.Reset()
	}
	if _, err := Check(t.Context(), CheckOptions{Options: opt}); err == nil || !strings.Contains(err.Error(), "own step") {
		t.Errorf("check: %v", err)
	}
}
