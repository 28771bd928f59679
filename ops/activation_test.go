package ops_test

import (
	"math"
	"strings"
	"testing"
)

// TestActivations: what configurations call activations, at -1.5, 0.5 and 20, as PyTorch and transformers have them.
func TestActivations(t *testing.T) {
	x := array{shape: []int{3}, v: []float64{-1.5, .5, 20}}
	for name, want := range map[string][3]float64{
		"linear":            {-1.5, 0.5, 20},
		"relu":              {0, 0.5, 20},
		"relu2":             {0, 0.25, 400},
		"sigmoid":           {0.182425524, 0.622459331, 0.999999998},
		"silu":              {-0.273638286, 0.311229666, 20},
		"swish":             {-0.273638286, 0.311229666, 20},
		"tanh":              {-0.905148254, 0.462117157, 1},
		"gelu_new":          {-0.100428423, 0.34571401, 20},
		"gelu_fast":         {-0.100428423, 0.34571401, 20},
		"gelu_accurate":     {-0.100428423, 0.34571401, 20},
		"gelu_pytorch_tanh": {-0.100428423, 0.34571401, 20},
		"gelu_python_tanh":  {-0.100428423, 0.34571401, 20},
		"gelu":              {-0.100210802, 0.345731231, 20},
		"gelu_python":       {-0.100210802, 0.345731231, 20},
		"quick_gelu":        {-0.108337802, 0.350388437, 20},
		"mish":              {-0.298099742, 0.375245211, 20},
		"relu6":             {0, 0.5, 6},
		"leaky_relu":        {-0.015, 0.5, 20},
		"hardswish":         {-0.375, 0.291666667, 20},
		"gelu_10":           {-0.100210802, 0.345731231, 10},
	} {
		y, err := eval("0 + activation(x, '"+name+"')", map[string]array{"x": x})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, v := range y.v {
			if math.Abs(v-want[i]) > 1e-8*max(1, math.Abs(want[i])) {
				t.Errorf("%s of %g is %g, want %g", name, x.v[i], v, want[i])
			}
		}
	}
	if _, err := eval("activation(x, 'laplace')", map[string]array{"x": x}); err == nil ||
		!strings.Contains(err.Error(), "no activation is called laplace") {
		t.Error(err)
	}
}
