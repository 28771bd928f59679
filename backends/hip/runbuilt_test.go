package hip

import (
	"errors"
	"testing"

	"github.com/greta-project/greta/engine"
)

// RunBuilt rehearses a model on a fake device with a folder of kernels and says
// how many programs were compiled at run time.
func RunBuilt(t *testing.T, arch, dir string, opt engine.Options, tokens ...int) (int, error) {
	t.Helper()
	dev, err := openDevice(&driver{newFake(amd)}, Found{Arch: arch}, Options{Cache: &Cache{Dir: t.TempDir()}, Built: dir})
	if err != nil {
		return 0, err
	}
	dev.units = usualUnits[arch]
	opt.Device = dev
	err = engine.DryRun(opt, tokens...)
	return dev.c.compiled, errors.Join(err, dev.Close())
}
