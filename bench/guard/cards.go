package guard

import (
	"regexp"
	"slices"
	"strings"
)

// PerClock is what a multiprocessor or compute unit does in a clock at most, by the
// makers' published figures: bytes from the first level of cache and from the second,
// multiply-adds in f32, in f64, and in f16 on matrix units.
type PerClock struct{ L1, L2, F32, F64, F16 float64 }

// ClocksOf is PerClock of an architecture, as HIP names it ("sm_90", "gfx942"); zero where nobody noted it.
func ClocksOf(arch string) PerClock {
	switch {
	case arch == "sm_80":
		return PerClock{128, 64, 64, 32, 1024}
	case arch == "sm_90":
		return PerClock{128, 64, 128, 64, 2048}
	case strings.HasPrefix(arch, "sm_10"):
		return PerClock{128, 64, 128, 64, 4096}
	case strings.HasPrefix(arch, "sm_"):
		return PerClock{128, 64, 128, 2, 512}
	case arch == "gfx942": // packed f32: 256 flops a clock
		return PerClock{64, 64, 128, 64, 1024}
	case arch == "gfx950":
		return PerClock{128, 64, 128, 64, 2048}
	case arch == "gfx90a":
		return PerClock{64, 64, 128, 64, 512}
	case strings.HasPrefix(arch, "gfx9"):
		return PerClock{64, 64, 64, 32, 256}
	case strings.HasPrefix(arch, "gfx11"): // two f32 operations started at once
		return PerClock{128, 64, 128, 4, 256}
	case strings.HasPrefix(arch, "gfx12"):
		return PerClock{128, 64, 128, 4, 512}
	case strings.HasPrefix(arch, "gfx10"):
		return PerClock{128, 64, 64, 4, 128}
	}
	return PerClock{}
}

// architectures are those that a card can have: an architecture that is not here is a mistake, or newer than this list.
var architectures = strings.Fields(`sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 sm_70 sm_72 sm_75 sm_80 sm_86 sm_87 sm_88 sm_89
	sm_90 sm_100 sm_101 sm_103 sm_110 sm_120 sm_121
	gfx803 gfx900 gfx902 gfx904 gfx906 gfx908 gfx909 gfx90a gfx90c gfx940 gfx941 gfx942 gfx950
	gfx1010 gfx1011 gfx1012 gfx1013 gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036
	gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153 gfx1200 gfx1201 gfx1250 gfx1251`)

// card is what the makers' data sheets say of a model: units, the highest clock in MHz (of cards for gaming the highest
// that drivers offer, of all makers), memory's GB/s, and the last cache before it in MB.
type card struct {
	name, arch          string
	units               int
	clock, memory, last float64
}

