package platform

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/greta-project/greta/bench/guard"
)

// peaks are what a device can do at most by its attributes: GB/s of each level of
// memory and of its link to the host, GFLOP/s of its plain units. 0 is unknown.
type peaks struct {
	memory, l2, l1, link float64
	f32, f64             float64
	f16                  float64 // of matrix units
}

// behindL2 is the cache behind the second level of architectures that have one, in
// bytes, by the makers' published figures: drivers do not say it. It is that of the
// largest chip of its kind.
var behindL2 = map[string]int{"gfx942": 256 << 20, "gfx950": 256 << 20, "gfx1030": 128 << 20, "gfx1100": 96 << 20,
	"gfx1101": 64 << 20,
	"gfx1102": 32 << 20, "gfx1151": 32 << 20, "gfx1200": 32 << 20, "gfx1201": 64 << 20}

// lastCache is the size of the last cache before memory, 0 where unknown.
func (l limits) lastCache() int { return max(l.l2, behindL2[l.arch]) }

// model gives a device's peaks.
func model(l limits) peaks {
	c, hz := guard.ClocksOf(l.arch), float64(l.units)*l.clockMHz*1e6
	return peaks{memory: l.memoryGBs, l2: c.L2 * hz / 1e9, l1: c.L1 * hz / 1e9, link: linkGBs(l.pci),
		f32: 2 * c.F32 * hz / 1e9, f64: 2 * c.F64 * hz / 1e9, f16: 2 * c.F16 * hz / 1e9}
}

// pciRoot is where Linux describes the devices of the bus.
var pciRoot = "/sys/bus/pci/devices"

// linkGBs is what a device's link gives in one direction: transfers a second by
// width, less what the encoding takes. 0 where the system does not say it.
func linkGBs(pci string) float64 {
	read := func(name string) (float64, bool) {
		b, err := os.ReadFile(filepath.Join(pciRoot, pci, name))
		if err != nil || pci == "" {
			return 0, false
		}
		word, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
		v, err := strconv.ParseFloat(word, 64)
		return v, err == nil
	}
	// The link may sleep at a lower speed between copies.
	speed, ok1 := read("max_link_speed")
	width, ok2 := read("max_link_width")
	if !ok1 || !ok2 {
		return 0
	}
	share := 128.0 / 130
	if speed <= 5 {
		share = 8.0 / 10
	}
	return speed * width / 8 * share
}
