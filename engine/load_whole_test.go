package engine

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// Integers of a file become numbers of f32, those alone that it holds exactly.
func TestWholeNumbers(t *testing.T) {
	var wide, narrow []byte
	want := []float32{0, -3, 1 << 24, 77}
	for _, x := range want {
		wide = binary.LittleEndian.AppendUint64(wide, uint64(int64(x)))
		narrow = binary.LittleEndian.AppendUint32(narrow, uint32(int32(x)))
	}
	got := make([]float32, len(want))
	for of, src := range map[tensor.Type][]byte{tensor.I64: wide, tensor.I32: narrow} {
		clear(got)
		if err := decode(of, got, src); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", of, got, err, want)
		}
	}
	wide = binary.LittleEndian.AppendUint64(nil, 1<<24+1)
	if err := decode(tensor.I64, got[:1], wide); err == nil || !strings.Contains(err.Error(), "16777217") {
		t.Errorf("a number that f32 does not hold: %v", err)
	}
}
