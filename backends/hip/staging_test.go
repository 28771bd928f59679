package hip

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/greta-project/greta/backends"
)

// TestStagedBytes: what is written in several pieces of pinned memory, by several goroutines each, arrives whole
// and nothing beside it; so does what is read.
func TestStagedBytes(t *testing.T) {
	dev, err := openFake(newFake(nvidia), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const beside = 1000
	rng := rand.New(rand.NewPCG(5, 6))
	data := make([]byte, 2*bigBytes+smallBytes+3)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	b, err := dev.Alloc(len(data)+2*beside, backends.Weights)
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, b.Size())
	if err := errors.Join(s.Write(b, beside, data), s.Read(b, 0, got)); err != nil {
		t.Fatal(err)
	}
	end := got[beside+len(data):]
	if zeros := make([]byte, beside); !bytes.Equal(got[beside:][:len(data)], data) || !bytes.Equal(got[:beside], zeros) ||
		!bytes.Equal(end, zeros) {
		t.Error("other bytes arrived than were written, or some lie beside them")
	}
	if err := errors.Join(b.Free(), dev.Close()); err != nil {
		t.Error(err)
	}
}
