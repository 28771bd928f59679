// Package hip runs programs on GPUs through HIP: AMD's runtime, or NVIDIA's
// driver as HIP's other platform, over one table of functions and one set of
// kernels. Nothing is linked: the runtime libraries are loaded when a device is
// opened, and kernels are compiled for it then.
//
// A step is captured once as a graph and replayed; it is never changed. What
// changes from step to step lies in device memory that kernels read.
package hip

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/greta-project/greta/backends"
)

// Options choose a device and how it is used. The zero value takes the first.
type Options struct {
	Device string // "", "0", "nvidia:1", "gfx942", or a part of a name
	Cache  *Cache // of compiled kernels; nil: DefaultCache
	Built  string // folder of kernels compiled ahead of time; "": none
	// Compiler is a command that calls ServeCompiler on its standard input and
	// output: there AMD's run-time compiler, which can abort, takes nothing along.
	// nil: it runs in this process.
	Compiler []string
	// FP16 is On where the device opens with its paths of half precision on; see
	// backends.Pathed and docs/health.md.
	FP16 backends.Choice
	// Invariant makes results of a row the same, bit for bit, whatever rows are beside it in a step: kernels of products
	// are chosen as for backends.InvariantRows rows, and positions are cut by the length of each row alone.
	Invariant bool
}

// Found is a device that could be opened.
type Found struct {
	Provider string   `json:"provider"` // "amd", "nvidia"
	Index    int      `json:"index"`    // among the provider's
	Name     string   `json:"name"`
	Arch     string   `json:"arch"` // "gfx942", "sm_90"
	Memory   uint64   `json:"memory_bytes"`
	Files    []string `json:"files,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// ID is how Options.Device names it.
func (f Found) ID() string { return f.Provider + ":" + strconv.Itoa(f.Index) }

// List gives the devices of both providers, and why a provider has none.
func List() ([]Found, []error) {
	var all []Found
	var errs []error
	for _, who := range []vendor{amd, nvidia} {
		p, err := load(who)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", who, err))
			continue
		}
		found, err := (&driver{mask(p)}).devices()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", who, err))
		}
		all = append(all, found...)
	}
	return all, errs
}

// New opens a device. Its error is a *backends.NoDevice where there is none.
func New(opt Options) (*Device, error) {
	var reasons []string
	for _, who := range []vendor{amd, nvidia} {
		p, err := load(who)
		if err != nil {
			reasons = append(reasons, err.Error())
			continue
		}
		d := &driver{mask(p)}
		found, err := d.devices()
		if err != nil {
			var none *backends.NoDevice
			if !errors.As(err, &none) {
				return nil, err
			}
			reasons = append(reasons, who.String()+": "+none.Reason)
			continue
		}
		for _, f := range found {
			if matches(f, opt.Device) {
				return openDevice(d, f, opt)
			}
			reasons = append(reasons, fmt.Sprintf("%s (%s, %s) is not %q", f.ID(), f.Name, f.Arch, opt.Device))
		}
	}
	return nil, noDevice(strings.Join(reasons, "; "))
}

// matches says whether a device is what the user asked for.
func matches(f Found, want string) bool {
	want = strings.ToLower(strings.TrimSpace(want))
	return want == "" || want == strconv.Itoa(f.Index) || want == f.ID() || want == f.Provider || want == f.Arch ||
		len(want) > 2 && strings.Contains(strings.ToLower(f.Name), want)
}

// devices starts the driver and describes its devices.
func (d *driver) devices() ([]Found, error) {
	for _, f := range []fn{fnInit, fnDeviceCount, fnDevice, fnDeviceName, fnAttribute, fnSetDevice, fnAlloc, fnModuleLoad,
		fnLaunch} {
		if !d.has(f) {
			return nil, fmt.Errorf("%s has no %s: it is no usable runtime", strings.Join(d.files(), ", "), d.vendor().symbol(f))
		}
	}
	if err := d.call(fnInit, "", 0); err != nil {
		return nil, none(err)
	}
	n, err := d.get(fnDeviceCount, "", 0)
	if err != nil {
		return nil, none(err)
	}
	if int32(n) <= 0 {
		return nil, noDevice("the driver counts none")
	}
	var all []Found
	for i := range int(int32(n)) {
		f, err := d.describe(i)
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
	return all, nil
}

// none makes the codes that mean "no GPU" a NoDevice.
func none(err error) error {
	var e *Error
	if errors.As(err, &e) && (e.Code == errNoDevice || e.Code == errInvalidDevice || e.Code == 3 || e.Code == 999) {
		return noDevice(e.Error())
	}
	return err
}

func (d *driver) describe(i int) (Found, error) {
	f := Found{Provider: d.vendor().String(), Index: i, Files: d.files()}
	handle, err := d.get(fnDevice, "", 0, uintptr(i))
	if err != nil {
		return f, err
	}
	name := make([]byte, 256)
	if err := d.callBytes(fnDeviceName, 0, name, uintptr(len(name)), uintptr(handle)); err != nil {
		return f, err
	}
	f.Name = cString(name)
	if f.Memory, err = d.get(fnTotalMemory, "", 0, uintptr(handle)); err != nil {
		return f, err
	}
	if d.vendor() == nvidia {
		major, err := d.attribute(attrCapacityMajor, uintptr(handle))
		if err != nil {
			return f, err
		}
		minor, err := d.attribute(attrCapacityMinor, uintptr(handle))
		f.Arch = fmt.Sprintf("sm_%d%d", major, minor)
		return f, err
	}
	// The place of the name in the structure moved between versions: look for it.
	props := make([]byte, 4096)
	if err := d.callBytes(fnProperties, 0, props, uintptr(i)); err != nil {
		return f, err
	}
	if f.Arch = archName(props); f.Arch == "" {
		return f, fmt.Errorf("device %d (%s) does not say which gfx architecture it is", i, f.Name)
	}
	f.Warnings = Warnings()
	return f, nil
}

// archName finds gfx… in the properties of an AMD device, without its features.
func archName(props []byte) string {
	const prefix = "gfx"
	for at := 0; at+len(prefix) < len(props); at += 4 {
		if string(props[at:at+len(prefix)]) != prefix {
			continue
		}
		name, _, _ := strings.Cut(cString(props[at:]), ":")
		if len(name) >= 6 && len(name) <= 8 && strings.Trim(name[3:], "0123456789abcdef") == "" {
			return name
		}
	}
	return ""
}

func cString(b []byte) string {
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}

func (d *driver) attribute(a attribute, device uintptr) (int, error) {
	v, err := d.get(fnAttribute, "", 0, a.of(d.vendor()), device)
	return int(int32(v)), err
}
