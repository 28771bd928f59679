package custom

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/tensor"
)

// linear is a node of an operator with a signature as linear has it.
func linear(rows ...int) *graph.Node {
	n := &graph.Node{Op: &graph.Op{Name: "linear", Sig: graph.MustSig(
		"(x: T[*, K], w: W[N, K], b?: V[N]) -> (y: float[*, N])")}, Block: 3}
	value := func(name string, t tensor.Type, shape ...int) *graph.Value {
		return &graph.Value{Name: name, Type: t, Shape: shape}
	}
	n.In = []*graph.Value{value("x", tensor.F32, append(rows, 96)...), value("w", tensor.F16, 5, 96), nil}
	n.Out = []*graph.Value{value("blk.3.y", tensor.F32, append(rows, 5)...)}
	return n
}

func expr(t *testing.T, text string) lang.Expr {
	t.Helper()
	e, err := lang.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestSizes(t *testing.T) {
	s := Sizes(linear(2, 3))
	if fmt.Sprint(s["rows"], s["K"], s["N"], s["x"], s["y"]) != "6 96 5 [2 3 96] [2 3 5]" {
		t.Error(s)
	}
	if s := Sizes(linear()); fmt.Sprint(s["rows"], s["K"]) != "1 96" {
		t.Error(s)
	}
}

func TestLaunch(t *testing.T) {
	k := &Kernel{Name: "k", File: "f.yaml", Op: "linear", Types: map[string][]tensor.Type{"w": {tensor.F16}},
		Args: []Arg{{Operand: "x"}, {Operand: "w"}, {Operand: "y"}, {Kind: I32, Value: expr(t, "-K")},
			{Kind: F32, Value: expr(t, "1/2")}, {Kind: Null}},
		Grid: []lang.Expr{expr(t, "ceil(N/B)"), expr(t, "rows")}, Block: []lang.Expr{expr(t, "B")},
		Shared: expr(t, "4*B"), Constants: []Constant{{"B", []int{2, 4}}}, When: expr(t, "x[-1] == 96")}
	n := linear(7)
	if !k.Matches(n) || k.Takes(n) != "" {
		t.Error(k.Takes(n))
	}
	i := &Instance{Kernel: k, Constants: k.Variants()[1]}
	l, err := i.Launch(n)
	if err != nil || l.Grid != [3]int{2, 7, 1} || l.Block != [3]int{4, 1, 1} || l.Shared != 16 || l.Args[0].In != 0 ||
		l.Args[2].Out != 0 || l.Args[3].Bits != 0xffffffa0 || l.Args[4].Bits != 0x3f000000 || !l.Args[5].Number() {
		t.Errorf("%+v %v", l, err)
	}
	if k.Equation = "y"; !k.Matches(n) {
		t.Error("the equation of a block is not found")
	}
	if k.Equation = "z"; k.Matches(n) {
		t.Error("another equation is found")
	}
	for want, change := range map[string]func(*Kernel){
		"block: [512 4 1] are 2048 threads": func(k *Kernel) { k.Block = []lang.Expr{expr(t, "512"), expr(t, "4")} },
		"grid: a whole number":              func(k *Kernel) { k.Grid = []lang.Expr{expr(t, "N/2")} },
		"grid: -1: it must lie in":          func(k *Kernel) { k.Grid = []lang.Expr{expr(t, "-1")} },
		"grid: division by zero":            func(k *Kernel) { k.Grid = []lang.Expr{expr(t, "1/(N-5)")} },
		"block: 0: it must lie":             func(k *Kernel) { k.Block = []lang.Expr{expr(t, "0")} },
		"shared: 1000000: it must":          func(k *Kernel) { k.Shared = expr(t, "1e6") },
		"does not fit i32":                  func(k *Kernel) { k.Args = []Arg{{Kind: I32, Value: expr(t, "2**40")}} },
		"write f32(…) for others":           func(k *Kernel) { k.Args = []Arg{{Kind: U32, Value: expr(t, "K/7")}} },
		"linear has no operand eps":         func(k *Kernel) { k.Args = []Arg{{Operand: "eps"}} },
	} {
		wrong := *k
		change(&wrong)
		_, err := (&Instance{Kernel: &wrong, Constants: i.Constants}).Launch(n)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; %q is wanted", err, want)
		}
	}
}

func TestTakes(t *testing.T) {
	k := &Kernel{Op: "linear", Args: []Arg{{Operand: "x"}, {Operand: "w"}, {Operand: "y"}}}
	n := linear(1)
	if why := k.Takes(n); !strings.Contains(why, "w is f16 here, it takes [f32]") {
		t.Error(why)
	}
	k.Types = map[string][]tensor.Type{"w": {tensor.F16}}
	if why := k.Takes(n); why != "" {
		t.Error(why)
	}
	n.In[2] = &graph.Value{Name: "b", Type: tensor.F32, Shape: tensor.Shape{5}}
	if why := k.Takes(n); !strings.Contains(why, "does not read operand b") {
		t.Error(why)
	}
	n = linear(1)
	k.Args = append(k.Args, Arg{Operand: "b"})
	if why := k.Takes(n); !strings.Contains(why, "operand b is left out") {
		t.Error(why)
	}
	k.Args, k.When = k.Args[:3], expr(t, "K % 64 == 0")
	if why := k.Takes(n); !strings.Contains(why, "when:") {
		t.Error(why)
	}
}

func TestInstance(t *testing.T) {
	dir := t.TempDir()
	k := &Kernel{Name: "k", File: filepath.Join(dir, "f.yaml"), Source: "a$BB-$B.hip",
		Constants: []Constant{{"B", []int{2}}, {"BB", []int{3}}}}
	if _, err := k.Instance(k.Variants()[0]); err == nil || !strings.Contains(err.Error(), "a3-2.hip") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a3-2.hip"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	i, err := k.Instance(k.Variants()[0])
	if err != nil || i.ConstantsText() != "B=2 BB=3" || string(i.Code) != "x" || i.Hash == "" {
		t.Error(i, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a3-2.hip"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Instance(k.Variants()[0]); err == nil || !strings.Contains(err.Error(), "has 0 bytes") {
		t.Error(err)
	}
}

// Every element of a matrix lies where its tile says, whatever the pieces in which it is packed; the rest is zero.
func TestTiles(t *testing.T) {
	const n, k = 7, 10
	tile := [2]int{4, 3}
	shape := tensor.Shape{n, k}
	src := make([]byte, n*k)
	for i := range src {
		src[i] = byte(i + 1)
	}
	dst := make([]byte, TilesSize(tile, tensor.F8E4M3, shape))
	if len(dst) != 8*12 {
		t.Fatal(len(dst))
	}
	for from := 0; from < n; from += 4 {
		if err := Tile(tile, dst, src, tensor.F8E4M3, shape, from, min(n, from+4)); err != nil {
			t.Fatal(err)
		}
	}
	want := make([]byte, len(dst))
	for r := range n {
		for c := range k {
			want[((r/4)*4+c/3)*12+(r%4)*3+c%3] = src[r*k+c] // four tiles side by side, twelve bytes each
		}
	}
	if !bytes.Equal(dst, want) {
		t.Errorf("%v\n%v", dst, want)
	}
	if err := Tile(tile, dst, src, tensor.Q8_0, shape, 0, 1); err == nil {
		t.Error("a block format was laid out in tiles")
	}
}
