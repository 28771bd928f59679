package hip

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
)

// Memory of another process is opened by its handle, copied from and to on the device, and closed, never freed.
func TestSharedMemory(t *testing.T) {
	for _, who := range []vendor{amd, nvidia} {
		f := newFake(who)
		dev, err := openFake(f, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := dev.Alloc(64, backends.Arena)
		if err != nil {
			t.Fatal(err)
		}
		handle := make([]byte, handleBytes)
		binary.LittleEndian.PutUint64(handle, uint64(theirs.(*buffer).at))
		b, err := dev.OpenShared(handle, 64)
		if err != nil {
			t.Fatal(err)
		}
		own, err := dev.Alloc(32, backends.Arena)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range "0123456789abcdefghij" {
			mem(theirs.(*buffer).at, 64)[i] = byte(c)
		}
		if err := dev.Move(own, 4, b, 8, 8); err != nil {
			t.Fatal(err)
		}
		if err := dev.Move(b, 0, own, 4, 3); err != nil {
			t.Fatal(err)
		}
		if got := string(mem(theirs.(*buffer).at, 20)); got != "89a3456789abcdefghij" {
			t.Errorf("%s: the memory has %q", who, got)
		}
		if err := dev.Move(own, 0, b, 60, 8); err == nil {
			t.Errorf("%s: a copy from beyond the end was taken", who)
		}
		step, err := dev.Alloc(32, backends.Step)
		if err != nil {
			t.Fatal(err)
		}
		if err := dev.Move(step, 0, b, 0, 8); err == nil {
			t.Errorf("%s: a copy to memory with a host's side was taken", who)
		}
		for words, try := range map[string]func() (backends.Buffer, error){
			"has 72 bytes, not 80": func() (backends.Buffer, error) { return dev.OpenShared(handle, 80) },
			"handle of 3 bytes":    func() (backends.Buffer, error) { return dev.OpenShared(handle[:3], 8) },
			"must be positive":     func() (backends.Buffer, error) { return dev.OpenShared(handle, 0) },
			"allocated by cudaMalloc or": func() (backends.Buffer, error) {
				return dev.OpenShared(make([]byte, handleBytes), 8)
			},
		} {
			if _, err := try(); err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v, expected is …%s…", who, err, words)
			}
		}
		f.lacks = map[fn]bool{fnOpenShared: true}
		if _, err := dev.OpenShared(handle, 64); err == nil || !strings.Contains(err.Error(), "no such function") {
			t.Errorf("%s: without the driver's function: %v", who, err)
		}
		f.fns()
		if err := b.Free(); err != nil {
			t.Fatal(err)
		}
		if calls := f.fns(); slices.Contains(calls, fnFree) || !slices.Contains(calls, fnCloseShared) {
			t.Errorf("%s: closing called %v", who, calls)
		}
		for _, b := range []backends.Buffer{theirs, own, step} {
			if err := b.Free(); err != nil {
				t.Error(err)
			}
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if left := f.leaks(); len(left) > 0 {
			t.Errorf("%s: %v", who, left)
		}
	}
}
