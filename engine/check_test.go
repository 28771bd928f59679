package engine

import (
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// sparse are options for a model whose router chooses 12 of 60 experts, whose logits are close.
func sparse(t *testing.T, dev backends.Device) CheckOptions {
	t.Helper()
	file, err := models.Builtin("mixtral_8x7b")
	if err != nil {
		t.Fatal(err)
	}
	opt := CheckOptions{Ref: ref.New(), Options: Options{Model: file, Device: dev, Context: 64, KV: tensor.F16,
		DType: tensor.Q8_0,
		Set:   map[string]string{"L": "2", "D": "64", "H": "2", "G": "1", "F": "64", "E": "60", "k": "12", "V": "99"}}}
	for i := range int32(40) {
		opt.Tokens = append(opt.Tokens, i*i%99)
	}
	return opt
}

// TestCheckOfCloseExperts: a model is right whose activations are rounded and whose router
// therefore takes close experts in another order.
func TestCheckOfCloseExperts(t *testing.T) {
	r, err := Check(t.Context(), sparse(t, newCPU(t, 2)))
	if err != nil {
		t.Fatal(err)
	}
	if r.Diverged != nil {
		t.Errorf("the first divergence is %+v", r.Diverged)
	}
}

// wrongChoice is the processor, whose topk takes another expert for the first row's last.
type wrongChoice struct{ backends.Device }

type wrongChooser struct{ backends.Stream }

func (w wrongChoice) Stream() (backends.Stream, error) {
	s, err := w.Device.Stream()
	return wrongChooser{s}, err
}

func (w wrongChooser) Launch(l *backends.Launch) error {
	if err := w.Stream.Launch(l); err != nil || l.Node.Op.Name != "topk" {
		return err
	}
	out := &l.Out[1]
	at := out.Offset + 4*(out.RowElems()-1)
	var b [1]byte
	if err := w.Read(out.Buffer, at, b[:]); err != nil {
		return err
	}
	b[0] ^= 1
	return w.Write(out.Buffer, at, b[:])
}

// TestCheckOfWrongExperts: a choice that is not of the device's own logits is found, and so are
// wrong weights of the right experts.
func TestCheckOfWrongExperts(t *testing.T) {
	for name, dev := range map[string]backends.Device{"choice": wrongChoice{newCPU(t, 2)},
		"weights": wrongKernel{newCPU(t, 2), "topk"}} {
		r, err := Check(t.Context(), sparse(t, dev))
		if err != nil {
			t.Fatal(err)
		}
		if r.Diverged == nil || r.Diverged.Op != "topk" {
			t.Errorf("%s: the first divergence is %+v, topk was made wrong", name, r.Diverged)
		}
	}
}

// TestLimitOfManyBlocks: errors of rounded activations add up with the root of the number of blocks, and so does what
// is allowed; where nothing is rounded it is the same for any number.
func TestLimitOfManyBlocks(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	limit := func(blocks string, typ tensor.Type) float64 {
		e, err := New(t.Context(), Options{Model: file, Device: newCPU(t, 1), Context: 8, KV: tensor.F16, DType: typ,
			Set: map[string]string{"L": blocks, "D": "64", "H": "2", "G": "2", "F": "64", "V": "99"}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		return e.Tolerance()
	}
	for blocks, want := range map[string]float64{"2": RoundedLimit, "16": RoundedLimit, "64": 2 * RoundedLimit} {
		if got := limit(blocks, tensor.Q4_0); got != want {
			t.Errorf("%s blocks of q4_0: %v is allowed, wanted is %v", blocks, got, want)
		}
	}
	if few, many := limit("2", tensor.F16), limit("64", tensor.F16); few != many {
		t.Errorf("f16: %v of 2 blocks, %v of 64", few, many)
	}
}
