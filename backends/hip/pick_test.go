package hip

import (
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// The choice of tokens compiles for every target without spilling; long rows go
// to it, short ones and those with a softmax do not.
func TestPick(t *testing.T) {
	f := newFake(amd)
	dev, err := openFake(f, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for name, file := range map[string]string{"topk/likeliest": "pick.hip", "topk/candidates": "pick.hip",
		"topk/none": "moe.hip", "topk/many": "moe.hip"} {
		l, free, err := scene(dev, name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := dev.bind(l, 0)
		if err != nil {
			t.Fatal(err)
		}
		if p := string(b.parts[0].code.program); !strings.HasPrefix(p, file) {
			t.Errorf("%s goes to %s", name, p)
		}
		b.free()
		if err := free(); err != nil {
			t.Error(err)
		}
	}
	if dev.Info().Picks < 1 {
		t.Error("the device does not say that it chooses tokens")
	}
	clang := testfiles.Clang(t)
	dir := t.TempDir()
	for i, arch := range targetNames {
		if _, _, err := compileOffline(clang, arch, dir, i, pickFile); err != nil {
			t.Error(err)
		}
	}
}
