package hip

import (
	"testing"

	"github.com/greta-project/greta/internal/testkit"
)

// Sessions that goroutines use at the same time take turns with the driver, which has no lock for what a
// stream captures.
func TestTurns(t *testing.T) {
	for _, who := range []vendor{nvidia, amd} {
		f := newFake(who)
		dev, err := openFake(f, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		testkit.Concurrent(t, dev, 3)
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if l := f.leaks(); len(l) > 0 {
			t.Errorf("%s: %v are left", who, l)
		}
	}
}
