package health

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// Profile is what a smoke run does.
type Profile string

// The profiles, the most careful first.
const (
	// Fill writes patterns to memory of every use and reads them back, between
	// guard bands, and runs the kernels that only move data.
	Fill Profile = "fill"
	// UltraSafe runs small products of padded sizes one by one, every fast path
	// off, nothing captured, and waits between them.
	UltraSafe Profile = "ultrasafe"
	// Default runs every operator, launched and replayed, then products and
	// attentions together as one captured program, with the paths that are decided on.
	Default Profile = "default"
)

// Profiles lists them.
func Profiles() []Profile { return []Profile{UltraSafe, Fill, Default} }

// ParseProfile reads a profile's name.
func ParseProfile(s string) (Profile, error) {
	if p := Profile(s); slices.Contains(Profiles(), p) {
		return p, nil
	}
	return "", fmt.Errorf("%q: ultrasafe, fill or default is expected", s)
}

// Run is a smoke run: a device opened, used and closed.
type Run struct {
	Run      int      `json:"run"` // from 1
	Checks   int      `json:"checks"`
	Skipped  int      `json:"skipped,omitempty"` // for which the device has no kernel
	MS       float64  `json:"ms"`
	Messages int      `json:"messages"` // of a validation layer
	Problems []string `json:"problems,omitempty"`
}

// OK says whether the run was clean.
func (r Run) OK() bool { return r.Messages == 0 && len(r.Problems) == 0 }

// mostProblems is how many of a run's problems are told.
const mostProblems = 20

func (r *Run) fail(format string, args ...any) {
	if len(r.Problems) < mostProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// pause is the wait between the launches of UltraSafe.
const pause = 2 * time.Millisecond

// Smoke does what a profile says on an open device and adds it to r. stage is
// told what is under way.
func Smoke(dev backends.Device, p Profile, r *Run, stage func(string)) {
	try := func(c optest.Case, check func(backends.Device, optest.Case) error) {
		stage(c.Name)
		err := check(dev, c)
		var lacks *backends.Unsupported
		switch {
		case errors.As(err, &lacks):
			r.Skipped++
			return
		case err != nil:
			r.fail("%s: %v", c.Name, err)
		}
		r.Checks++
	}
	switch p {
	case Fill:
		for _, use := range []backends.Use{backends.Weights, backends.States, backends.Arena, backends.Step} {
			for _, size := range []int{1, 3, 64, 255, 4096, 65537, 1<<20 + 13, 16 << 20} {
				stage(fmt.Sprintf("filling %d bytes of %s", size, use))
				if err := fill(dev, use, size); err != nil {
					r.fail("%d bytes of %s: %v", size, use, err)
				}
				r.Checks++
			}
		}
		for _, c := range optest.Cases() {
			if op, _, _ := strings.Cut(c.Name, "/"); slices.Contains([]string{"view", "split", "rows", "push"}, op) {
				try(c, optest.Check)
			}
		}
	case UltraSafe:
		d := backends.PathsOf(dev)
		for _, path := range d.Paths() {
			if err := d.SetPath(path.Name, false); err != nil {
				r.fail("%v", err)
			}
		}
		for _, c := range padded() {
			try(c, optest.Once)
			time.Sleep(pause)
		}
	case Default:
		seen := map[string]bool{}
		for _, c := range optest.Cases() {
			if op, _, _ := strings.Cut(c.Name, "/"); !seen[op] && !optest.Known(dev.Info().Backend, c.Name) {
				seen[op] = true
				try(c, optest.Check)
			}
		}
		var together []optest.Case
		most := 0.0
		for _, c := range trial() {
			n, err := c.Bare(dev.Info().Float)
			if err != nil {
				r.fail("%v", err)
				continue
			}
			k, err := dev.Kernel(n)
			if err != nil {
				r.Skipped++
				continue
			}
			together, most = append(together, c), max(most, k.Traits().Tolerance)
		}
		if err := optest.Together(dev, together, most, stage); err != nil {
			r.fail("in one program: %v", err)
		}
		r.Checks += len(together)
	}
}

// padded are small products whose sizes are multiples of every tile's.
func padded() []optest.Case {
	var all []optest.Case
	for _, t := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K} {
		for _, rows := range []int{1, 8, 64, 128} {
			all = append(all, optest.Case{Name: fmt.Sprintf("product %s %dx256x128", t, rows), Eq: "y: linear(x, w)",
				Args: fmt.Sprintf("x float[%d, 256]; w %s[128, 256]", rows, t), Rel: 5e-6, Abs: 5e-5})
		}
	}
	return all
}

