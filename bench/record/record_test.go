package record

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func TestIDsSortByTime(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("", 3600))
	a, b := NewID(at), NewID(at.Add(time.Millisecond))
	if !strings.HasPrefix(a, "20260301T110000.000Z-") {
		t.Errorf("%s is not the time in UTC", a)
	}
	if a >= b {
		t.Errorf("%s is not before %s", a, b)
	}
	if c := NewID(at); c == a {
		t.Errorf("two runs of one moment have the identity %s", c)
	}
}

func TestName(t *testing.T) {
	r := Result{Bench: "op/linear", Params: map[string]string{"n": "4096", "k": "64", "m": "1"}, Cache: Cold,
		Config: "tile=8"}
	if got, want := r.Name(), "op/linear/k=64/m=1/n=4096/cache=cold/config=tile=8"; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

func TestRoofs(t *testing.T) {
	x := Roofs{ReadGBs: 100, GFlops: 1000, MeasuredReadGBs: 50}
	for _, c := range []struct {
		bytes, flops float64
		measured     bool
		seconds      float64
		binds        string
	}{
		{1e9, 1e9, false, 0.01, "memory"},
		{1e9, 1e11, false, 0.1, "compute"},
		{1e9, 1e11, true, 0.02, "memory"}, // nobody measured products
		{0, 0, false, 0, ""},
	} {
		if s, b := x.Least(c.bytes, c.flops, c.measured); math.Abs(s-c.seconds) > 1e-12 || b != c.binds {
			t.Errorf("%g bytes and %g flops: %g s by %q, expected %g by %q", c.bytes, c.flops, s, b, c.seconds, c.binds)
		}
	}
	if i := (&Result{Bytes: 2, Flops: 8}).Intensity(); i != 4 {
		t.Errorf("intensity %g", i)
	}
}

// TestCheckJSON: an output of NaNs has an error that JSON has no number for.
func TestCheckJSON(t *testing.T) {
	data, err := json.Marshal(&Result{Check: Check{Against: "float64", RelL2: math.NaN(), MaxAbs: math.Inf(1),
		Limit: 1e-3}})
	if err != nil {
		t.Fatal(err)
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if !math.IsNaN(r.Check.RelL2) || !math.IsNaN(r.Check.MaxAbs) || r.Check.Limit != 1e-3 || r.Check.Against != "float64" {
		t.Errorf("%+v came back from %s", r.Check, data)
	}
}

func TestOn(t *testing.T) {
	for want, e := range map[string]Env{
		"NVIDIA H200, hip":            {Device: "NVIDIA H200", Backend: "hip", Level: "sm_90", Threads: 132},
		"Xeon, cpu avx512, 2 threads": {CPU: "Xeon", Backend: "cpu", Level: "avx512", Threads: 2},
		"Xeon, cpu go, 1 thread":      {Device: "Xeon", Backend: "cpu", Level: "go", Threads: 1},
		"ref":                         {Backend: "ref"},
		"Xeon":                        {CPU: "Xeon"},
	} {
		if got := e.On(); got != want {
			t.Errorf("%q, %q is expected", got, want)
		}
	}
}

func TestChecked(t *testing.T) {
	for label, want := range map[string]bool{"exp/rows/20260301T110000.000Z-0/check": true, "exp/rows/x/changed": false,
		"my/check": false, "": false} {
		if r := (Run{Label: label}); r.Checked() != want {
			t.Errorf("%q: %v", label, !want)
		}
	}
}

// TestInSums: of a kernel that was measured cold and warm the cold one counts, whatever its variant is
// called; a cold one that is not OK leaves the warm one; copies never count.
func TestInSums(t *testing.T) {
	p := map[string]string{"m": "1"}
	list := []Result{
		{Bench: "op/linear", Params: p, Cache: Cold, Verdict: OK}, {Bench: "op/linear", Params: p, Cache: Warm, Verdict: OK},
		{Bench: "op/add", Params: p, Cache: Warm, Verdict: OK}, {Bench: "op/add", Params: p, Cache: Cold, Verdict: Skipped},
		{Bench: "op/add/e2e", Params: p, Cache: Cold, Verdict: OK},
	}
	counts := InSums(func(yield func(*Result) bool) {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	})
	for i, want := range []bool{true, false, true, true, false} {
		if counts(&list[i]) != want {
			t.Errorf("%s: %v", list[i].Name(), !want)
		}
	}
}
