package hip_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/ops/optest"
)

// open gives a device, or skips where there is none; with GRETA_REQUIRE_HIP=1
// it fails instead.
func open(t testing.TB) *hip.Device {
	t.Helper()
	return openWith(t, hip.Options{})
}

// openHalf gives a device whose paths of half precision are on.
func openHalf(t testing.TB) *hip.Device {
	t.Helper()
	return openWith(t, hip.Options{FP16: backends.On})
}

// none is why there is no device: each search for the runtime's library reads all folders where it may lie.
var none *backends.NoDevice

func openWith(t testing.TB, opt hip.Options) *hip.Device {
	t.Helper()
	if none != nil && os.Getenv("GRETA_REQUIRE_HIP") == "" {
		t.Skip(none)
	}
	dev, err := hip.New(opt)
	if err != nil {
		if errors.As(err, &none) && os.Getenv("GRETA_REQUIRE_HIP") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	return dev
}

func closing(t testing.TB, dev *hip.Device) {
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// Sessions that goroutines use at the same time give what one alone gives.
func TestSessionsAtOnce(t *testing.T) {
	dev := openHalf(t)
	defer closing(t, dev)
	testkit.Concurrent(t, dev, 20)
}

// Sequences that run beside each other get the tokens that each has alone.
func TestSchedules(t *testing.T) {
	dev := openHalf(t)
	defer closing(t, dev)
	testkit.Schedules(t, dev, 40, 2e-2)
}

// TestOperators runs the table of operators: with exact paths, with those of half
// precision, and with every variant of kernels, which are named by their place in the list.
func TestOperators(t *testing.T) {
	dev := open(t)
	t.Log(dev.Info())
	closing(t, dev)
	t.Run("exact", func(t *testing.T) { operators(t, open, -1) })
	for _, half := range []backends.Choice{backends.Off, backends.On} {
		t.Run(fmt.Sprint("invariant, half ", half), func(t *testing.T) {
			operators(t, func(t testing.TB) *hip.Device {
				return openWith(t, hip.Options{Invariant: true, FP16: half})
			}, -1)
		})
	}
	for v := range 8 {
		t.Run(fmt.Sprint("half ", v), func(t *testing.T) { operators(t, openHalf, v) })
	}
}

// operators runs the table. With a variant only what has it is run.
func operators(t *testing.T, open func(testing.TB) *hip.Device, variant int) {
	cases := optest.Cases()
	inShards(t, open, len(cases), func(t *testing.T, dev *hip.Device, i int) {
		if optest.Known("hip", cases[i].Name) {
			return
		}
		chosen := false
		dev.Choose(func(n *graph.Node) string {
			if all := dev.Variants(n); variant > 0 && variant < len(all) {
				chosen = true
				return all[variant]
			}
			return ""
		})
		t.Run(cases[i].Name, func(t *testing.T) {
			if variant > 0 {
				node, err := cases[i].Bare(dev.Info().Float)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := dev.Kernel(node); err == nil && !chosen {
					t.Skip("it has no such variant")
				}
			}
			err := optest.Check(dev, cases[i])
			var lacks *backends.Unsupported
			if errors.As(err, &lacks) && strings.Contains(cases[i].Name, "/f64/") {
				t.Skip(err) // the only type that this backend's kernels do not decode
			}
			if err != nil {
				t.Error(err)
			}
		})
	})
}

// inShards runs f for 0 to n-1 with several devices at once, as most of the time goes
// to compiling.
func inShards(t *testing.T, open func(testing.TB) *hip.Device, n int, f func(t *testing.T, dev *hip.Device, i int)) {
	shards := min(n, max(1, runtime.GOMAXPROCS(0)-2))
	for s := range shards {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			dev := open(t)
			defer closing(t, dev)
			for i := s; i < n; i += shards {
				f(t, dev, i)
			}
		})
	}
}

// TestGraphs runs random small graphs against the reference.
func TestGraphs(t *testing.T) {
	dev := open(t)
	defer closing(t, dev)
	optest.RunGraphs(t, dev, 60)
}
