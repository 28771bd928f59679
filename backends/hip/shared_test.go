package hip

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
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

// An allocation of another process is mapped by its descriptor, used, and unmapped behind what uses it; whatever call
// fails, the error names it and nothing is left.
func TestSharedByDescriptor(t *testing.T) {
	const bytes = 72 // of 9 words
	life := func(f *fake) (err error) {
		f.version = castFrom
		dev, err := openFake(f, t.TempDir())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dev.Close()) }()
		theirs := make([]uint64, bytes/8)
		for i, c := range "0123456789abcdefghij" {
			tensor.Bytes(theirs)[i] = byte(c)
		}
		at := uintptr(unsafe.Pointer(&theirs[0]))
		f.memory[at], f.descriptors[7] = theirs, at
		b, err := dev.ImportShared(7, bytes)
		if err != nil {
			return err
		}
		err = dev.Move(b, 0, b, 10, 3)
		if got := string(tensor.Bytes(theirs)[:20]); err == nil && got != "abc3456789abcdefghij" {
			t.Errorf("%s: the memory has %q", f.who, got)
		}
		if b.Size() != bytes {
			t.Errorf("%s: %d bytes", f.who, b.Size())
		}
		f.fns()
		err = errors.Join(err, b.Free(), b.Free())
		if got, want := f.fns(), []fn{fnStreamWait, fnUnmap, fnUnreserve, fnRelease}; err == nil && !slices.Equal(
			slices.DeleteFunc(got, func(n fn) bool { return n == fnSetDevice }), want) {
			t.Errorf("%s: closing called %v, expected is %v", f.who, got, want)
		}
		return err
	}
	for _, who := range []vendor{amd, nvidia} {
		whole := newFake(who)
		if err := life(whole); err != nil {
			t.Fatal(err)
		}
		if left := whole.leaks(); len(left) > 0 {
			t.Fatalf("%s: %v", who, left)
		}
		for _, call := range []fn{fnImport, fnReserve, fnMap, fnAccess, fnCopyDevice, fnUnmap, fnUnreserve, fnRelease} {
			f := newFake(who)
			f.answers = map[fn]uintptr{call: 1}
			if err := life(f); err == nil || !strings.Contains(err.Error(), who.symbol(call)) {
				t.Errorf("%s fails: %v", who.symbol(call), err)
			}
			left := f.leaks()
			ends := map[fn][]string{ // what cannot be ended
				fnUnmap: {"1 mapping", "1 reservation"}, fnUnreserve: {"1 reservation"}, fnRelease: {"1 import"}}
			if !slices.Equal(left, ends[call]) {
				t.Errorf("%s fails: %v are left", who.symbol(call), left)
			}
			f = newFake(who)
			f.lacks = map[fn]bool{call: true}
			if err := life(f); err == nil || !strings.Contains(err.Error(), "no such function") {
				t.Errorf("without %s: %v", who.symbol(call), err)
			}
		}
	}
	f := newFake(amd)
	dev, err := openFake(f, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dev.ImportShared(7, bytes); err == nil || !strings.Contains(err.Error(), "from HIP 7.2 on") {
		t.Error(err)
	}
	f.version = castFrom
	for words, try := range map[string][2]int{"must be positive": {7, 0}, "none of memory of a card": {9, bytes}} {
		if _, err := dev.ImportShared(try[0], try[1]); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, expected is …%s…", err, words)
		}
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
