// Generation by programs of several steps, compared with that by single steps.

package testkit

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// SingleStep is a device that takes programs of one step only.
type SingleStep struct{ backends.Device }

// Info is the device's but for that.
func (s SingleStep) Info() backends.Info {
	i := s.Device.Info()
	i.Chain = 0
	return i
}

// counted counts the programs of several steps that are submitted.
type counted struct {
	backends.Device
	several *int
}

func (c counted) Capture(p *backends.Program) (backends.Executable, error) {
	x, err := c.Device.Capture(p)
	if err == nil && p.Steps > 1 {
		x = program{x, c.several}
	}
	return x, err
}

type program struct {
	backends.Executable
	submits *int
}

func (p program) Submit() error {
	*p.submits++
	return p.Executable.Submit()
}

// most is the context of the sessions.
const most = 96

// result is all that can be seen of a generation and of what follows it.
type result struct {
	tokens, emitted []int32
	stop            engine.Stop
	pos             int
	logits          []float32 // of one more token
	again           []int32   // that a second generation gives
	others          []int32   // that another session gave meanwhile
	err             string
}

func newSession(t *testing.T, e *engine.Engine) *engine.Session {
	t.Helper()
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Prepare(5, &engine.Sampling{}, true); err != nil {
		t.Fatal(err)
	}
	if s.Pos() != 0 {
		t.Errorf("position %d when nothing was computed", s.Pos())
	}
	return s
}

