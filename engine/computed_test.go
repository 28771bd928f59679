package engine

import (
	"testing"

	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/tensor"
)

// computedModel has factors, norms' weights, biases and sinks that equations give.
const computedModel = `
model: computed
in: {tokens: "i32[S]", pos: "i32[S]", last: "i32[R]"}
params: {D: 32, H: 4, Dh: D/H, V: 64}
weights:
  embd: {shape: [V, D]}
  n1: {shape: [D]}
  n2: {shape: [D]}
  turns: {shape: [Dh/2]}
  b: {shape: [D]}
  sunk: {shape: [H]}
  wqkv: {shape: [3*D, D]}
  wo: {shape: [D, D]}
state:
  kc: float[C, H, Dh]
  vc: float[C, H, Dh]
body:
  x: embed(tokens, embd)
  q, k, v: split(linear(rmsnorm(x, 1 + n1), wqkv), sizes=[D, D, D])
  by: exp(turns)
  qt: rope(q as [S, H, Dh], pos, by)
  kt: rope(k as [S, H, Dh], pos, by)
  ks: push(kc, kt, pos)
  vs: push(vc, v as [S, H, Dh], pos)
  a: attention(qt, ks, vs, pos, sunk * 2)
  y: x + linear(a as [S, D], wo, b * 3)
  logits: linear(rmsnorm(rows(y, last), exp(n2)), embd)
out: logits
`

// TestComputedOperands: what equations compute is read in each step, also where operators mostly take weights.
func TestComputedOperands(t *testing.T) {
	for _, typ := range []tensor.Type{tensor.F32, tensor.BF16, tensor.Q8_0} {
		r, err := Check(t.Context(), CheckOptions{Options: Options{Model: modelFile(t, "computed.yaml", computedModel),
			Device: newCPU(t, 2), Context: 16, KV: tensor.F32, DType: typ}, Ref: ref.New()})
		if err != nil {
			t.Fatal(err)
		}
		if !r.OK() {
			t.Errorf("weights of %s: %+v", typ, r)
		}
	}
}