// cards are models by the words of their names, which drivers surround with others. A name stands for its fastest form.
//
// Sources: NVIDIA's data sheets and architecture papers (Volta to Blackwell), AMD's data sheets of Instinct and its
// product pages of Radeon.
var cards = []card{
	{"p100", "sm_60", 56, 1480, 732, 4}, {"v100", "sm_70", 80, 1597, 1134, 6}, {"t4", "sm_75", 40, 1590, 320, 4},
	{"rtx 2080", "sm_75", 48, 2100, 496, 4}, {"rtx 2080 ti", "sm_75", 68, 2100, 616, 6},
	{"a100", "sm_80", 108, 1410, 2039, 40}, {"a800", "sm_80", 108, 1410, 2039, 40}, {"a30", "sm_80", 56, 1440, 933, 24},
	{"a40", "sm_86", 84, 1740, 696, 6}, {"a10", "sm_86", 72, 1695, 600, 6}, {"a10g", "sm_86", 80, 1710, 600, 6},
	{"rtx a6000", "sm_86", 84, 2100, 768, 6}, {"rtx 3060", "sm_86", 38, 2100, 608, 4},
	{"rtx 3070", "sm_86", 48, 2100, 608, 4}, {"rtx 3080", "sm_86", 80, 2100, 912, 6},
	{"rtx 3090", "sm_86", 84, 2100, 1008, 6},
	{"l4", "sm_89", 60, 2040, 300, 48}, {"l40", "sm_89", 142, 2520, 864, 96}, {"l40s", "sm_89", 142, 2520, 864, 96},
	{"rtx 6000 ada", "sm_89", 142, 2505, 960, 96}, {"rtx 4060", "sm_89", 34, 3105, 288, 32},
	{"rtx 4070", "sm_89", 66, 3105, 672, 48}, {"rtx 4080", "sm_89", 80, 3105, 736, 64},
	{"rtx 4090", "sm_89", 128, 3105, 1008, 72},
	{"h20", "sm_90", 78, 1980, 4917, 60}, {"h100", "sm_90", 132, 1980, 3352, 60}, {"h800", "sm_90", 132, 1980, 3352, 60},
	{"h100 pcie", "sm_90", 114, 1755, 2039, 60}, {"h100 nvl", "sm_90", 132, 1785, 3938, 60},
	{"h200", "sm_90", 132, 1980, 4917, 60}, {"gh200", "sm_90", 132, 1980, 4917, 60},
	{"b200", "sm_100", 148, 1965, 8184, 126}, {"gb200", "sm_100", 152, 2062, 8184, 126},
	{"b300", "sm_103", 160, 2032, 8184, 126}, {"gb300", "sm_103", 160, 2062, 8184, 126},
	{"rtx 5060", "sm_120", 36, 3300, 448, 32}, {"rtx 5070", "sm_120", 70, 3300, 896, 64},
	{"rtx 5080", "sm_120", 84, 3300, 960, 64}, {"rtx 5090", "sm_120", 170, 3300, 1792, 96},
	{"rtx pro 6000", "sm_120", 188, 3300, 1792, 128}, {"gb10", "sm_121", 48, 2525, 301, 24},
	{"mi50", "gfx906", 60, 1746, 1024, 4}, {"mi60", "gfx906", 64, 1800, 1024, 4}, {"mi100", "gfx908", 120, 1502, 1229, 8},
	{"mi210", "gfx90a", 104, 1700, 1638, 8}, {"mi250", "gfx90a", 104, 1700, 1638, 8},
	{"mi250x", "gfx90a", 110, 1700, 1638, 8},
	{"mi300a", "gfx942", 228, 2100, 5325, 256}, {"mi300x", "gfx942", 304, 2100, 5325, 256},
	{"mi308x", "gfx942", 80, 2100, 5325, 256}, {"mi325x", "gfx942", 304, 2100, 6000, 256},
	{"mi350x", "gfx950", 256, 2200, 8000, 256}, {"mi355x", "gfx950", 256, 2400, 8000, 256},
	{"rx 6800", "gfx1030", 72, 2800, 512, 128}, {"rx 6900 xt", "gfx1030", 80, 2800, 512, 128},
	{"rx 6950 xt", "gfx1030", 80, 2800, 576, 128},
	{"rx 7600", "gfx1102", 32, 3000, 288, 32}, {"rx 7700 xt", "gfx1101", 54, 3000, 432, 48},
	{"rx 7800 xt", "gfx1101", 60, 3000, 624, 64}, {"rx 7900 gre", "gfx1100", 80, 3000, 576, 64},
	{"rx 7900 xt", "gfx1100", 84, 3000, 800, 80}, {"rx 7900 xtx", "gfx1100", 96, 3000, 960, 96},
	{"w7900", "gfx1100", 96, 3000, 864, 96}, {"780m", "gfx1103", 12, 2900, 120, 2},
	{"890m", "gfx1150", 16, 3000, 137, 4}, {"8060s", "gfx1151", 40, 3000, 256, 32},
	{"rx 9060 xt", "gfx1200", 32, 3500, 320, 32}, {"rx 9070", "gfx1201", 56, 3300, 640, 64},
	{"rx 9070 xt", "gfx1201", 64, 3400, 640, 64},
}

var words, archName = regexp.MustCompile(`[^a-z0-9]+`), regexp.MustCompile(`\bgfx[0-9a-f]+\b`)

// spare is by how much a card may be above its sheet: cards of other makers are clocked higher.
const spare = 1.1

// most are the rates that a device cannot pass, in GB/s and GFLOP/s, and whose they are. last is in bytes.
type most struct {
	who                   string
	memory, second, first float64
	plain, matrix         float64 // arithmetic in f32, and in f16 on matrix units
	last                  float64
}

