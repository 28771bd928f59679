//go:build linux && !nogpu && (amd64 || arm64)

package hip

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
)

// openROCm loads AMD's real runtime, or skips; with GRETA_REQUIRE_ROCM=1 it fails.
func openROCm(t *testing.T) *driver {
	t.Helper()
	p, err := load(amd)
	if err != nil {
		if os.Getenv("GRETA_REQUIRE_ROCM") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return &driver{p}
}

// AMD's runtime is bound whole, and says without a card that there is none.
func TestROCmWithoutCard(t *testing.T) {
	d := openROCm(t)
	t.Log(d.files(), d.targets())
	for f := range numFns {
		if amd.symbol(f) != "" && f.optional() == "" && !d.has(f) {
			t.Errorf("%s was not found", amd.symbol(f))
		}
	}
	_, err := d.devices()
	var none *backends.NoDevice
	if err != nil && !errors.As(err, &none) {
		t.Errorf("%v is no NoDevice", err)
	}
	t.Log(err)
}

// AMD's run-time compiler makes code of every kernel file; what it does not
// know is refused before it is asked; the cache gives the same bytes.
func TestROCmCompiler(t *testing.T) {
	if os.Getenv("GRETA_REQUIRE_ROCM") == "" {
		t.Skip("compiles every kernel file for two targets where $GRETA_REQUIRE_ROCM is set, as in CI")
	}
	d := openROCm(t)
	cache := Cache{Dir: t.TempDir()}
	if _, err := newCompiler(d, "gfx9999", cache, ""); err == nil {
		t.Error("gfx9999 is accepted")
	}
	for _, arch := range []string{"gfx90a", "gfx1030"} {
		if !slices.Contains(d.targets(), arch) {
			t.Errorf("%s is not among %v", arch, d.targets())
			continue
		}
		c, err := newCompiler(d, arch, cache, "")
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, p := range programsFor(arch) {
			file, _, _ := bytes.Cut([]byte(p), []byte{' '})
			if seen[string(file)] {
				continue
			}
			seen[string(file)] = true
			code, err := c.code(p)
			if err != nil {
				t.Errorf("%s: %v", arch, err)
				continue
			}
			if !bytes.Contains(code, []byte("\x7fELF")) || !bytes.Contains(code, []byte(arch)) {
				t.Errorf("%s for %s: %d bytes that are no code for it", p, arch, len(code))
			}
			n := c.compiled
			again, err := c.code(p)
			if err != nil || !bytes.Equal(code, again) || c.compiled != n {
				t.Errorf("%s for %s: the cache gives other code", p, arch)
			}
		}
		t.Logf("%s by %s: %d programs compiled", arch, c.target.version, c.compiled)
	}
}

// AMD's compiler aborts the process for a target that it does not know: in a
// child that is an error, and the next program is compiled.
func TestROCmAborts(t *testing.T) {
	d := openROCm(t)
	command := []string{os.Args[0], "compiler", "real", ""}
	for _, c := range []struct{ arch, want string }{{"gfx9999", "the child process crashed"}, {"gfx90a", ""}} {
		k := &compiler{driver: d, target: target{vendor: amd, arch: c.arch},
			worker: &compileWorker{command: command, limit: compileLimit}}
		err := k.all([]program{pointFile}, func(_ program, code []byte) error {
			if !bytes.Contains(code, []byte(c.arch)) {
				t.Errorf("%d bytes that are no code for %s", len(code), c.arch)
			}
			return nil
		})
		t.Logf("%s: %v", c.arch, err)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, wanted one with %q", c.arch, err, c.want)
		}
	}
}
