package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
)

func init() {
	readFile = func(descriptor int, data []byte) error {
		n, err := unix.Pread(descriptor, data, 0)
		if err == nil && n < len(data) {
			err = errors.New("the descriptor is none of memory")
		}
		return err
	}
}

// sender is the client's side of the socket.
type sender struct {
	t  *testing.T
	fd int
}

// startSending begins a server that takes descriptors.
func startSending(t *testing.T) (*client, *sender) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{t, pair[0]}
	t.Cleanup(s.close)
	c := bare(t, Options{})
	var h hello
	c.must("hello", map[string]any{"protocol": Protocol, "descriptors": pair[1]}, &h)
	if h.Descriptors != pair[1] || !slices.Contains(h.Ops, "forget") {
		t.Fatalf("%+v", h)
	}
	return c, s
}

func (s *sender) close() {
	if s.fd >= 0 {
		unix.Close(s.fd)
	}
	s.fd = -1
}

// send sends descriptors of a file that has such bytes in it, in one message with a number.
func (s *sender) send(number uint64, content []byte, count int) {
	s.t.Helper()
	fd, err := unix.MemfdCreate("sent", unix.MFD_CLOEXEC)
	if err != nil {
		s.t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, content); err != nil {
		s.t.Fatal(err)
	}
	rights := unix.UnixRights(slices.Repeat([]int{fd}, count)...)
	if err := unix.Sendmsg(s.fd, binary.LittleEndian.AppendUint64(nil, number), rights, nil, 0); err != nil {
		s.t.Fatal(err)
	}
}

// sentFiles counts the open files of this process that were sent.
func sentFiles(t *testing.T) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "/memfd:sent") {
			n++
		}
	}
	return n
}

// eventually waits until nothing that was sent is open, and so much memory is.
func eventually(t *testing.T, g *gpu, open int) {
	t.Helper()
	var files, memory int
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		g.mu.Lock()
		memory = g.open
		g.mu.Unlock()
		if files = sentFiles(t); files == 0 && memory == open {
			return
		}
	}
	t.Errorf("%d files are open that were sent, and %d pieces of memory, expected are 0 and %d", files, memory, open)
}

// lentRows is a piece of another process's memory that holds x [4, 64] and has room for the output behind it.
func (g *gpu) lentRows(t *testing.T) (x []float32, memory *backends.Shared) {
	t.Helper()
	x = make([]float32, 2*4*64)
	for i := range 4 * 64 {
		x[i] = float32(i%7) - 3
	}
	return x, g.put(t, x)
}

// By a descriptor memory is opened for one request, or stays open until it is forgotten; results are those of the
// memory of the host.
func TestDescriptors(t *testing.T) {
	c, to := startSending(t)
	m := c.model("gpu:mlp_block")
	g := lastGPU
	var s struct{ Session uint64 }
	c.must("open-session", map[string]any{"model": m}, &s)
	x, memory := g.lentRows(t)
	want := c.must("run-session", map[string]any{"session": s.Session, "x": Tensor{Type: "f32", Shape: []int{4, 64}}}, nil,
		tensor.Bytes(x[:4*64])...).payload
	args := func(number uint64, keep bool) map[string]any {
		at := &backends.Shared{Kind: "cuda", Location: "0000:01:00.0", Bytes: memory.Bytes, FD: number, Keep: keep}
		return map[string]any{"session": s.Session, "reset": true,
			"x":   Tensor{Type: "f32", Shape: []int{4, 64}, Device: at},
			"out": Tensor{Type: "f32", Shape: []int{4, 64}, Offset: 4 * 4 * 64, Device: at}}
	}
	run := func(number uint64, keep bool) {
		t.Helper()
		c.must("run-session", args(number, keep), nil)
		if got := g.get(t, memory); !slices.Equal(got[4*64:], tensor.View[float32](want)) {
			t.Error("other values than those of the host's memory")
		}
	}
	for number := range uint64(5) {
		to.send(10+number, memory.Handle, 1)
		run(10+number, false)
	}
	if g.imports != 5 {
		t.Errorf("5 requests opened %d times, x and out in one memory", g.imports)
	}
	eventually(t, g, 0)
	c.refused(codeUsage, "no descriptor 12", "run-session", args(12, false)) // it is taken once
	to.send(20, memory.Handle, 1)
	for range 5 {
		run(20, true)
	}
	if g.imports != 6 {
		t.Errorf("what is kept was opened %d times", g.imports-5)
	}
	eventually(t, g, 1)
	longer := args(20, true)
	longer["x"].(Tensor).Device.Bytes += 4
	c.refused(codeUsage, "has 2048 bytes, not 2052", "run-session", longer)
	c.write(framed(fmt.Sprintf(`{"op":"forget","args":{"target":20,"model":%d}}`, m), nil))
	eventually(t, g, 0)
	c.refused(codeUsage, "no descriptor 20", "run-session", args(20, true))
	c.write(framed(`{"op":"forget","args":{"target":77,"model":99}}`, nil)) // nothing of that number
	c.write(framed(`{"id":900,"op":"forget","args":{"handle":1}}`, nil))
	if r := c.next(); r.ID != 900 || r.Error == nil || r.Error.Code != codeUsage {
		t.Errorf("%+v", r)
	}

	// A model's end closes what it keeps; another model does not know of it.
	to.send(30, memory.Handle, 1)
	run(30, true)
	other := c.model("block")
	c.write(framed(fmt.Sprintf(`{"op":"forget","args":{"target":30,"model":%d}}`, other), nil))
	run(30, true)
	c.must("close", map[string]any{"model": m}, nil)
	eventually(t, g, 0)
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
}

