package hip

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/greta-project/greta/backends"
)

// Library is a library of a provider as it was looked for.
type Library struct {
	Role  string `json:"role"` // runtime, compiler, targets
	Path  string `json:"path,omitempty"`
	Error string `json:"error,omitempty"` // why there is none
	// Broken says that a file of such a name is there, but cannot be loaded.
	Broken bool `json:"broken,omitempty"`
}

// Provider is what was found of a platform.
type Provider struct {
	Name      string    `json:"name"` // amd, nvidia
	Libraries []Library `json:"libraries"`
	Missing   []string  `json:"missing_symbols,omitempty"`
	Without   []string  `json:"missing_optional,omitempty"` // functions that greta does without, and what that costs
	Driver    string    `json:"driver,omitempty"`
	Compiler  string    `json:"compiler,omitempty"` // its version
	Targets   []string  `json:"targets,omitempty"`  // that the compiler knows; nil: it does not say
	Devices   []Found   `json:"devices"`
	Error     string    `json:"error,omitempty"` // why there is no device
	// Broken says that the error is more than there being no card.
	Broken bool `json:"broken,omitempty"`
}

// Diagnose looks for both platforms and says what it found.
func Diagnose() []Provider {
	var all []Provider
	for _, who := range []vendor{amd, nvidia} {
		p := Provider{Name: who.String(), Devices: []Found{}}
		l, libraries := find(who)
		p.Libraries = libraries
		if l != nil {
			p.diagnose(&driver{mask(l)})
		}
		all = append(all, p)
	}
	return all
}

func (p *Provider) diagnose(d *driver) {
	for f := range numFns {
		name := d.vendor().symbol(f)
		switch {
		case name == "" || d.has(f):
		case f.optional() != "":
			p.Without = append(p.Without, name+": "+f.optional())
		default:
			p.Missing = append(p.Missing, name)
		}
	}
	p.Targets = d.targets()
	found, err := d.devices()
	if d.has(fnRtcVersion) {
		out := newOuts()
		if err := d.check(fnRtcVersion, "", d.invokeChecked(fnRtcVersion, []uintptr{out.at(0), out.at(1)})); err == nil {
			p.Compiler = fmt.Sprintf("%d.%d", int32(out.v[0]), int32(out.v[1]))
		}
		out.keep()
	}
	p.Devices = append(p.Devices, found...)
	if err != nil {
		p.Error = err.Error()
		p.Broken = !errors.As(err, new(*backends.NoDevice))
		return
	}
	if p.Driver, err = d.driverName(cmp.Or(p.Compiler, "none")); err != nil {
		p.Error, p.Broken = err.Error(), true
	}
}

// Warnings are what the environment does that results may suffer from.
func Warnings() []string {
	if v := os.Getenv("HSA_OVERRIDE_GFX_VERSION"); v != "" {
		return []string{"HSA_OVERRIDE_GFX_VERSION=" + v + " is set: kernels are compiled for an architecture that the " +
			"card only claims to be"}
	}
	return nil
}

// masked is NVIDIA's driver with HIP_VISIBLE_DEVICES, which it does not know:
// it lists the devices that are there, by their numbers, in a new order. AMD's
// runtime honours it, and ROCR_VISIBLE_DEVICES, by itself.
type masked struct {
	provider
	visible []int
}

// mask hides devices as the environment says. CUDA_VISIBLE_DEVICES is the
// driver's own and goes before.
func mask(p provider) provider {
	list, ok := os.LookupEnv("HIP_VISIBLE_DEVICES")
	if _, own := os.LookupEnv("CUDA_VISIBLE_DEVICES"); p.vendor() != nvidia || !ok || own {
		return p
	}
	m := &masked{provider: p}
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 0 {
			break // as AMD's runtime does: what follows is not seen
		}
		m.visible = append(m.visible, n)
	}
	return m
}

func (m *masked) invoke(f fn, a []uintptr) uintptr {
	switch f {
	case fnDeviceCount:
		code := m.provider.invoke(f, a)
		if code != 0 {
			return code
		}
		count := word32(a[0])
		for i, n := range m.visible {
			if n >= int(*count) {
				m.visible = m.visible[:i]
				break
			}
		}
		*count = int32(len(m.visible))
		return 0
	case fnDevice:
		if n := int(a[1]); n < len(m.visible) {
			return m.provider.invoke(f, []uintptr{a[0], uintptr(m.visible[n])})
		}
		return errInvalidDevice
	}
	return m.provider.invoke(f, a)
}
