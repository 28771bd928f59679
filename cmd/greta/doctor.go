package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/engine/health"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/memlimit"
	"github.com/greta-project/greta/internal/versions"
)

// finding is one thing that doctor looked at.
type finding struct {
	Area   string `json:"area"`
	State  string `json:"state"` // ok | note | warning | broken
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
	// Parts are drivers and libraries with versions that a child process read; doctor judges them.
	Parts []versions.Part `json:"parts,omitempty"`
}

// The states. Only what the user has and does not work is broken: no GPU is none.
const (
	fine    = "ok"
	noted   = "note"
	warned  = "warning"
	isFault = "broken"
)

// doctor collects findings. root stands for the system's root in tests.
type doctor struct {
	root     string
	all      []finding
	verdicts []versions.Verdict
}

// In line it would be a tenth of a percent of the binary.
//
//go:noinline
func (d *doctor) say(area, state, remedy, format string, args ...any) {
	d.all = append(d.all, finding{Area: area, State: state, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// names adds to the last finding the versions that are read from it.
func (d *doctor) names(parts []versions.Part) { d.all[len(d.all)-1].Parts = parts }

func (d *doctor) path(elem ...string) string {
	return filepath.Join(append([]string{d.root, "/"}, elem...)...)
}

// read gives a small file's text, "" where there is none.
func (d *doctor) read(elem ...string) string {
	data, err := os.ReadFile(d.path(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (a *app) doctorCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what of this machine greta can use, and what stands in its way",
		Long: `doctor looks at the processor, memory, caches, permissions, variables, drivers,
libraries and devices, and says of each finding what can be done about it. What
loads drivers is done in child processes, so that one that crashes is a finding.

The exit code is 1 where something is broken that is there: a library that
cannot be loaded, a driver that fails, a device file without permission, a
cache that cannot be written. That there is no GPU, or no library of a platform,
is not broken; warnings are not either.

Versions of drivers and libraries are judged by the table of docs/versions.md:
tested, expected to work, known not to.`,
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			d := &doctor{}
			d.examine(c.Context())
			if err := c.Context().Err(); err != nil {
				return err
			}
			broken := 0
			for _, f := range d.all {
				if f.State == isFault {
					broken++
				}
			}
			var err error
			if asJSON {
				err = writeJSON(a.out, map[string]any{"version": version(), "findings": d.all, "versions": d.verdicts,
					"broken": broken})
			} else {
				_, err = io.WriteString(a.out, doctorText(d.all, broken))
			}
			if err == nil && broken > 0 {
				err = &exitError{code: exitFailed, err: fmt.Errorf("%d broken", broken), reported: true}
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// doctorText lists findings by area, with remedies below them.
func doctorText(all []finding, broken int) string {
	var b strings.Builder
	area := ""
	for _, f := range all {
		name := f.Area
		if name == area {
			name = ""
		}
		area = f.Area
		mark := map[string]string{fine: "ok", noted: "-", warned: "WARNING", isFault: "BROKEN"}[f.State]
		fmt.Fprintf(&b, "%-12s %-8s %s\n", name, mark, strings.ReplaceAll(f.Text, "\n", "; "))
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%-12s %-8s → %s\n", "", "", f.Remedy)
		}
	}
	if broken == 0 {
		b.WriteString("nothing is broken\n")
	} else {
		fmt.Fprintf(&b, "%d broken\n", broken)
	}
	return b.String()
}

func (d *doctor) examine(ctx context.Context) {
	d.say("program", fine, "", "greta %s, %s, %s/%s", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	d.processor()
	d.memory()
	d.caches()
	d.permissions()
	d.environment()
	d.gpus(ctx)
	d.versions()
	d.records()
}

func (d *doctor) processor() {
	dev, err := openBackend("cpu", deviceFlags{})
	if err != nil {
		d.say("processor", isFault, "", "%v", err)
		return
	}
	defer dev.Close()
	i := dev.Info()
	var levels []string
	for _, k := range simd.Levels() {
		levels = append(levels, k.Name)
	}
	d.say("processor", fine, "", "%s, kernels for %s (of %s), %d threads", i.Name, i.Level, strings.Join(levels, ", "),
		i.Threads)
	if n := runtime.NumCPU(); i.Threads < n {
		d.say("processor", noted, "", "%d of %d cores are used: the rest are hyperthreads, or a limit of this group of "+
			"processes", i.Threads, n)
	}
}

func (d *doctor) memory() {
	kb := map[string]int{}
	for line := range strings.Lines(d.read("proc/meminfo")) {
		if f := strings.Fields(line); len(f) >= 2 {
			kb[strings.TrimSuffix(f[0], ":")], _ = strconv.Atoi(f[1])
		}
	}
	if kb["MemTotal"] == 0 {
		d.say("memory", noted, "", "the system does not say how much there is")
		return
	}
	bytes := func(key string) string { return report.Bytes(float64(kb[key]) * 1024) }
	d.say("memory", fine, "", "%s, %s available", bytes("MemTotal"), bytes("MemAvailable"))
	if left := memlimit.Read(d.path()); strings.HasPrefix(left.By, "/") {
		d.say("memory", warned, "a model that needs more is refused: raise the container's limit",
			"this group of processes may use %s more (%s)", report.Bytes(float64(left.Bytes)), left.By)
	}
	switch text := d.read("sys/kernel/mm/transparent_hugepage/enabled"); {
	case strings.Contains(text, "[never]"):
		d.say("memory", noted, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled: large weights are "+
			"read a little faster", "huge pages are off")
	case text != "":
		d.say("memory", fine, "", "huge pages: %s", text)
	}
}

// leastFree is the room on disk below which caches are warned about.
const leastFree = 2 << 30

func (d *doctor) caches() {
	dir, err := os.UserCacheDir()
	if err != nil {
		d.say("caches", warned, "set HOME or XDG_CACHE_HOME: without a folder kernels are compiled, and weights packed, "+
			"at every start", "%v", err)
		return
	}
	root := filepath.Join(dir, "greta")
	if err := writable(root); err != nil {
		d.say("caches", isFault, "make it writable, or set XDG_CACHE_HOME to a folder that is", "%s: %v", root, err)
		return
	}
	d.say("caches", fine, "", "%s: %s", root, sizes(root))
	if free, ok := freeSpace(root); ok {
		if free < leastFree {
			d.say("caches", warned, "packed weights do not fit there: --cache DIR puts them elsewhere, --cache off keeps none",
				"%s are free on its disk", report.Bytes(free))
		} else {
			d.say("caches", fine, "", "%s are free on its disk", report.Bytes(free))
		}
	}
}

// writable makes a folder and a file in it, and removes the file.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "doctor-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errlist.Join(err, f.Close(), os.Remove(f.Name()))
}

// sizes sums what lies in each folder below dir.
func sizes(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	var parts []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		files, sum := 0, 0.0
		filepath.WalkDir(filepath.Join(dir, e.Name()), func(_ string, f fs.DirEntry, err error) error {
			if err != nil || f.IsDir() {
				return nil
			}
			if info, err := f.Info(); err == nil {
				files++
				sum += float64(info.Size())
			}
			return nil
		})
		parts = append(parts, fmt.Sprintf("%s %d files, %s", e.Name(), files, report.Bytes(sum)))
	}
	if len(parts) == 0 {
		return "empty"
	}
	return strings.Join(parts, "; ")
}

// permissions looks at the files through which drivers are reached.
func (d *doctor) permissions() {
	var seen []string
	for _, pattern := range []string{"dev/kfd", "dev/dri/renderD*", "dev/nvidiactl", "dev/nvidia[0-9]*", "dev/dxg"} {
		found, _ := filepath.Glob(d.path(pattern))
		for _, path := range found {
			name := "/" + strings.TrimPrefix(strings.TrimPrefix(path, d.root), "/")
			seen = append(seen, name)
			if usable(path) {
				d.say("permissions", fine, "", "%s can be used", name)
				continue
			}
			group, remedy := groupOf(path), "ask for read and write permission of it"
			if group != "" && group != "root" {
				remedy = fmt.Sprintf("sudo usermod -aG %s $USER, then log in again", group)
			}
			d.say("permissions", isFault, remedy, "%s belongs to the group %s, and you must not use it", name, group)
		}
	}
	cards := d.cards()
	has := func(prefix string) bool {
		return slices.ContainsFunc(seen, func(s string) bool { return strings.HasPrefix(s, prefix) })
	}
	const container = "in a container: docker run --device /dev/kfd --device /dev/dri; else load the driver (amdgpu)"
	switch {
	case cards["0x1002"] > 0 && !has("/dev/dri"):
		d.say("permissions", warned, container, "a card of AMD is in the machine, but there is no /dev/dri/renderD*")
	case cards["0x1002"] > 0 && !has("/dev/kfd"):
		d.say("permissions", warned, container, "a card of AMD is in the machine, but there is no /dev/kfd: HIP cannot "+
			"reach it, Vulkan can")
	case cards["0x10de"] > 0 && !has("/dev/nvidia"):
		d.say("permissions", warned, "in a container: docker run --gpus all; else install NVIDIA's driver",
			"a card of NVIDIA is in the machine, but there is no /dev/nvidia*")
	case len(seen) == 0:
		d.say("permissions", noted, "", "there are no device files of GPUs")
	}
}

// cards counts GPUs of the PCI bus by their vendors.
func (d *doctor) cards() map[string]int {
	n := map[string]int{}
	classes, _ := filepath.Glob(d.path("sys/bus/pci/devices/*/class"))
	for _, c := range classes {
		data, err := os.ReadFile(c)
		// Display controllers, and accelerators such as the MI series.
		if class := strings.TrimSpace(string(data)); err != nil ||
			!strings.HasPrefix(class, "0x03") && !strings.HasPrefix(class, "0x12") {
			continue
		}
		if v, err := os.ReadFile(filepath.Join(filepath.Dir(c), "vendor")); err == nil {
			n[strings.TrimSpace(string(v))]++
		}
	}
	return n
}

// variables are those that change what drivers do, beside greta's own.
var variables = []string{"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
	"HSA_OVERRIDE_GFX_VERSION",
	"LD_LIBRARY_PATH", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE",
	"VK_INSTANCE_LAYERS", "VK_LAYER_PATH",
	"MESA_VK_DEVICE_SELECT", "RADV_DEBUG", "AMD_DEBUG", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "GOMAXPROCS", "GOMEMLIMIT"}

// badManifest says why a file cannot tell Vulkan's loader of a driver; "" where it can, and of
// folders.
func badManifest(file string) string {
	info, err := os.Stat(file)
	if err == nil && info.IsDir() {
		return ""
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	var m struct {
		ICD struct {
			Library string `json:"library_path"`
		}
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Sprintf("%s: %v", file, err)
	}
	if m.ICD.Library == "" {
		return file + " names no library"
	}
	return ""
}

func (d *doctor) environment() {
	for _, name := range variables {
		v, ok := os.LookupEnv(name)
		if !ok {
			continue
		}
		state, remedy := noted, ""
		switch {
		case name == "HSA_OVERRIDE_GFX_VERSION":
			state, remedy = warned, "unset it unless the card has no kernels of its own: wrong code may give wrong numbers "+
				"or hang the card"
		case name == "VK_DRIVER_FILES" || name == "VK_ICD_FILENAMES":
			var bad []string
			for _, file := range filepath.SplitList(v) {
				if why := badManifest(file); why != "" {
					bad = append(bad, why)
				}
			}
			if bad != nil {
				state, remedy = warned, "unset it, or name manifests of drivers there: "+strings.Join(bad, "; ")
			}
		case strings.HasSuffix(name, "_VISIBLE_DEVICES") && (v == "" || v == "-1"):
			state, remedy = warned, "unset it: it hides every device"
		case strings.HasSuffix(name, "_VISIBLE_DEVICES"):
			remedy = "devices that it does not name are not seen"
		}
		d.say("environment", state, remedy, "%s=%s", name, v)
	}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "GRETA_") && !strings.HasPrefix(kv, "GRETA_TEST") {
			d.say("environment", noted, "", "%s", kv)
		}
	}
	if _, path, err := readConfig((&app{}).root()); err == nil && path != "" {
		if _, err := os.Stat(path); err == nil {
			d.say("environment", noted, "", "settings are read from %s", path)
		}
	}
}

// probeLimit is how long a platform's drivers may take to answer.
const probeLimit = time.Minute

// gpus asks each platform in a child process.
func (d *doctor) gpus(ctx context.Context) {
	for _, area := range gpuAreas {
		command := self("doctor", area)
		if command == nil {
			d.say(area, warned, "", "not looked at: the program does not know where it lies")
			continue
		}
		out, err := child.Run(ctx, command, nil, probeLimit)
		var found []finding
		if e := json.Unmarshal(out, &found); err == nil && e != nil {
			err = fmt.Errorf("what the child process said cannot be read: %v", e)
		}
		d.all = append(d.all, found...)
		if err != nil && ctx.Err() == nil {
			d.say(area, isFault, "the driver is at fault: update it, or leave this backend alone", "%v", err)
		}
	}
}

// internalDoctorCmd looks at a platform and writes its findings.
func (a *app) internalDoctorCmd() *cobra.Command {
	return &cobra.Command{Use: "doctor AREA", Args: exactly(1, "an area"),
		RunE: func(_ *cobra.Command, args []string) error {
			out, err := child.Stdout()
			if err != nil {
				return err
			}
			d := &doctor{}
			d.probe(args[0])
			return writeJSON(out, d.all)
		}}
}

// records lists what health checks have decided.
func (d *doctor) records() {
	path := health.DefaultFile()
	all, err := health.Records(path)
	if err != nil {
		d.say("health", warned, "paths are checked again at every start: delete the file", "%s: %v", path, err)
	}
	for _, r := range all {
		what := fmt.Sprintf("%s: %s of %s (%s) %s on %s", r.Backend, r.Path, r.Device, r.Driver, r.Verdict,
			r.Time.Format("2006-01-02"))
		if r.Verdict == health.Passed {
			d.say("health", fine, "", "%s", what)
			continue
		}
		d.say("health", warned, "the path is not used with this driver; after an update it is checked anew, and by greta "+
			"smoke --recheck at once", "%s: %s", what, r.Reason)
	}
	if len(all) == 0 && err == nil {
		d.say("health", noted, "", "no fast path of a GPU was checked yet")
	}
}
