//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// open gives a device for a test. Where there is none the test is skipped,
// unless GRETA_REQUIRE_VULKAN is set.
func open(t testing.TB, opt vulkan.Options) *vulkan.Device {
	t.Helper()
	opt.Software = true
	opt.Device = os.Getenv("GRETA_VULKAN_DEVICE")
	dev, err := vulkan.New(opt)
	var none *backends.NoDevice
	if errors.As(err, &none) && os.Getenv("GRETA_REQUIRE_VULKAN") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// sample says that a test is to take the fewest cases that meet each kind: on a software device, of whose tests
// compiling kernels is most, unless GRETA_REQUIRE_VULKAN asks for more.
func sample(dev *vulkan.Device) bool {
	return dev.Info().Level == "software" && os.Getenv("GRETA_REQUIRE_VULKAN") == ""
}

// taste says that a test is to take a sample of its sample: of what takes seconds, where not every case is asked for.
func taste(dev *vulkan.Device, exhaustive bool) bool { return sample(dev) && !exhaustive }

// brief says that a test is to take few cases: with -short, and where it is to take a sample. All of them take a
// software device longer than go test waits.
func brief(dev *vulkan.Device) bool { return testing.Short() || sample(dev) }

// whole skips a test of whole models, which has no few cases to take, where it is to be brief.
func whole(t *testing.T) {
	t.Helper()
	if brief(open(t, vulkan.Options{})) {
		t.Skip("whole models take a software device minutes: they run where GRETA_REQUIRE_VULKAN is set, as in CI")
	}
}

// TestOperators runs the table of operators, with products by rows and by tiles; in
// brief one case of every operator, and of every type of weights. A sample has every operator by rows, products and
// lookups of rows with every size of elements and blocks, and such products by tiles and without an order of sums that
// depends on rows.
func TestOperators(t *testing.T) {
	for name, opt := range map[string]vulkan.Options{"rows": {Tiled: -1}, "tiles": {Tiled: 1},
		"invariant": {Tiled: 1, Invariant: true}} {
		t.Run(name, func(t *testing.T) {
			dev := open(t, opt)
			switch {
			case sample(dev) && name == "rows":
				eachOperator(t, dev)
				eachSize(t, dev, "linear", "/1x")
				eachSize(t, dev, "embed", "/")
			case sample(dev) && name == "tiles":
				eachSize(t, dev, "linear", "/67x")
			case sample(dev):
				eachSize(t, dev, "linear", "/1x")
				if testfiles.Exhaustive() { // else TestPaths has such
					eachSize(t, dev, "linear", "/67x")
				}
			case brief(dev):
				eachType(t, dev)
			default:
				optest.Run(t, dev)
			}
		})
	}
}

// cases are those of the table but what the device is known to have no kernel for.
func cases() []optest.Case {
	return slices.DeleteFunc(optest.Cases(), func(c optest.Case) bool { return optest.Known("vulkan", c.Name) })
}

// of gives the cases of an operator.
func of(operator string) []optest.Case {
	return slices.DeleteFunc(cases(), func(c optest.Case) bool { return c.Operator() != operator })
}

// TestTakes: what the processor has a kernel for, this backend has one for.
func TestTakes(t *testing.T) {
	host, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	names, err := optest.Lacking(open(t, vulkan.Options{}), host)
	if unknown, stale := optest.Differs("vulkan", names); err != nil || len(unknown)+len(stale) > 0 {
		t.Errorf("without a kernel: %q; with one, though ops/optest/lacking.txt says none: %q; error %v", unknown, stale, err)
	}
}

// TestPaths runs the table of operators with the paths of half precision, and the
// products again with each size of their tiles.
func TestPaths(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	if len(dev.Paths()) == 0 {
		t.Skip("the device has no fast paths")
	}
	for _, p := range dev.Paths() {
		t.Logf("%s: %s, code %s", p.Name, p.About, p.Code)
	}
	switch {
	case sample(dev):
		eachSize(t, dev, "linear", "/1x")
		eachSize(t, dev, "linear", "/67x")
		check(t, dev, of("attention")[:1])
	case brief(dev):
		eachType(t, dev)
	default:
		optest.Run(t, dev)
	}
}

// TestGraphs runs random small graphs against the reference.
func TestGraphs(t *testing.T) {
	dev, n := open(t, vulkan.Options{}), 60
	if taste(dev, testfiles.Exhaustive()) {
		n = 1
	} else if sample(dev) {
		n = 3
	} else if brief(dev) {
		n = 10
	}
	optest.RunGraphs(t, dev, n)
}

// TestDistant runs one case of every operator as on a card: the host reaches none of
// the device's memory, Step memory has two sides.
func TestDistant(t *testing.T) {
	dev := open(t, vulkan.Options{})
	dev.Stage(true)
	eachOperator(t, dev)
	optest.RunGraphs(t, dev, 3)
}

// TestNear runs them where the host writes both sides of Step memory and reads its own.
func TestNear(t *testing.T) {
	dev := open(t, vulkan.Options{})
	if !dev.Near() {
		t.Skip("the host reaches none of the device's Step memory")
	}
	eachOperator(t, dev)
	optest.RunGraphs(t, dev, 3)
}

// eachOperator checks one case of every operator but those.
func eachOperator(t *testing.T, dev *vulkan.Device, but ...string) {
	t.Helper()
	check(t, dev, slices.DeleteFunc(optest.FirstOfEach(cases(), optest.Case.Operator), func(c optest.Case) bool {
		return slices.Contains(but, c.Operator())
	}))
}

// eachType checks one case of every operator with every type of weights.
func eachType(t *testing.T, dev *vulkan.Device) {
	t.Helper()
	check(t, dev, optest.FirstOfEach(cases(), optest.Case.Kind))
}

// eachSize checks one case of an operator, whose name has a part, with weights of every size of elements or blocks.
func eachSize(t *testing.T, dev *vulkan.Device, operator, part string) {
	t.Helper()
	sized := func(c optest.Case) string {
		elems, bytes := c.Type().Block()
		if elems > 1 {
			return fmt.Sprint("blocks of ", elems)
		}
		return fmt.Sprint(bytes)
	}
	check(t, dev, optest.FirstOfEach(slices.DeleteFunc(of(operator), func(c optest.Case) bool {
		return !strings.Contains(c.Name, part) || c.Type() == tensor.Invalid
	}), sized))
}

// check checks cases.
func check(t *testing.T, dev *vulkan.Device, cases []optest.Case) {
	t.Helper()
	for _, c := range cases {
		if err := optest.Check(dev, c); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// TestSubgroups: with LP_NATIVE_VECTOR_WIDTH lavapipe has subgroups of 4, 8 or 16; the
// other tests, run so, show that kernels assume no size.
func TestSubgroups(t *testing.T) {
	bits, err := strconv.Atoi(os.Getenv("LP_NATIVE_VECTOR_WIDTH"))
	if err != nil {
		t.Skip("LP_NATIVE_VECTOR_WIDTH is not set")
	}
	d := open(t, vulkan.Options{}).Description()
	if d.Kind != vulkan.Software || d.Subgroup != bits/32 {
		t.Errorf("%s has subgroups of %d, %d are wanted", d.Name, d.Subgroup, bits/32)
	}
}

// TestAttentionPaths runs the attentions of the table that each path with matrices takes, by that path alone.
func TestAttentionPaths(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	for _, p := range dev.Paths() {
		if p.Name == "int8dot" || p.Try != nil { // without attention
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			for _, o := range dev.Paths() {
				if err := dev.SetPath(o.Name, o.Name == p.Name); err != nil {
					t.Fatal(err)
				}
			}
			taken := 0
			for _, c := range optest.Cases() {
				node, err := c.Bare(tensor.F32)
				if err != nil {
					t.Fatal(err)
				}
				if node.Op != ops.Attention || !p.Takes(node) {
					continue
				}
				taken++
				if err := optest.Check(dev, c); err != nil {
					t.Errorf("%s: %v", c.Name, err)
				}
			}
			if taken == 0 {
				t.Error("it takes no attention of the table")
			}
			if p.Name == "regdecode" && !dev.Made("attention_ordered_128") {
				t.Error("no attention was one whose scores stay where they are")
			}
			t.Logf("%d cases", taken)
		})
	}
}
