package hip_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"greta/backends"
	"greta/backends/hip"
	"greta/ops/optest"
)

// open gives a device, or skips where there is none; with GRETA_REQUIRE_HIP=1
// it fails instead.
func open(t testing.TB) *hip.Device {
	t.Helper()
	dev, err := hip.New(hip.Options{})
	if err != nil {
		var none *hip.NoDevice
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

// TestOperators runs the table of operators, in shards with a device each, as
// most of the time goes to compiling.
func TestOperators(t *testing.T) {
	dev := open(t)
	t.Log(dev.Info())
	closing(t, dev)
	cases := optest.Cases()
	shards := max(1, runtime.GOMAXPROCS(0)-2)
	for s := range shards {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			dev := open(t)
			defer closing(t, dev)
			for i := s; i < len(cases); i += shards {
				t.Run(cases[i].Name, func(t *testing.T) {
					err := optest.Check(dev, cases[i])
					var lacks *backends.Unsupported
					if errors.As(err, &lacks) {
						t.Skip(err)
					}
					if err != nil {
						t.Error(err)
					}
				})
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
