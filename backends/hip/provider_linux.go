//go:build linux && !nogpu && (amd64 || arm64)

package hip

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ebitengine/purego"
)

// library is a provider behind real libraries.
type library struct {
	who     vendor
	addr    [numFns]uintptr
	paths   []string
	isas    []string
	missing []string
}

func (l *library) vendor() vendor    { return l.who }
func (l *library) has(f fn) bool     { return l.addr[f] != 0 }
func (l *library) files() []string   { return l.paths }
func (l *library) targets() []string { return l.isas }

func (l *library) invoke(f fn, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(l.addr[f], args...)
	return r
}

// Where distributions put the libraries, beside the loader's own path.
var (
	folders = [...][]string{
		amd:    {"/opt/rocm/lib", "/opt/rocm-*/lib", "/opt/rocm/core-*/lib", "/usr/lib/*-linux-gnu", "/usr/lib64/rocm/*/lib"},
		nvidia: {"/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib", "/usr/local/cuda-*/lib64", "/usr/local/cuda-*/targets/*/lib", "/usr/local/nvidia/lib64", "/usr/lib/*-linux-gnu", "/usr/lib/wsl/lib"},
	}
	drivers = [...][]string{
		amd:    {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
		nvidia: {"libcuda.so.1"},
	}
	compilers = [...][]string{
		amd:    {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"},
		nvidia: {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
	}
	comgrs = []string{"libamd_comgr.so.3", "libamd_comgr.so.2", "libamd_comgr.so"}
)

// open loads the first library that can be loaded: from the folders given
// first, by the loader's path, then from the usual folders.
func open(names []string, who vendor, first ...string) (uintptr, string, error) {
	var dirs []string
	for _, f := range first {
		dirs = append(dirs, filepath.SplitList(f)...)
	}
	var candidates []string
	for _, dir := range dirs {
		for _, n := range names {
			candidates = append(candidates, filepath.Join(dir, n))
		}
	}
	candidates = append(candidates, names...)
	for _, pattern := range folders[who] {
		for _, n := range names {
			found, _ := filepath.Glob(filepath.Join(pattern, n))
			candidates = append(candidates, found...)
		}
	}
	var firstErr error
	for _, path := range candidates {
		h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err == nil && h != 0 {
			return h, path, nil
		}
		if firstErr == nil || !strings.Contains(err.Error(), "No such file") && strings.Contains(firstErr.Error(), "No such file") {
			firstErr = err
		}
	}
	return 0, "", fmt.Errorf("%s could not be loaded: %v", strings.Join(names, ", "), firstErr)
}

// load opens a provider's libraries. $GRETA_HIP_LIB names folders to look in first.
func load(who vendor) (provider, error) {
	extra := os.Getenv("GRETA_HIP_LIB")
	h, path, err := open(drivers[who], who, extra)
	if err != nil {
		return nil, err
	}
	l := &library{who: who, paths: []string{path}}
	rtc, rtcPath, rtcErr := open(compilers[who], who, extra, filepath.Dir(path))
	switch {
	case rtcErr == nil:
		l.paths = append(l.paths, rtcPath)
	case who == amd:
		rtc = h // before ROCm 6 the compiler is in the runtime
	}
	for f := range numFns {
		name, from := who.symbol(f), h
		if f >= fnRtcVersion {
			from = rtc
		}
		if name == "" || from == 0 {
			continue
		}
		if addr, err := purego.Dlsym(from, name); err == nil {
			l.addr[f] = addr
		} else {
			l.missing = append(l.missing, name)
		}
	}
	if who == amd {
		if h, path, err := open(comgrs, amd, extra, filepath.Dir(l.paths[0])); err == nil {
			l.isas = comgrTargets(h)
			l.paths = append(l.paths, path)
		}
	}
	return l, nil
}

// comgrTargets lists the architectures that AMD's compiler knows: it aborts
// the process for any other.
func comgrTargets(h uintptr) []string {
	count, err1 := purego.Dlsym(h, "amd_comgr_get_isa_count")
	name, err2 := purego.Dlsym(h, "amd_comgr_get_isa_name")
	if err1 != nil || err2 != nil {
		return nil
	}
	out := newOuts()
	defer out.keep()
	if r, _, _ := purego.SyscallN(count, out.at(0)); int32(r) != 0 || out.v[0] > 1000 {
		return nil
	}
	var all []string
	for i := range uintptr(out.v[0]) {
		out.v[1] = 0
		if r, _, _ := purego.SyscallN(name, i, out.at(1)); int32(r) != 0 {
			continue
		}
		isa := goString(uintptr(out.v[1])) // amdgcn-amd-amdhsa--gfx90a
		all = append(all, isa[strings.LastIndexByte(isa, '-')+1:])
	}
	return all
}
