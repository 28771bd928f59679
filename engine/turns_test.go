package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
)

// shared is a device that runs steps behind its caller's back, and counts calls that somebody
// makes who does not have the turn, and those beside others.
type shared struct {
	backends.Device
	inside   atomic.Int32
	unasked  atomic.Int32
	beside   atomic.Int32
	together atomic.Int32 // most sessions that had steps under way
	flying   map[backends.Buffer]int
}

func newShared(t *testing.T) *shared {
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return &shared{Device: dev, flying: map[backends.Buffer]int{}}
}

// in notes a call, whose end is out.
func (d *shared) in() (out func()) {
	if turn := d.Mutex(); turn.TryLock() {
		turn.Unlock()
		d.unasked.Add(1)
	}
	if d.inside.Add(1) > 1 {
		d.beside.Add(1)
	}
	return func() { d.inside.Add(-1) }
}

func (d *shared) Info() backends.Info {
	defer d.in()()
	info := d.Device.Info()
	info.Queued, info.Picks = true, 0
	return info
}

func (d *shared) Alloc(bytes int, use backends.Use) (backends.Buffer, error) {
	defer d.in()()
	return d.Device.Alloc(bytes, use)
}

func (d *shared) Stream() (backends.Stream, error) {
	defer d.in()()
	s, err := d.Device.Stream()
	return &sharedStream{s, d}, err
}

func (d *shared) Capture(p *backends.Program) (backends.Executable, error) {
	defer d.in()()
	e, err := d.Device.Capture(p)
	return &sharedProgram{Executable: e, d: d, arena: p.Launches[0].Out[0].Buffer}, err
}

type sharedStream struct {
	backends.Stream
	d *shared
}

func (s *sharedStream) Write(b backends.Buffer, offset int, src []byte) error {
	defer s.d.in()()
	return s.Stream.Write(b, offset, src)
}

func (s *sharedStream) Read(b backends.Buffer, offset int, dst []byte) error {
	defer s.d.in()()
	return s.Stream.Read(b, offset, dst)
}

type sharedProgram struct {
	backends.Executable
	d     *shared
	arena backends.Buffer
}

func (e *sharedProgram) Submit() error {
	defer e.d.in()()
	e.d.flying[e.arena]++
	e.d.together.Store(max(e.d.together.Load(), int32(len(e.d.flying))))
	return e.Executable.Submit()
}

func (e *sharedProgram) Wait() error {
	defer e.d.in()()
	if e.d.flying[e.arena]--; e.d.flying[e.arena] == 0 {
		delete(e.d.flying, e.arena)
	}
	return e.Executable.Wait()
}

func (e *sharedProgram) Close() error {
	defer e.d.in()()
	return e.Executable.Close()
}

// Sessions that goroutines use at the same time give what one alone gives.
func TestSessionsAtOnce(t *testing.T) {
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	testkit.Concurrent(t, dev, 10)
}

// Whoever calls a device has its turn, and gives it back when the device has nothing to do.
func TestTurnIsHeld(t *testing.T) {
	dev := newShared(t)
	testkit.Concurrent(t, dev, 5)
	if n := dev.unasked.Load(); n > 0 {
		t.Errorf("%d calls of who did not have the turn", n)
	}
	if n := dev.beside.Load(); n > 0 {
		t.Errorf("%d calls beside others", n)
	}
	if !dev.Mutex().TryLock() {
		t.Error("the turn was not given back")
	}
}

// Another session, whose steps are never under way with those of the prompt, gets its turn in the
// middle of a long prompt, and what is called back may use one itself.
func TestTurnsInAPrompt(t *testing.T) {
	dev := newShared(t)
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	e, err := engine.New(ctx, engine.Options{Model: file, Device: dev, Context: 512, Chunk: 2,
		Set: map[string]string{"L": "2", "D": "64", "H": "4", "F": "96", "V": "500"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	long, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	other, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var wg sync.WaitGroup
	var between atomic.Int32
	done := make(chan struct{})
	wg.Go(func() {
		for {
			if other.Left() == 0 {
				other.Reset()
			}
			if _, err := other.Decode(1); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-done:
				return
			default:
				between.Add(1)
			}
		}
	})
	for between.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	before := between.Load()
	_, err = long.Prefill(ctx, make([]int32, 500))
	n := between.Load() - before
	close(done)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if n := dev.together.Load(); n != 1 {
		t.Errorf("steps of %d sessions were under way at a time", n)
	}
	if n < 10 { // one without turns between chunks
		t.Errorf("another session made %d steps beside the 250 of a prompt", n)
	}
	other.Reset()
	tokens := 0
	long.Reset()
	_, err = long.Generate(ctx, []int32{1}, engine.Generation{Max: 3, Emit: func(token int32) bool {
		_, err := other.Decode(token)
		tokens++
		return err == nil
	}})
	if err != nil || tokens != 3 {
		t.Errorf("%d tokens: %v", tokens, err)
	}
}