// What is none of the driver's, was not sent, was sent wrongly or by nobody any more is refused with words, and closed.
func TestDescriptorRefusals(t *testing.T) {
	c, to := startSending(t)
	m := c.model("gpu:mlp_block")
	g := lastGPU
	var s struct{ Session uint64 }
	c.must("open-session", map[string]any{"model": m}, &s)
	_, memory := g.lentRows(t)
	args := func(number uint64, shape ...int) map[string]any {
		at := Tensor{Type: "f32", Shape: shape, Device: &backends.Shared{Kind: "cuda", Location: "0000:01:00.0",
			Bytes: memory.Bytes, FD: number, Keep: true}}
		return map[string]any{"session": s.Session, "reset": true, "x": at, "out": at}
	}
	to.send(1, []byte("no"), 1)
	c.refused(codeUnsupported, "none of memory", "run-session", args(1, 4, 64))
	c.refused(codeUsage, "no descriptor 2", "run-session", args(2, 4, 64))
	to.send(3, memory.Handle, 2)
	c.refused(codeUsage, "no descriptor 3", "run-session", args(3, 4, 64))
	to.send(4, memory.Handle, 0)
	c.refused(codeUsage, "no descriptor 4", "run-session", args(4, 4, 64))
	to.send(5, memory.Handle, 1)
	c.refused(codeUsage, "expected is [rows, 64]", "run-session", args(5, 4, 32)) // refused before it is opened
	c.refused(codeUsage, "no descriptor 5", "run-session", args(5, 4, 64))
	to.send(6, memory.Handle, 1)
	c.refused(codeUsage, "no session", "run-session", map[string]any{"session": 99, "x": args(6, 4, 64)["x"]})
	to.send(7, memory.Handle, 1)
	c.write(framed(fmt.Sprintf(`{"op":"forget","args":{"target":7,"model":%d}}`, m), nil)) // before a request names it
	eventually(t, g, 0)
	for n := range uint64(mostKept) {
		to.send(100+n, memory.Handle, 1)
		c.must("run-session", args(100+n, 4, 64), nil)
	}
	to.send(8, memory.Handle, 1)
	c.refused(codeUsage, "forget some", "run-session", args(8, 4, 64))
	eventually(t, g, mostKept)
	to.close()
	c.refused(codeUsage, "no descriptor 9", "run-session", args(9, 4, 64))
	c.must("run-session", args(100, 4, 64), nil) // what is open stays
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, g, 0)

	c = bare(t, Options{}) // a client without a socket
	c.must("hello", map[string]any{"protocol": Protocol}, nil)
	m = c.model("gpu:mlp_block")
	c.must("open-session", map[string]any{"model": m}, &s)
	c.refused(codeUsage, "no descriptor 1", "run-session", args(1, 4, 64))
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	for fd, words := range map[int]string{-1: "bad file descriptor", 1 << 20: "bad file descriptor", 2: "Unix socket"} {
		c := bare(t, Options{})
		c.refused(codeUsage, words, "hello", map[string]any{"protocol": Protocol, "descriptors": fd})
		if err := c.close(); err == nil {
			t.Error("the server went on")
		}
	}
}

// What nobody takes is bounded and ends with the server; what many send beside each other arrives with its number.
func TestDescriptorsPending(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := &sender{t, pair[0]}
	defer to.close()
	d, err := takeDescriptors(pair[1])
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for worker := range uint64(8) {
		all.Go(func() {
			for i := range uint64(50) {
				number := 1 + worker*50 + i
				to.send(number, binary.LittleEndian.AppendUint64(nil, number), 1)
				fd, ok := d.take(number)
				if !ok {
					t.Errorf("%d has not arrived", number)
					return
				}
				content := make([]byte, 8)
				if err := readFile(fd, content); err != nil || binary.LittleEndian.Uint64(content) != number {
					t.Errorf("%d: %x, %v", number, content, err)
				}
				unix.Close(fd)
			}
		})
	}
	all.Wait()
	for number := range uint64(mostArrivals + 100) {
		to.send(1+number, nil, 1)
	}
	to.send(1, nil, 1) // once more
	if _, ok := d.take(mostArrivals + 1); ok {
		t.Error("more are held than may be")
	}
	d.mu.Lock()
	held := len(d.sent)
	d.sent[2].late.Reset(0) // as if it had waited long
	d.mu.Unlock()
	if held != mostArrivals {
		t.Errorf("%d are held", held)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		d.mu.Lock()
		_, late := d.sent[2]
		d.mu.Unlock()
		if !late {
			break
		}
		if time.Now().After(end) {
			t.Fatal("what nobody takes stays open")
		}
	}
	d.close()
	if n := sentFiles(t); n != 0 {
		t.Errorf("%d files are open behind the end", n)
	}
}
