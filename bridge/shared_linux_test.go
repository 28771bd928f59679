package bridge

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/greta-project/greta/tensor"
)

// memfd makes memory as a client does.
func memfd(t *testing.T, data []byte, seals int) string {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.Write(fd, data); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
}

// shared counts the mappings and open files of shared memory of this process.
func shared(t *testing.T) (mapped, open int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && bytes.Contains([]byte(to), []byte("memfd:greta")) {
			open++
		}
	}
	return bytes.Count(maps, []byte("memfd:")), open
}

// TestShared: tensors in shared memory are those in frames, and nothing is left of them.
func TestShared(t *testing.T) {
	c := start(t, Options{})
	m := c.model("block")
	var s struct{ Session uint64 }
	c.must("open-session", map[string]any{"model": m}, &s)
	x := make([]float32, 2*64)
	for i := range x {
		x[i] = float32(i%5) - 2
	}
	inline := c.must("run-session", map[string]any{"session": s.Session, "reset": true,
		"x": Tensor{Type: "f32", Shape: []int{2, 64}}}, nil, tensor.Bytes(x)...)
	path := memfd(t, append(make([]byte, 64), tensor.Bytes(x)...), unix.F_SEAL_SHRINK)
	at := Tensor{Type: "f32", Shape: []int{2, 64}, Path: path, Offset: 64}
	args := map[string]any{"session": s.Session, "reset": true, "x": at}
	if r := c.must("run-session", args, nil); !bytes.Equal(r.payload, inline.payload) {
		t.Error("by path: other bits")
	}
	var a struct {
		Handle      uint64
		First, Last int
	}
	c.must("attach", map[string]any{"path": path, "bytes": 64 + 2*64*4}, &a)
	if last := int(tensor.Bytes(x)[2*64*4-1]); a.First != 0 || a.Last != last {
		t.Errorf("%+v, the last byte is %d", a, last)
	}
	args["x"] = Tensor{Type: "f32", Shape: []int{2, 64}, Handle: a.Handle, Offset: 64}
	if r := c.must("run-session", args, nil); !bytes.Equal(r.payload, inline.payload) {
		t.Error("by handle: other bits")
	}
	args["x"] = Tensor{Type: "f32", Shape: []int{2, 64}, Handle: a.Handle, Offset: 128}
	c.refused(codeUsage, "more than the 576 that are attached", "run-session", args)
	c.must("detach", map[string]any{"handle": a.Handle}, nil)
	c.refused(codeUsage, "no attached memory", "detach", map[string]any{"handle": a.Handle})

	at.Path = memfd(t, tensor.Bytes(x), unix.F_SEAL_GROW)
	at.Offset = 0
	args["x"] = at
	c.refused(codeUsage, "not sealed against becoming shorter", "run-session", args)
	at.Path = memfd(t, tensor.Bytes(x)[:100], unix.F_SEAL_SHRINK)
	args["x"] = at
	c.refused(codeUsage, "it has 100 bytes, the tensor ends at byte 512", "run-session", args)

	// A large result lies in memory that the server made, until it is released.
	big := c.model("")
	tokens := make([]int32, 40)
	var l struct{ Logits Tensor }
	r := c.must("logits", map[string]any{"model": big, "tokens": tokens}, &l)
	if l.Logits.Path == "" || l.Logits.Lease == 0 || len(r.payload) != 0 {
		t.Fatalf("%+v", l.Logits)
	}
	data, free, err := mapShared(l.Logits.Path, 40*2048*4)
	if err != nil {
		t.Fatal(err)
	}
	c.write(framed(fmt.Sprintf(`{"op":"release","args":{"target":%d}}`, l.Logits.Lease), nil))
	one := c.must("logits", map[string]any{"model": big, "tokens": tokens[:1]}, nil)
	if rel, _ := relative(data[:2048*4], one.payload); rel > 1e-2 {
		t.Errorf("relative L2 %g", rel)
	}
	free()
	if mapped, open := shared(t); mapped != 0 || open != 0 {
		t.Errorf("%d mappings and %d files are left", mapped, open)
	}
	c.must("logits", map[string]any{"model": big, "tokens": tokens}, nil) // never released
	if err := c.close(); err != nil {
		t.Error(err)
	}
	if mapped, open := shared(t); mapped != 0 || open != 0 {
		t.Errorf("at the end %d mappings and %d files are left", mapped, open)
	}
}
