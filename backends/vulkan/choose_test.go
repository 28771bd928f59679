//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"errors"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
)

// TestChoose: what a name means, and what is taken where none is given.
func TestChoose(t *testing.T) {
	device := func(i int, name string, kind Kind, uuid, location, reason string) *physical {
		return &physical{Description: Description{Index: i, Name: name, Kind: kind, UUID: uuid, Location: location,
			Reason: reason}}
	}
	all := []*physical{
		device(0, "llvmpipe (LLVM 15)", Software, "aa00", "", ""),
		device(1, "Radeon 780M", Integrated, "bb11", "0000:c1:00.0", ""),
		device(2, "Old Card", Discrete, "cc22", "", "it has Vulkan 1.1, 1.2 is needed"),
		device(3, "Radeon RX 7900 XTX", Discrete, "dd33-44", "0000:03:00.0", ""),
	}
	for _, c := range []struct {
		opt  Options
		list []*physical
		want int // -1: an error
		text string
	}{
		{Options{}, all, 3, ""},
		{Options{}, all[:3], 1, ""},
		{Options{}, all[:1], -1,
			"a software device must be named, by --device 0 or as greta devices lists it; there are: 0 llvmpipe"},
		{Options{Software: true}, all[:1], 0, ""},
		{Options{Software: true}, all, 3, ""},
		{Options{Device: "0"}, all, 0, ""},
		{Options{Device: "llvm"}, all, 0, ""},
		{Options{Device: "software"}, all, 0, ""},
		{Options{Device: "Integrated"}, all, 1, ""},
		{Options{Device: "discrete"}, all, 3, ""}, // not the one that cannot be used
		{Options{Device: "radeon"}, all, 1, ""},
		{Options{Device: "7900"}, all, -1, `"7900"`}, // a number is an index
		{Options{Device: "rx 7900"}, all, 3, ""},
		{Options{Device: "BB-11"}, all, 1, ""},
		{Options{Device: "0000:03:00.0"}, all, 3, ""},
		{Options{Device: "2"}, all, -1, "Old Card cannot be used: it has Vulkan 1.1"},
		{Options{Device: "old"}, all, -1, "1.2 is needed"},
		{Options{Device: "virtual"}, all, -1, "3 Radeon RX 7900 XTX (discrete)"},
		{Options{Device: "-1"}, all, -1, `"-1"`},
	} {
		p, err := choose(c.list, c.opt)
		var none *backends.NoDevice
		switch {
		case c.want < 0 && (!errors.As(err, &none) || !strings.Contains(err.Error(), c.text)):
			t.Errorf("%+v: error %v, want %q", c.opt, err, c.text)
		case c.want >= 0 && (err != nil || p.Index != c.want):
			t.Errorf("%+v: device %v, error %v, want %d", c.opt, p, err, c.want)
		}
	}
}

// TestFills: large tiles where they are faster in spite of what is left idle, which was measured
// with 132 multiprocessors.
func TestFills(t *testing.T) {
	for _, c := range []struct {
		tiles, units int
		want         bool
	}{{64, 132, false}, {128, 132, true}, {344, 132, true}, {140, 132, false}, {1024, 132, true}, {255, 0, false},
		{256, 0, true}} {
		if got := fills(c.tiles, c.units); got != c.want {
			t.Errorf("%d tiles fill %d multiprocessors: %v, want %v", c.tiles, c.units, got, c.want)
		}
	}
}