// Multistep has a model with weights of a type generate on a device, step by step and several steps
// at once, to the end of the limit, of the context and of the text, with ends from outside, and
// compares all tokens, what the session computes next, and where it stands; in brief fewer of
// these. The device takes programs of several steps, and chooses tokens.
// It is in one piece: every way is compared with the same first one.
func Multistep(t *testing.T, dev backends.Device, dtype tensor.Type, set map[string]string, brief bool) {
	t.Helper()
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	submitted := 0
	var sessions [2][2]*engine.Session
	for i, d := range []backends.Device{SingleStep{dev}, counted{dev, &submitted}} {
		e, err := engine.New(t.Context(), engine.Options{
			Model: file, Device: d, Context: most, Chunk: 16, DType: dtype, KV: tensor.F16, Seed: 3, Set: set,
			MultistepTime: time.Hour, // whatever else the machine does while sessions time their first steps
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		for n := range sessions[i] {
			sessions[i][n] = newSession(t, e)
		}
	}
	prompt := []int32{3, 1, 4, 1, 5}
	first, err := sessions[0][0].Generate(t.Context(), prompt, engine.Generation{Max: 60})
	if err != nil {
		t.Fatal(err)
	}
	text := first.Tokens
	if n := len(slices.Compact(slices.Sorted(slices.Values(text)))); n < 8 {
		t.Fatalf("a text of %d different tokens says little: %v", n, text)
	}
	both := func(name string, run func(s, other *engine.Session, r *result) (*engine.Generated, error)) {
		t.Helper()
		var got [2]result
		for i, pair := range sessions {
			s, r := pair[0], &got[i]
			s.Reset()
			pair[1].Reset()
			g, err := run(s, pair[1], r)
			r.err = fmt.Sprint(err)
			r.tokens, r.stop, r.pos = g.Tokens, g.Stop, s.Pos()
			if len(g.Steps) != max(0, len(g.Tokens)-1) || len(g.Submit) != len(g.Steps) || len(g.Host) != len(g.Steps) {
				t.Errorf("%s: %d tokens with the times of %d, %d and %d steps", name, len(g.Tokens), len(g.Steps), len(g.Submit),
					len(g.Host))
			}
			if s.Left() < 12 {
				continue
			}
			out, err := s.Decode(7)
			if err != nil {
				t.Fatalf("%s: one more token: %v", name, err)
			}
			r.logits = slices.Clone(out)
			g, err = s.Generate(t.Context(), []int32{9}, engine.Generation{Max: 11})
			if err != nil {
				t.Fatalf("%s: once more: %v", name, err)
			}
			r.again = g.Tokens
		}
		if a, b := got[0], got[1]; !slices.Equal(a.tokens, b.tokens) || !slices.Equal(a.emitted, b.emitted) ||
			a.stop != b.stop || a.pos != b.pos ||
			!slices.Equal(a.logits, b.logits) || !slices.Equal(a.again, b.again) || !slices.Equal(a.others, b.others) ||
			a.err != b.err {
			a.logits, b.logits = a.logits[:min(3, len(a.logits))], b.logits[:min(3, len(b.logits))]
			t.Errorf("%s: step by step\n%+v, several at once\n%+v", name, a, b)
		}
	}
	ctx := t.Context()
	generate := func(ctx context.Context, s *engine.Session, r *result, opt engine.Generation,
		emit func(n int) bool) (*engine.Generated, error) {
		opt.Emit = func(token int32) bool {
			r.emitted = append(r.emitted, token)
			return emit == nil || emit(len(r.emitted))
		}
		return s.Generate(ctx, prompt, opt)
	}
	lengths, ends := []int{1, 2, 3, 8, 9, 10, 11, 12, 19, 34, 60}, []int{1, 4, 13, 20, 27}
	if brief {
		lengths, ends = []int{2, 10, 19}, []int{4, 13}
	}
	for _, n := range lengths {
		both(fmt.Sprint(n, " tokens"), func(s, _ *engine.Session, r *result) (*engine.Generated, error) {
			return generate(ctx, s, r, engine.Generation{Max: n}, nil)
		})
	}
	both("as many as fit", func(s, _ *engine.Session, r *result) (*engine.Generated, error) {
		return generate(ctx, s, r, engine.Generation{}, nil)
	})
	both("the best of one", func(s, _ *engine.Session, r *result) (*engine.Generated, error) {
		return generate(ctx, s, r, engine.Generation{Max: 40, Sampling: engine.Sampling{Temperature: 1, TopK: 1}}, nil)
	})
	for _, at := range ends {
		both(fmt.Sprint("an end token at ", at), func(s, _ *engine.Session, r *result) (*engine.Generated, error) {
			return generate(ctx, s, r, engine.Generation{Max: 60, End: func(token int32) bool { return token == text[at] }}, nil)
		})
		both(fmt.Sprint("stopped at ", at), func(s, _ *engine.Session, r *result) (*engine.Generated, error) {
			return generate(ctx, s, r, engine.Generation{Max: 60}, func(n int) bool { return n < at })
		})
		both(fmt.Sprint("cancelled at ", at), func(s, _ *engine.Session, r *result) (*engine.Generated, error) {
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			return generate(inner, s, r, engine.Generation{Max: 60}, func(n int) bool {
				if n == at {
					cancel()
				}
				return true
			})
		})
		both(fmt.Sprint("the session itself is used at ", at), func(s, _ *engine.Session, r *result) (*engine.Generated,
			error) {
			var failed error
			g, err := generate(ctx, s, r, engine.Generation{Max: 40}, func(n int) bool {
				switch n {
				case at:
					_, failed = s.Decode(11)
				case at + 2:
					failed = s.Rewind(s.Pos() - 2)
				case at + 5: // at the same position as before
					if failed = s.Rewind(s.Pos() - 1); failed == nil {
						_, failed = s.Decode(17)
					}
				}
				return failed == nil
			})
			return g, errlist.Join(err, failed)
		})
	}
	both("another session in between", func(s, other *engine.Session, r *result) (*engine.Generated, error) {
		var failed error
		g, err := generate(ctx, s, r, engine.Generation{Max: 50}, func(n int) bool {
			if n%10 == 0 {
				var g *engine.Generated
				other.Reset()
				g, failed = other.Generate(ctx, prompt[:3], engine.Generation{Max: 20})
				r.others = append(r.others, g.Tokens...)
			} else if n%3 == 0 {
				_, failed = other.Decode(int32(n))
			}
			return failed == nil
		})
		return g, errlist.Join(err, failed)
	})
	s, most, last := sessions[1][0], 0, 0
	s.Reset()
	if _, err := s.Generate(ctx, prompt, engine.Generation{Max: 30, Emit: func(int32) bool {
		n := s.Ready()
		if last > 0 && n != last-1 {
			t.Errorf("%d tokens are ready behind one with %d", n, last)
		}
		most, last = max(most, n), n
		return true
	}}); err != nil || most == 0 || last != 0 || s.Ready() != 0 {
		t.Errorf("%d tokens at most are ready, %d in the end, %d behind it: %v", most, last, s.Ready(), err)
	}
	if submitted == 0 {
		t.Error("no program of several steps was submitted")
	}
}

// DecodeTime is the time of a token of n that are chosen on the device behind a prompt, in a
// session that has been prepared for it by generating them once.
func DecodeTime(t testing.TB, s *engine.Session, prompt []int32, n int) time.Duration {
	t.Helper()
	var all time.Duration
	for range 2 {
		s.Reset()
		g, err := s.Generate(t.Context(), prompt, engine.Generation{Max: n + 1})
		if err != nil {
			t.Fatal(err)
		}
		all = 0
		for _, d := range g.Steps {
			all += d
		}
	}
	return all / time.Duration(n)
}
