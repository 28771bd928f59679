//go:build linux && !nogpu && (amd64 || arm64)

package hip

import (
	"encoding/binary"
	"runtime"
	"testing"
)

// The handle is given as C passes a structure of 64 bytes by value.
func TestHandleByValue(t *testing.T) {
	handle := make([]byte, handleBytes)
	for i := range handle {
		handle[i] = byte(i)
	}
	const out = 0x1234
	var pin runtime.Pinner
	defer pin.Unpin()
	at := address(&pin, handle)
	got := byValue([]uintptr{out, at, 7})
	if runtime.GOARCH != "amd64" {
		if len(got) != 3 || got[1] != at {
			t.Errorf("%x", got)
		}
		return
	}
	if len(got) != 6+handleBytes/8 || got[0] != out || got[1] != 7 {
		t.Fatalf("%x", got)
	}
	for i, w := range got[6:] {
		if uint64(w) != binary.LittleEndian.Uint64(handle[8*i:]) {
			t.Errorf("word %d of the handle is %x", i, w)
		}
	}
}