// guardBytes lie before and behind what fill writes.
const guardBytes = 256

// fill writes patterns to the middle of a buffer, reads everything back each
// time, and last a piece of odd size at an odd place.
func fill(dev backends.Device, use backends.Use, size int) (err error) {
	s, err := dev.Stream()
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, s.Close()) }()
	b, err := dev.Alloc(size+2*guardBytes, use)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, b.Free()) }()
	image, now := make([]byte, size+2*guardBytes), make([]byte, size+2*guardBytes)
	same := func(what string) error {
		for i := range now {
			now[i] = 0x5a // what a read leaves out is seen
		}
		if err := s.Read(b, 0, now); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if bytes.Equal(now, image) {
			return nil
		}
		for i := range now {
			if now[i] != image[i] {
				return fmt.Errorf("%s: byte %d is %#02x, %#02x was written", what, i-guardBytes, now[i], image[i])
			}
		}
		return nil
	}
	if err := same("fresh memory, which must be zero"); err != nil {
		return err
	}
	for i := range image {
		image[i] = 0xc3
	}
	if err := s.Write(b, 0, image); err != nil {
		return err
	}
	middle := image[guardBytes : guardBytes+size]
	for _, p := range []struct {
		name string
		at   func(i int) byte
	}{
		{"zeros", func(int) byte { return 0 }},
		{"ones", func(int) byte { return 0xff }},
		{"0xaa", func(int) byte { return 0xaa }},
		{"0x55", func(int) byte { return 0x55 }},
		{"addresses", func(i int) byte { x := uint32(i) * 2654435761; return byte(x >> 24) }},
	} {
		for i := range middle {
			middle[i] = p.at(i)
		}
		if err := s.Write(b, guardBytes, middle); err != nil {
			return fmt.Errorf("pattern %s: %w", p.name, err)
		}
		if err := same("pattern " + p.name); err != nil {
			return err
		}
	}
	piece := middle[size/3 : size-size/3]
	for i := range piece {
		piece[i] ^= 0x99
	}
	if err := s.Write(b, guardBytes+size/3, piece); err != nil {
		return err
	}
	return same("a piece of odd size")
}

// Opened is a device for a smoke run.
type Opened struct {
	Device     backends.Device
	Paths      []Decision
	Validation string          // "on", or why messages are not counted
	Messages   func() int      // of the validation layer so far; nil: none are counted
	First      func() []string // the first of them
}

// event is a line of what a child that smokes writes.
type event struct {
	Stage      string     `json:"stage,omitempty"`
	Device     *device    `json:"device,omitempty"`
	Paths      []Decision `json:"paths,omitempty"`
	Validation string     `json:"validation,omitempty"`
	Run        *Run       `json:"run,omitempty"`
	NoDevice   string     `json:"no_device,omitempty"`
	Done       bool       `json:"done,omitempty"`
}

// ServeSmoke is the child's side of smoke runs: repeat times it opens a device,
// does what the profile says, closes it, and writes lines of JSON.
func ServeSmoke(w io.Writer, p Profile, repeat int, open func() (*Opened, error)) error {
	e := json.NewEncoder(w)
	for i := range repeat {
		r := Run{Run: i + 1}
		start := time.Now()
		e.Encode(event{Stage: fmt.Sprintf("run %d: opening the device", i+1)})
		o, err := open()
		if err != nil && i == 0 {
			return e.Encode(event{NoDevice: err.Error()})
		}
		if err != nil {
			r.fail("opening the device: %v", err)
		} else {
			if i == 0 {
				id := identity(o.Device.Info())
				e.Encode(event{Device: &id, Paths: o.Paths, Validation: o.Validation})
			}
			Smoke(o.Device, p, &r, func(s string) { e.Encode(event{Stage: fmt.Sprintf("run %d: %s", i+1, s)}) })
			e.Encode(event{Stage: fmt.Sprintf("run %d: closing the device", i+1)})
			if err := o.Device.Close(); err != nil {
				r.fail("closing the device: %v", err)
			}
			if o.Messages != nil {
				r.Messages = o.Messages()
				for _, m := range o.First() {
					r.fail("validation: %s", m)
				}
			}
		}
		r.MS = float64(time.Since(start).Microseconds()) / 1000
		if err := e.Encode(event{Run: &r}); err != nil {
			return err
		}
	}
	return e.Encode(event{Done: true})
}
