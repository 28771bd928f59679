// Package fakedev is a processor some of whose kernels have variants that tests can
// tell apart: by how long they say they take, and by what goes wrong in them.
package fakedev

import (
	"fmt"
	"os"
	"slices"
	"time"

	"greta/backends"
	"greta/backends/cpu"
	"greta/graph"
)

// Device has variants of linear, which say that they took ten times as long as they
// did. A variant's name says what it does: "tenth" and "twice" say that they took a tenth
// of that and twice that, "wrong" writes zeros, "hang" sleeps, "crash" ends the process,
// anything else is as the processor is. So none says that it was faster than the processor can be.
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
	own, e := *p, &executable{factor: map[int]float64{}}
	own.Launches = slices.Clone(p.Launches)
	for i := range own.Launches {
		var v string
		own.Launches[i], v = plain(&p.Launches[i])
		act(v)
		switch v {
		case "": // no product
		case "tenth":
			e.factor[i] = 1
		case "twice":
			e.factor[i] = 20
		default:
			e.factor[i] = 10
		}
	}
	var err error
	e.Executable, err = d.Device.Capture(&own)
	return e, err
}

type executable struct {
	backends.Executable
	factor map[int]float64
}

func (e *executable) Profile() ([]time.Duration, error) {
	times, err := e.Executable.Profile()
	for i := range times {
		if f, ok := e.factor[i]; ok {
			times[i] = time.Duration(float64(times[i]) * f)
		}
	}
	return times, err
}
