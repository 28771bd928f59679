// Package backends is the contract between the engine and the devices that run
// its programs. It does not grow with operators: a device has one table of
// kernels, and says of each node whether it has one.
package backends

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Use says what a buffer is for, so that a device can place it.
type Use uint8

// The uses of a buffer.
const (
	Weights Use = iota // written once, read by every step
	States             // caches: survive from step to step
	Arena              // results inside a step
	Step               // what changes per step: tokens, positions; and what is read back
)

func (u Use) String() string { return [...]string{"weights", "states", "arena", "step"}[u] }

// Buffer is memory of a device. Bytes are read and written by a Stream.
type Buffer interface {
	Size() int // bytes
	Free() error
}

// Info describes a device.
type Info struct {
	Backend string // "cpu", "ref"
	Name    string // the processor's or card's own name
	Level   string // instruction set or architecture: "avx512", "gfx942"
	Driver  string // driver and compiler with their versions, "" where there is none
	Threads int
	Float   tensor.Type // element type of activations
	Align   int         // of every operand's offset, bytes
	Running
	// Fusions names the fused operators that the device wants, in the order
	// in which they should be tried.
	Fusions []string
	// Memory is what the device may use, bytes; 0 where unknown.
	Memory int
	Roofs
}

// Running is how a device runs programs.
type Running struct {
	// Queued says that Submit returns before the step has run, and that another
	// executable may be submitted behind it: they run in order.
	Queued bool
	// Picks is the largest k for which the device's topk finds the k largest of a
	// vocabulary's logits sooner than it sends all of them to the host; 0: never. A NaN
	// comes before all numbers there.
	Picks int
	// Window is by how many places the device may move a launch of a program that it
	// captures, to run it together with others: the memory of results is not used anew
	// within it.
	Window int
	// Chain is how many launches a program of several steps whose inputs are known may have, for
	// the device to run it sooner than programs of one step each; 0: it does not. Steps of which each
	// waits for the token that the one before chooses gain more, and may be more launches.
	Chain int
}

// Roofs are a device's: modelled from its attributes, or measured; 0 where unknown.
type Roofs struct{ ReadGBs, GFlops float64 }

// Device runs programs. Its methods, and those of all that it gives, are called by one goroutine
// at a time: sessions hold the device's Mutex, and so does who else shares it between goroutines.
type Device interface {
	// Mutex is the device's, always the same one. It may be called at any time.
	Mutex() *FairMutex
	Info() Info
	// Alloc gives zeroed memory.
	Alloc(bytes int, use Use) (Buffer, error)
	// Kernel chooses the kernel of a node, or says by *Unsupported why there is none.
	Kernel(n *graph.Node) (Kernel, error)
	// Stream runs launches one by one: debugging, benchmarks, check.
	Stream() (Stream, error)
	// Capture prepares a program for replay. It keeps the program's buffers.
	Capture(*Program) (Executable, error)
	Close() error
}

// Eager is a device whose captured programs share work between launches: a norm that
// the products behind it compute, a rounded copy of activations that several read. Its
// eager mode therefore takes a whole program.
type Eager interface {
	// Eager gives what Capture gives, with the same plan, but Submit runs it kernel by
	// kernel: each is recorded, started and waited for by itself. Results are the same
	// to the bit, and an error names the kernel. It has no profile.
	Eager(*Program) (Executable, error)
}

// ErrEager is what executables of Eager answer who asks for a profile.
var ErrEager = errors.New("a step that runs eagerly has no profile; capture it")

// Precompiler is a device that compiles kernels when a program is captured, and can do so before, beside other work.
type Precompiler interface {
	// Compiled is how many programs this device compiled, as they were in no cache.
	Compiled() int
	// Precompile begins to compile what the programs need that capture captures on the device it is given, which runs
	// nothing, has memory of no content and the paths that are on now. Captures on this device wait for what is under
	// way, and find what was compiled. The channel is closed when capture has returned. No kernel is begun when ctx has
	// ended; one that cannot be compiled is told by the capture that needs it.
	Precompile(ctx context.Context, capture func(Device)) (<-chan struct{}, error)
}

// HostMemory is a device whose memory is the host's, which others take from too.
type HostMemory interface {
	// FreeMemory is what may be taken yet without the process being killed, bytes, and what bounds it; negative
	// where unknown.
	FreeMemory() (bytes int64, by string)
}

// Worker is a device that takes memory for launches beside the buffers that it is given.
type Worker interface {
	// Working is how much of it nodes take at most.
	Working(nodes []*graph.Node) int64
}

// NoDevice says that there is no device of a kind to open, and why. Programs exit with code 3.
type NoDevice struct{ Kind, Reason string }

func (e *NoDevice) Error() string { return "no " + e.Kind + " device: " + e.Reason }

// OutOfMemory says that something does not fit a device, or that its driver refused it. Programs exit with code 6.
type OutOfMemory struct {
	Need, Have int64
	What       string // does not fit
	By         string // what bounds Have, "" for the device itself
	Try        string // what would help; "": smaller contexts and types
	Err        error  // the driver's, of Need bytes; nil where it was not asked
}

func (o *OutOfMemory) Unwrap() error { return o.Err }

