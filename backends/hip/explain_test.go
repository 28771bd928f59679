package hip_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// TestExplain: a step of one token and one of several are explained, and give the same bits as before.
func TestExplain(t *testing.T) {
	dev := openHalf(t)
	t.Cleanup(func() { closing(t, dev) })
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	opt := engine.Options{Model: file, Device: dev, Context: 64, Seed: 1, KV: tensor.F16,
		Set: map[string]string{"L": "2", "D": "256", "H": "4", "F": "768", "V": "500"}}
	if !opt.SetType("q4_k_m") {
		t.Fatal("no such type")
	}
	_, s := testkit.Session(t, opt)
	for _, tokens := range []int{9, 1} {
		logits, err := s.Prefill(t.Context(), []int32{3, 1, 4, 1, 5, 9, 2, 6, 5}[:tokens])
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(tensor.Bytes(logits))
		st, err := s.Step(tokens, 1)
		if err != nil {
			t.Fatal(err)
		}
		x, err := dev.Capture(st.Program)
		if err != nil {
			t.Fatal(err)
		}
		for _, budget := range []time.Duration{1, 10 * time.Second} {
			if err := hip.Explained(x, len(st.Program.Launches), budget); err != nil {
				t.Errorf("%d tokens: %v", tokens, err)
			}
		}
		after := make([]byte, len(before))
		out := st.Program.Launches[len(st.Program.Launches)-1].Out[0]
		stream, err := dev.Stream()
		if err == nil {
			err = errors.Join(x.Submit(), x.Wait(), stream.Read(out.Buffer, out.Offset, after), stream.Close())
		}
		if err = errors.Join(err, x.Close()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(before, after) {
			t.Errorf("%d tokens: explained, the step gives other bits", tokens)
		}
	}
}
