//go:build !nogpu

package environ

import (
	"bytes"
	"strconv"
	"unsafe"

	"github.com/ebitengine/purego"
)

// nvml are the functions of NVIDIA's management library that are used. All
// return 0 for success.
type nvml struct {
	start, stop func() int32
	count       func(*uint32) int32
	byIndex     func(uint32, *uintptr) int32
	byBus       func(string, *uintptr) int32
	name        func(uintptr, *byte, uint32) int32
	clock       func(uintptr, uint32, *uint32) int32
	power       func(uintptr, *uint32) int32
	limit       func(uintptr, *uint32) int32
	temperature func(uintptr, uint32, *uint32) int32
	driver      func(*byte, uint32) int32
}

// Clocks and sensors by NVML's numbers.
const (
	clockSM, clockMemory = 1, 2
	sensorGPU            = 0
)

// readNVML notes clocks, power and temperature of the NVIDIA card at a PCI
// address, or of the only one of a name. false: there is no such card.
func readNVML(at, name string, to map[string]string) bool {
	n, ok := openNVML()
	if !ok || n.start() != 0 {
		return false
	}
	defer n.stop()
	card, ok := n.find(at, name)
	if !ok {
		return false
	}
	number := func(key string, by float64, read func(*uint32) int32) {
		var v uint32
		if read(&v) == 0 {
			to[key] = strconv.FormatFloat(float64(v)/by, 'f', -1, 64)
		}
	}
	number("sm_mhz", 1, func(v *uint32) int32 { return n.clock(card, clockSM, v) })
	number("mem_mhz", 1, func(v *uint32) int32 { return n.clock(card, clockMemory, v) })
	number("power_w", 1e3, func(v *uint32) int32 { return n.power(card, v) })
	number("power_limit_w", 1e3, func(v *uint32) int32 { return n.limit(card, v) })
	number("temperature_c", 1, func(v *uint32) int32 { return n.temperature(card, sensorGPU, v) })
	var text [96]byte
	if n.driver(&text[0], uint32(len(text))) == 0 {
		to["nvidia_driver"] = cText(text[:])
	}
	return true
}

// openNVML loads the library, which comes with the driver.
func openNVML() (n *nvml, ok bool) {
	lib, err := purego.Dlopen("libnvidia-ml.so.1", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, false
	}
	n = &nvml{}
	for _, f := range []struct {
		to   any
		name string
	}{
		{&n.start, "nvmlInit_v2"}, {&n.stop, "nvmlShutdown"}, {&n.count, "nvmlDeviceGetCount_v2"},
		{&n.byIndex, "nvmlDeviceGetHandleByIndex_v2"}, {&n.byBus, "nvmlDeviceGetHandleByPciBusId_v2"},
		{&n.name, "nvmlDeviceGetName"},
		{&n.clock, "nvmlDeviceGetClockInfo"}, {&n.power, "nvmlDeviceGetPowerUsage"},
		{&n.limit, "nvmlDeviceGetEnforcedPowerLimit"},
		{&n.temperature, "nvmlDeviceGetTemperature"}, {&n.driver, "nvmlSystemGetDriverVersion"},
	} {
		at, err := purego.Dlsym(lib, f.name)
		if err != nil {
			return nil, false
		}
		purego.RegisterFunc(f.to, at)
	}
	return n, true
}

func (n *nvml) find(at, name string) (card uintptr, ok bool) {
	if at != "" && n.byBus(at, &card) == 0 {
		return card, true
	}
	var count uint32
	if n.count(&count) != 0 {
		return 0, false
	}
	found := 0
	for i := range count {
		var c uintptr
		var text [96]byte
		if n.byIndex(i, &c) == 0 && n.name(c, &text[0], uint32(unsafe.Sizeof(text))) == 0 && cText(text[:]) == name {
			card = c
			found++
		}
	}
	return card, found == 1
}

func cText(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