func (o *OutOfMemory) Error() string {
	if o.Err != nil {
		return fmt.Sprintf("out of device memory: %d bytes of %s: %v", o.Need, o.What, o.Err)
	}
	by := ""
	if o.By != "" {
		by = " (" + o.By + ")"
	}
	try := o.Try
	if try == "" {
		try = "a smaller --context, --kv f16 or a smaller --dtype"
	}
	return fmt.Sprintf("out of memory: %s need %.2f GB, %.2f GB may be used%s: %.2f GB are missing; try %s",
		o.What, float64(o.Need)/1e9, float64(o.Have)/1e9, by, float64(o.Need-o.Have)/1e9, try)
}

// Mapper is a device that can use host memory as it is, such as a mapped file.
type Mapper interface {
	Map(data []byte) (Buffer, error)
}

// Kernel is the code chosen for a node. It may be shared by equal nodes.
type Kernel interface {
	// Name names the code: "linear.f16.avx512".
	Name() string
	// Packing is the layout in which the kernel wants weight operand arg; nil: as stored.
	Packing(arg int) *Packing
	// Traits are what else is known of the kernel for this node.
	Traits() Traits
}

// Traits are what a kernel that was chosen for a node takes and costs, and why it was chosen.
type Traits struct {
	// Scratch is the arena memory that a launch needs beside its results, bytes.
	Scratch int
	// Tolerance is the relative L2 error that results may have because the device rounds activations of the node
	// (ops.Rounding); 0: its arithmetic is as exact as f32 is.
	Tolerance float64
	// Why says in a sentence what about the node made this the kernel: "one row: a wave reads pairs of rows of w".
	Why string
}

// Packing is a layout of weights. Two kernels with the same ID for a weight share it.
type Packing struct {
	ID   string // names layout and version; part of the key of the cache on disk
	Size func(t tensor.Type, shape tensor.Shape) int
	// Pack packs rows [from, to) of a dense tensor; ranges start at multiples of Unit.
	Pack func(dst, src []byte, t tensor.Type, shape tensor.Shape, from, to int) error
	Unit int
}

// Operand is where a launch finds a tensor: rows of dimension 0 lie Stride
// bytes apart, each row is dense. A missing optional operand has no Buffer.
type Operand struct {
	Buffer  Buffer
	Offset  int // bytes
	Stride  int // bytes from one index of dimension 0 to the next
	Type    tensor.Type
	Shape   tensor.Shape
	Packing string // ID of the layout, "" as stored
}

// RowElems is the number of elements in a row: all dimensions but the first.
func (o *Operand) RowElems() int {
	if len(o.Shape) == 0 {
		return 1
	}
	return o.Shape[1:].Elems()
}

// Rows is the size of dimension 0, 1 for a scalar.
func (o *Operand) Rows() int {
	if len(o.Shape) == 0 {
		return 1
	}
	return o.Shape[0]
}

// Dense says whether rows follow each other without gaps.
func (o *Operand) Dense() bool {
	return o.Rows() <= 1 || o.Stride == o.Type.RowBytes(o.RowElems())
}

// Launch is one execution of a kernel. For an Update, Out[0] is In[0].
type Launch struct {
	Node    *graph.Node
	Kernel  Kernel
	In, Out []Operand
	Scratch Operand // Traits.Scratch bytes, as U8; no Buffer where none are needed
}

// Named is an operand by its name in the operator's signature, nil where the node has none of that name or leaves it
// out: b is a product's bias, whatever else the product has.
func (l *Launch) Named(name string) *Operand {
	for i := range l.In {
		if l.In[i].Buffer != nil && l.Node.Op.Sig.In[i].Name == name {
			return &l.In[i]
		}
	}
	return nil
}

// Program is a step: launches in order. It has no arguments; what changes from
// step to step lies in Step buffers that the kernels read.
type Program struct {
	Name     string
	Launches []Launch
	// Steps says that the launches are those of so many steps of equal length, of which
	// each begins when the one before it has ended; 0 means one.
	Steps int
}

// Stream runs launches in order, each to its end.
type Stream interface {
	Launch(*Launch) error
	Write(dst Buffer, offset int, src []byte) error
	Read(src Buffer, offset int, dst []byte) error
	Close() error
}

// Executable replays a captured program. Submit and Wait allocate nothing.
type Executable interface {
	Submit() error
	Wait() error
	// Profile runs the program once and times each launch.
	Profile() ([]time.Duration, error)
	Close() error
}

// Noter is an Executable that may have something to say.
type Noter interface {
	// Note says in a sentence what goes less well than it should; empty: nothing does.
	Note() string
}

// Unsupported says that a device has no kernel for a node, and why.
type Unsupported struct {
	Backend string
	Node    string
	Op      string
	Reason  string
}

func (e *Unsupported) Error() string {
	return fmt.Sprintf("%s: the %s backend has no kernel for %s: %s", e.Node, e.Backend, e.Op, e.Reason)
}

// Unsupportedf makes an *Unsupported for a node.
func Unsupportedf(backend string, n *graph.Node, format string, args ...any) error {
	return &Unsupported{backend, n.Name, n.Op.Name, fmt.Sprintf(format, args...)}
}
