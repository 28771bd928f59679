package hip_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
)

// three is a block of which products of one norm, v of more bits than q and k, are all that can be joined.
const three = `block: three
in: {x: "float[S, D]"}
params: {D: 256, N: 131}
names: {gguf: "blk.$i.*.weight"}
weights:
  g:  {shape: [D],    gguf: attn_norm}
  wq: {shape: [N, D], gguf: attn_q}
  wv: {shape: [N, D], gguf: attn_v}
  wk: {shape: [N, D], gguf: attn_k}
BIASES
body:
  h: rmsnorm(x, g, eps=1e-5)
  q: linear(h, wq, bq)
  v: linear(h, wv, bv)
  k: linear(h, wk, bk)
  y: q * v * k
out: y
`

const biases = `  bq: {shape: [N], gguf: /blk.$i.attn_q.bias}
  bk: {shape: [N], gguf: /blk.$i.attn_k.bias}
  bv: {shape: [N], gguf: /blk.$i.attn_v.bias}`

// TestMixedBits: products of two types in one launch give what each alone gives, to the bit: odd
// numbers of rows, rows that are no whole chunks of the ring, more rows than waves, with biases and
// without, v between the others.
func TestMixedBits(t *testing.T) {
	for _, bias := range []bool{false, true} {
		text := strings.NewReplacer("BIASES\n", "", ", bq", "", ", bk", "", ", bv", "").Replace(three)
		if bias {
			text = strings.Replace(three, "BIASES", biases, 1)
		}
		path := filepath.Join(t.TempDir(), "three.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := models.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Build(models.Options{C: 16}); err != nil { // where there is no card, too
			t.Fatal(err)
		}
		for _, mix := range []string{"q4_k_m", "q5_k_m", "q4_k_s"} {
			for _, size := range [][2]string{{"256", "131"}, {"4352", "1"}, {"4352", "333"}, {"768", "5001"}, {"11008", "259"}} {
				t.Run(fmt.Sprintf("%s/bias=%v/%sx%s", mix, bias, size[1], size[0]), func(t *testing.T) {
					t.Parallel() // most of the time goes to compiling
					var results [2][]float32
					for i := range results {
						dev := openHalf(t)
						t.Cleanup(func() { closing(t, dev) })
						if i == 0 {
							dev.Alone()
						}
						opt := engine.Options{Model: file, Device: dev, Context: 16, Seed: 9,
							Set: map[string]string{"D": size[0], "N": size[1]}}
						opt.SetType(mix)
						e, s := testkit.Session(t, opt)
						x := engine.Activations(3*e.Decode().Input("x").Shape[1], 7)
						for k := range 3 {
							y, err := s.Block(x[k*len(x)/3 : (k+1)*len(x)/3])
							if err != nil {
								t.Fatal(err)
							}
							results[i] = append(results[i], y...)
						}
					}
					if !slices.Equal(results[0], results[1]) {
						t.Error("joined products differ from products alone")
					}
					if n, ok := engine.Finite(results[0]); !ok {
						t.Errorf("element %d is %v", n, results[0][n])
					}
				})
			}
		}
	}
}
