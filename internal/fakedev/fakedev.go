// Package fakedev is a processor some of whose kernels have variants that tests can
// tell apart: by how long they say they take, and by what goes wrong in them.
package fakedev

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/graph"
)

// Device has variants of linear, which say that they took as long as their work takes at
// a given pace, whatever else the machine does meanwhile: 5 ns an operation. A variant's
// name says what it does: "tenth" and "twice" say that they took a tenth of that and twice
// that, "wrong" writes zeros, "hang" sleeps, "crash" ends the process, anything else is
// as the processor is. None says that it was faster than a processor can be.
type Device struct {
	*cpu.Device
	list   []string
	choice func(*graph.Node) string
	hash   string
}

// Open opens the processor with variants; hash is that of their code.
func Open(threads int, variants []string, hash string) (*Device, error) {
	d, err := cpu.New(threads)
	if err != nil {
		return nil, err
	}
	return &Device{Device: d, list: variants, hash: hash}, nil
}

// CodeHash is what Open was told, with the variant's name.
func (d *Device) CodeHash(n *graph.Node, variant string) string { return d.hash + "-" + variant }

// Variants lists those of a product.
func (d *Device) Variants(n *graph.Node) []string {
	if n.Op.Name != "linear" {
		return nil
	}
	return d.list
}

// Choose sets what Kernel asks for.
func (d *Device) Choose(f func(*graph.Node) string) { d.choice = f }

// Kernel is the processor's, with the variant.
func (d *Device) Kernel(n *graph.Node) (backends.Kernel, error) {
	k, err := d.Device.Kernel(n)
	if err != nil || d.Variants(n) == nil {
		return k, err
	}
	v := ""
	if d.choice != nil {
		v = d.choice(n)
	}
	if v == "" {
		v = d.list[0]
	}
	if !slices.Contains(d.list, v) {
		return nil, fmt.Errorf("no variant %q, there are %q", v, d.list)
	}
	return &kernel{k, v}, nil
}

type kernel struct {
	backends.Kernel
	variant string
}

func (k *kernel) Name() string { return k.Kernel.Name() + "." + k.variant }

// plain gives the processor's launch, and the variant.
func plain(l *backends.Launch) (backends.Launch, string) {
	own := *l
	if k, ok := l.Kernel.(*kernel); ok {
		own.Kernel = k.Kernel
		return own, k.variant
	}
	return own, ""
}

// act does what is wrong with a variant.
func act(variant string) {
	switch variant {
	case "hang":
		time.Sleep(time.Hour)
	case "crash":
		fmt.Fprintln(os.Stderr, "fault in the kernel")
		os.Exit(3)
	}
}

// Stream runs launches as their variants do.
func (d *Device) Stream() (backends.Stream, error) {
	s, err := d.Device.Stream()
	return &stream{s}, err
}

type stream struct{ backends.Stream }

func (s *stream) Launch(l *backends.Launch) error {
	own, v := plain(l)
	act(v)
	if err := s.Stream.Launch(&own); err != nil || v != "wrong" {
		return err
	}
	o := own.Out[0]
	return s.Write(o.Buffer, o.Offset, make([]byte, o.Shape.Elems()*4))
}

// Capture prepares a program as its variants are.
func (d *Device) Capture(p *backends.Program) (backends.Executable, error) {
	own, e := *p, &executable{took: map[int]time.Duration{}}
	own.Launches = slices.Clone(p.Launches)
	for i := range own.Launches {
		var v string
		own.Launches[i], v = plain(&p.Launches[i])
		act(v)
		if v != "" {
			e.took[i] = claim(&own.Launches[i], v)
		}
	}
	var err error
	e.Executable, err = d.Device.Capture(&own)
	return e, err
}

// claim is what a product's variant says it took.
func claim(l *backends.Launch, variant string) time.Duration {
	x := l.In[0].Shape
	plain := 5 * time.Nanosecond * time.Duration(2*l.Out[0].Shape.Elems()*x[len(x)-1])
	switch variant {
	case "tenth":
		return plain / 10
	case "twice":
		return 2 * plain
	}
	return plain
}

type executable struct {
	backends.Executable
	took map[int]time.Duration
	runs int
}

// Profile runs the program; of the products' times successive runs differ by up to 1 %.
func (e *executable) Profile() ([]time.Duration, error) {
	times, err := e.Executable.Profile()
	e.runs++
	for i := range times {
		if d, ok := e.took[i]; ok {
			times[i] = d + d*time.Duration(e.runs*7%11)/1000
		}
	}
	return times, err
}
