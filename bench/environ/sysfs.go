package environ

import (
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// processor is the processor's own name.
func processor() string {
	if runtime.GOOS != "linux" {
		return ""
	}
	for line := range strings.Lines(readFile("/proc/cpuinfo")) {
		key, value, _ := strings.Cut(line, ":")
		if k := strings.TrimSpace(key); k == "model name" || k == "Model" || k == "cpu" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// readCPU notes the processor's governor, clock and temperature.
func readCPU(to map[string]string) { readCPUIn(sysRoot, readFile("/proc/cpuinfo"), to) }

func readCPUIn(root, cpuinfo string, to map[string]string) {
	freq := filepath.Join(root, "devices/system/cpu/cpu0/cpufreq")
	set(to, "governor", readFile(freq, "scaling_governor"))
	set(to, "cpu_mhz", scaled(readFile(freq, "scaling_cur_freq"), 1e3))
	set(to, "cpu_max_mhz", scaled(readFile(freq, "cpuinfo_max_freq"), 1e3))
	if to["cpu_mhz"] == "" {
		for line := range strings.Lines(cpuinfo) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "cpu MHz" {
				set(to, "cpu_mhz", scaled(strings.TrimSpace(value), 1))
				break
			}
		}
	}
	// The one says what is off, the other what is on.
	turbo := map[string]string{"0": "off", "1": "on"}
	set(to, "turbo", turbo[readFile(root, "devices/system/cpu/cpufreq/boost")])
	turbo = map[string]string{"0": "on", "1": "off"}
	set(to, "turbo", turbo[readFile(root, "devices/system/cpu/intel_pstate/no_turbo")])
	monitors, _ := filepath.Glob(filepath.Join(root, "class/hwmon/hwmon*"))
	for _, m := range monitors {
		if n := readFile(m, "name"); n == "coretemp" || n == "k10temp" || n == "zenpower" || n == "cpu_thermal" {
			set(to, "temperature_c", scaled(readFile(m, "temp1_input"), 1e3))
		}
	}
}

// readAMD notes clocks, power and temperature of an AMD card: of the one at the
// PCI address at, or where that is not known of the only one there is.
func readAMD(root, at string, to map[string]string) {
	const amd = "0x1002"
	dir := filepath.Join(root, "bus/pci/devices", at)
	if at == "" || readFile(dir, "vendor") != amd {
		if at != "" && readFile(dir, "vendor") != "" {
			return // another maker's card
		}
		cards, _ := filepath.Glob(filepath.Join(root, "class/drm/card*/device"))
		var own []string
		for _, c := range cards {
			if !strings.Contains(filepath.Base(filepath.Dir(c)), "-") && readFile(c, "vendor") == amd {
				own = append(own, c)
			}
		}
		if len(own) != 1 {
			return
		}
		dir = own[0]
	}
	set(to, "sm_mhz", activeLevel(readFile(dir, "pp_dpm_sclk")))
	set(to, "mem_mhz", activeLevel(readFile(dir, "pp_dpm_mclk")))
	set(to, "performance_level", readFile(dir, "power_dpm_force_performance_level"))
	monitors, _ := filepath.Glob(filepath.Join(dir, "hwmon/hwmon*"))
	for _, m := range monitors {
		power := readFile(m, "power1_average")
		if power == "" {
			power = readFile(m, "power1_input")
		}
		set(to, "power_w", scaled(power, 1e6))
		set(to, "power_limit_w", scaled(readFile(m, "power1_cap"), 1e6))
		set(to, "temperature_c", scaled(readFile(m, "temp1_input"), 1e3))
	}
}

// activeLevel finds the level with an asterisk in a list of amdgpu: "1: 2400Mhz *".
func activeLevel(list string) string {
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "*" {
			return strings.TrimSuffix(strings.ToLower(f[1]), "mhz")
		}
	}
	return ""
}

// scaled divides a number, "" if it is none.
func scaled(text string, by float64) string {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatFloat(x/by, 'f', -1, 64)
}
