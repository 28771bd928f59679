//go:build linux && !nogpu && (amd64 || arm64)

package hip

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"

	"github.com/greta-project/greta/tensor"
)

// library is a provider behind real libraries.
type library struct {
	who   vendor
	addr  [numFns]uintptr
	paths []string
	isas  []string
}

func (l *library) vendor() vendor    { return l.who }
func (l *library) has(f fn) bool     { return l.addr[f] != 0 }
func (l *library) files() []string   { return l.paths }
func (l *library) targets() []string { return l.isas }

func (l *library) invoke(f fn, args []uintptr) uintptr {
	if f == fnOpenShared {
		args = byValue(args)
	}
	r, _, _ := purego.SyscallN(l.addr[f], args...)
	return r
}

// byValue passes a handle of 64 bytes, the second of three arguments, as C has a structure by value: on amd64 in the
// stack, behind all that lies in its six registers; on arm64 by its address.
func byValue(args []uintptr) []uintptr {
	if runtime.GOARCH != "amd64" {
		return args
	}
	all := []uintptr{args[0], args[2], 0, 0, 0, 0}
	for _, w := range tensor.View[uint64](view(args[1], handleBytes)) {
		all = append(all, uintptr(w))
	}
	return all
}

// Where distributions put the libraries, beside the loader's own path.
var (
	folders = [...][]string{
		amd: {"/opt/rocm/lib", "/opt/rocm-*/lib", "/opt/rocm/core-*/lib", "/usr/lib/*-linux-gnu", "/usr/lib64/rocm/*/lib"},
		nvidia: {"/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib", "/usr/local/cuda-*/lib64",
			"/usr/local/cuda-*/targets/*/lib", "/usr/local/nvidia/lib64", "/usr/lib/*-linux-gnu", "/usr/lib/wsl/lib"},
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
		if firstErr == nil || !strings.Contains(err.Error(), "No such file") &&
			strings.Contains(firstErr.Error(), "No such file") {
			firstErr = err
		}
	}
	return 0, "", fmt.Errorf("%s could not be loaded: %v", strings.Join(names, ", "), firstErr)
}

// load opens a provider's libraries. $GRETA_HIP_LIB names folders to look in first.
func load(who vendor) (provider, error) {
	l, libraries := find(who)
	if l == nil {
		return nil, errors.New(libraries[0].Error)
	}
	return l, nil
}

// find opens a provider's libraries and says of each what became of it; there is
// no provider without a runtime.
func find(who vendor) (provider, []Library) {
	extra := os.Getenv("GRETA_HIP_LIB")
	var all []Library
	note := func(role string, names []string, path string, err error) {
		lib := Library{Role: role, Path: path}
		if err != nil {
			lib.Error = err.Error()
			if here := present(names, who, extra); here != "" {
				lib.Path, lib.Broken = here, true
			}
		}
		all = append(all, lib)
	}
	h, path, err := open(drivers[who], who, extra)
	note("runtime", drivers[who], path, err)
	if err != nil {
		return nil, all
	}
	l := &library{who: who, paths: []string{path}}
	rtc, rtcPath, rtcErr := open(compilers[who], who, extra, filepath.Dir(path))
	switch {
	case rtcErr == nil:
		l.paths = append(l.paths, rtcPath)
		note("compiler", nil, rtcPath, nil)
	case who == amd && hasSymbol(h, who.symbol(fnRtcCompile)):
		rtc = h // before ROCm 6 the compiler is in the runtime
		note("compiler", nil, path, nil)
	default:
		note("compiler", compilers[who], "", rtcErr)
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
		}
	}
	if who == amd {
		h, path, err := open(comgrs, amd, extra, filepath.Dir(l.paths[0]))
		note("targets", comgrs, path, err)
		if err == nil {
			l.isas = comgrTargets(h)
			l.paths = append(l.paths, path)
		}
	}
	return l, all
}

func hasSymbol(h uintptr, name string) bool {
	_, err := purego.Dlsym(h, name)
	return err == nil
}

// present gives a file of one of the names in the usual folders, whether or not
// it can be loaded.
func present(names []string, who vendor, first string) string {
	for _, pattern := range append(filepath.SplitList(first), folders[who]...) {
		for _, n := range names {
			if found, _ := filepath.Glob(filepath.Join(pattern, n)); len(found) > 0 {
				return found[0]
			}
		}
	}
	return ""
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