func (c *card) most(who string) most {
	p, hz := ClocksOf(c.arch), spare*float64(c.units)*c.clock*1e6/1e9
	// Units of matrices of f32 do twice what the lanes of these do; stores go beside loads.
	f32 := p.F32
	if strings.HasPrefix(c.arch, "gfx90") {
		f32 *= 2
	}
	return most{who: who, memory: spare * c.memory, second: 1.5 * p.L2 * hz, first: 1.5 * p.L1 * hz, plain: 2 * f32 * hz,
		matrix: 2 * max(p.F16, p.F32) * hz, last: 1e6 * c.last}
}

// best is the highest of each rate.
func (m most) best(o most) most {
	return most{m.who, max(m.memory, o.memory), max(m.second, o.second), max(m.first, o.first), max(m.plain, o.plain),
		max(m.matrix, o.matrix), max(m.last, o.last)}
}

// bestOf is the best that any card has which fits.
func bestOf(who string, fits func(c *card) bool) (m most, any bool) {
	m.who = who
	for i := range cards {
		if c := &cards[i]; fits(c) {
			m, any = m.best(c.most(who)), true
		}
	}
	return m, any
}

// named is the card of a device's name, nil where the name is no known one's.
func named(device string) (found *card) {
	plain := " " + words.ReplaceAllString(strings.ToLower(device), " ") + " "
	for i := range cards {
		if c := &cards[i]; strings.Contains(plain, " "+c.name+" ") && (found == nil || len(c.name) > len(found.name)) {
			found = c
		}
	}
	return found
}

// makers tell a card's maker by words of its name.
var makers = []struct {
	maker, prefix string // of the architecture
	words         []string
}{
	{"NVIDIA", "sm_", []string{"nvidia", "geforce", "quadro", "tesla"}},
	{"AMD", "gfx", []string{"amd", "radeon", "instinct"}},
	{"Intel", "", []string{"intel", "arc", "iris", "uhd"}},
	{"Apple", "", []string{"apple"}},
}

// cardOf gives what a card can have by its name and its architecture, as a run's environment has
// them, or says why there is no such card. The level of Vulkan's devices is their kind.
func cardOf(backend, device, level string) (m most, wrong string) {
	plain := strings.ToLower(device)
	arch, _, _ := strings.Cut(level, ":")
	if backend == "vulkan" {
		arch = archName.FindString(plain)
	} else if !slices.Contains(architectures, arch) {
		return m, "its level is " + quote(level) + ", which is no architecture of a card that is known here"
	}
	maker, prefix := "", ""
	plain = " " + words.ReplaceAllString(plain, " ") + " "
	for _, k := range makers {
		if slices.ContainsFunc(k.words, func(w string) bool { return strings.Contains(plain, " "+w+" ") }) {
			maker, prefix = k.maker, k.prefix
			break
		}
	}
	if prefix != "" && arch != "" && !strings.HasPrefix(arch, prefix) {
		return m, "its level is " + quote(level) + " on " + quote(device) + ", which is of another maker"
	}
	if c := named(device); c != nil {
		if arch != "" && c.arch != arch {
			return m, "its level is " + quote(level) + " on " + quote(device) + ", whose architecture is " + c.arch
		}
		return c.most(device), ""
	}
	if arch != "" {
		if m, ok := bestOf("card of "+arch, func(c *card) bool { return c.arch == arch }); ok {
			return m, ""
		}
		prefix = strings.TrimRight(arch, "0123456789abcdef")
		maker = map[string]string{"sm_": "NVIDIA", "gfx": "AMD"}[prefix]
	}
	// The largest graphics beside a processor: of Strix Halo, and Apple's Ultra with room for the next; Intel's card with
	// the widest memory is the Data Center GPU Max.
	beside := most{memory: 300, second: 1e4, first: 2e4, plain: 4e4, matrix: 1.6e5, last: 64e6}
	apple := most{memory: 1200, second: 1e4, first: 2e4, plain: 5e4, matrix: 2e5, last: 128e6}
	intel := most{memory: 3600, second: 2e4, first: 1.2e5, plain: 6e4, matrix: 1e6, last: 408e6}
	switch {
	case maker == "Apple":
		m = apple
	case backend == "vulkan" && level == "integrated" && maker != "":
		m = beside
	case maker == "Intel":
		m = intel
	default:
		m, _ = bestOf("", func(c *card) bool { return strings.HasPrefix(c.arch, prefix) })
	}
	if m.who = "card"; maker != "" {
		m.who = "card of " + maker
	}
	return m, ""
}
