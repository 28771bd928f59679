package bridge

// Tensors between the two sides: in the frame's payload, or in memory that both have mapped.

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
)

// Tensor says where a tensor's bytes lie: dense rows, little-endian.
type Tensor struct {
	Type  string `json:"type"`  // f32, i32
	Shape []int  `json:"shape"` // rows first
	// Path names shared memory, which holds the tensor from byte Offset on; "": it is the frame's payload.
	Path   string `json:"path,omitempty"`
	Offset int    `json:"offset,omitempty"`
	// Lease is what the receiver gives back by `release` when it has mapped the memory; 0: nothing.
	Lease uint64 `json:"lease,omitempty"`
	// Handle is one that `attach` gave, instead of a path.
	Handle uint64 `json:"handle,omitempty"`
	// Device is memory of a GPU in which the tensor lies from byte Offset on, instead of all these.
	Device *backends.Shared `json:"device,omitempty"`
}

// elements is the product of the shape, or what is wrong with it.
func (t *Tensor) elements() (int, error) {
	n := 1
	for _, d := range t.Shape {
		if d < 0 || d > 0 && n > math.MaxInt32*64/d {
			return 0, fmt.Errorf("a tensor of shape %v: no such size can be", t.Shape)
		}
		n *= d
	}
	return n, nil
}

// sharedMinimum is from how many bytes on a result lies in shared memory: below, a copy costs less than a mapping.
const sharedMinimum = 128 << 10

// memory is a tensor that is received, until free is called.
type memory struct {
	data []byte
	free func()
}

// open finds a tensor's bytes.
func (s *server) open(t *Tensor, payload []byte, want string) (memory, error) {
	n, err := t.elements()
	if err != nil {
		return memory{}, usagef("%v", err)
	}
	if t.Type != want {
		return memory{}, usagef("a tensor of type %q, expected is %s", t.Type, want)
	}
	bytes := n * 4 // f32 and i32
	switch {
	case t.Device != nil:
		return memory{}, usagef("the tensor lies in memory of a GPU: run-session of a block takes that, with out")
	case t.Offset < 0 || t.Offset%4 != 0:
		return memory{}, usagef("a tensor from byte %d on: a multiple of 4 is expected", t.Offset)
	case t.Path != "" && t.Handle != 0:
		return memory{}, usagef("a tensor with a path and a handle: one of both is expected")
	case t.Handle != 0:
		s.mu.Lock()
		m := s.attached[t.Handle]
		if m != nil {
			m.users++
		}
		s.mu.Unlock()
		if m == nil {
			return memory{}, usagef("there is no attached memory %d", t.Handle)
		}
		if !within(t.Offset, bytes, len(m.data)) {
			s.unuse(m)
			return memory{}, usagef("%d bytes from byte %d on are more than the %d that are attached", bytes, t.Offset,
				len(m.data))
		}
		return memory{m.data[t.Offset : t.Offset+bytes : t.Offset+bytes], func() { s.unuse(m) }}, nil
	case t.Path != "":
		data, free, err := mapShared(t.Path, t.Offset+bytes)
		if err != nil {
			return memory{}, usagef("shared memory %s: %v", t.Path, err)
		}
		return memory{data[t.Offset : t.Offset+bytes : t.Offset+bytes], free}, nil
	}
	if !within(t.Offset, bytes, len(payload)) {
		return memory{}, usagef("a tensor of shape %v has %d bytes, the payload %d", t.Shape, bytes, len(payload))
	}
	return memory{payload[t.Offset : t.Offset+bytes : t.Offset+bytes], func() {}}, nil
}

func within(offset, n, size int) bool {
	return offset >= 0 && n >= 0 && offset <= size && n <= size-offset
}

// floats gives a tensor's numbers, which are valid until free is called.
func (m memory) floats() []float32 { return tensor.View[float32](m.data) }

// attachment is memory of the other side that stays mapped until it is detached.
type attachment struct {
	data  []byte
	free  func()
	users int  // requests that read it
	gone  bool // detached meanwhile
}

// unuse says that a request has read an attachment.
func (s *server) unuse(m *attachment) {
	s.mu.Lock()
	m.users--
	last := m.gone && m.users == 0
	s.mu.Unlock()
	if last {
		m.free()
	}
}

// detach forgets an attachment; its memory is unmapped when nobody reads it.
func (s *server) detach(handle uint64) error {
	s.mu.Lock()
	m := s.attached[handle]
	delete(s.attached, handle)
	last := m != nil && m.users == 0
	if m != nil {
		m.gone = true
	}
	s.mu.Unlock()
	if m == nil {
		return usagef("there is no attached memory %d", handle)
	}
	if last {
		m.free()
	}
	return nil
}

// result is a tensor to be sent, filled row by row.
type result struct {
	Tensor
	data []float32
	free func() // nil: it is no shared memory
}

// newResult makes room for rows of width numbers, in shared memory where that is worth it and the other side takes it.
func (s *server) newResult(rows, width int) (*result, error) {
	r := &result{Tensor: Tensor{Type: "f32", Shape: []int{rows, width}}}
	bytes := rows * width * 4
	if s.shares && bytes >= sharedMinimum {
		path, data, free, err := newShared(bytes)
		if err == nil {
			r.Path, r.data, r.free = path, tensor.View[float32](data), free
			return r, nil
		}
		s.noteUnshared(err)
	}
	if bytes > mostPayload {
		return nil, usagef("a result of %d bytes is more than a frame holds: ask for fewer positions at once", bytes)
	}
	r.data = make([]float32, rows*width)
	return r, nil
}

// drop frees a result that is not sent.
func (r *result) drop() {
	if r != nil && r.free != nil {
		r.free()
		r.free = nil
	}
}

// send answers a request with tensors beside other keys: set puts them into the answer. Shared memory is kept until the
// other side has mapped it.
func (s *server) send(q *request, answer any, r *result) error {
	var payload []byte
	if r.free != nil {
		s.mu.Lock()
		s.lastID++
		r.Lease = s.lastID
		s.leases[r.Lease] = r.free
		s.mu.Unlock()
	} else {
		payload = tensor.Bytes(r.data)
	}
	return q.ok(answer, payload)
}

// release frees what was sent.
func (s *server) release(lease uint64) {
	s.mu.Lock()
	free := s.leases[lease]
	delete(s.leases, lease)
	s.mu.Unlock()
	if free != nil {
		free()
	}
}
