//go:build unix

package health

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/internal/child"
)

// spoiled is the reference with memory that goes wrong.
type spoiled struct {
	backends.Device
	how string
}

type spoiledStream struct {
	backends.Stream
	how string
}

func (d spoiled) Stream() (backends.Stream, error) {
	s, err := d.Device.Stream()
	return spoiledStream{s, d.how}, err
}

func (s spoiledStream) Write(b backends.Buffer, offset int, src []byte) error {
	if err := s.Stream.Write(b, offset, src); err != nil || len(src) < 4096 {
		return err
	}
	switch s.how {
	case "tail": // the last bytes of large writes are lost
		return s.Stream.Write(b, offset+len(src)-4, make([]byte, 4))
	case "beyond":
		if offset > 0 {
			return s.Stream.Write(b, offset+len(src), []byte{1})
		}
	}
	return nil
}

func TestSmokeFindsFaults(t *testing.T) {
	for _, c := range []struct{ how, want string }{{"", ""}, {"tail", "was written"}, {"beyond", "byte 4096 is 0x01"}} {
		var r Run
		Smoke(spoiled{ref.New(), c.how}, Fill, &r, func(string) {})
		if ok := len(r.Problems) == 0; ok != (c.want == "") || !ok &&
			!strings.Contains(strings.Join(r.Problems, "\n"), c.want) {
			t.Errorf("%q: %q", c.how, r.Problems)
		}
	}
	// With the fast path off the careful profile is clean; the path is wrong.
	d := newDevice("1.0")
	d.mode = "wrong"
	var r Run
	if Smoke(d, UltraSafe, &r, func(string) {}); len(r.Problems) > 0 || r.Checks < 20 || d.on["matrix"] {
		t.Errorf("ultrasafe: %+v, matrix on: %v", r, d.on["matrix"])
	}
	d.on["matrix"], r = true, Run{}
	if Smoke(d, Default, &r, func(string) {}); len(r.Problems) == 0 {
		t.Error("default: the fault of a path was not seen")
	}
}

// smoke is the child's side, which goes wrong as mode says.
func smoke(mode string) error {
	n := 0
	if mode == "early" {
		os.Exit(9)
	}
	return ServeSmoke(os.Stdout, UltraSafe, 3, func() (*Opened, error) {
		o := &Opened{Device: ref.New(), Validation: "on", Messages: func() int {
			return 0
		}, First: func() []string { return nil }}
		switch n++; {
		case mode == "none":
			return nil, errors.New("no card")
		case mode == "lost" && n == 2:
			return nil, errors.New("the card went away")
		case mode == "crash" && n == 2:
			panic("driver")
		case mode == "hang" && n == 2:
			time.Sleep(time.Minute)
		case mode == "messages" && n == 3:
			o.Messages, o.First = func() int { return 7 }, func() []string { return []string{"VUID-1: bad"} }
		}
		return o, nil
	})
}

func TestWatch(t *testing.T) {
	for _, c := range []struct {
		mode, reason string
		runs         int
	}{
		{"well", "", 3}, {"lost", "1 of 3 runs were not clean", 3},
		{"crash", "run 2: opening the device: the child process crashed", 1},
		{"hang", "run 2: opening the device: the child process hung", 1}, {"messages", "1 of 3", 3},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			limit := time.Minute
			if c.mode == "hang" {
				limit = 5 * time.Second
			}
			each := 0
			r, err := Watch(context.Background(), child.Command{os.Args[0], "smoke", c.mode, ""}, "ref", UltraSafe, 3, limit,
				func(Run) {
					each++
				})
			if err != nil || (r.Status == "OK") != (c.reason == "") || !strings.HasPrefix(r.Reason, c.reason) ||
				len(r.Runs) != c.runs || each != c.runs || r.Validation != "on" || r.Device == "" {
				t.Errorf("%v, %+v", err, r)
			}
			if c.mode == "messages" && (r.Messages != 7 || r.Runs[2].OK()) {
				t.Errorf("%d messages", r.Messages)
			}
		})
	}
	if r, err := Watch(context.Background(), child.Command{os.Args[0], "smoke", "early", ""}, "ref", UltraSafe, 3,
		time.Minute, func(Run) {}); err != nil || !strings.HasPrefix(r.Reason,
		"before the device was opened: the child process ended") {
		t.Errorf("an end before anything was done: %v, %+v", err, r)
	}
	if _, err := Watch(context.Background(), child.Command{os.Args[0], "smoke", "none", ""}, "ref", UltraSafe, 3,
		time.Minute, func(Run) {}); !errors.As(err, new(*NoDevice)) || err.Error() != "no card" {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := Watch(ctx, child.Command{os.Args[0], "smoke", "hang", ""}, "ref", UltraSafe, 3, time.Minute,
		func(Run) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
