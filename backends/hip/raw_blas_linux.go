//go:build linux && !nogpu && (amd64 || arm64)

package hip

import (
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

var blasNames = [...][]string{
	amd:    {"libhipblas.so.3", "libhipblas.so.2"},
	nvidia: {"libcublas.so.13", "libcublas.so.12", "libcublas.so"},
}

var lightNames = []string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}

// loadBLAS opens the vendor's library: where the driver and the run-time compiler
// were found first, then as they are looked for.
func loadBLAS(who vendor, beside []string) (*blasLibrary, error) {
	first := []string{os.Getenv("GRETA_HIP_LIB")}
	for _, f := range beside {
		first = append(first, filepath.Dir(f))
	}
	h, path, err := open(blasNames[who], who, first...)
	if err != nil {
		return nil, err
	}
	l := &blasLibrary{who: who, path: path}
	light := uintptr(0)
	if who == nvidia {
		// Without it products of 8-bit floats are left out.
		light, _, _ = open(lightNames, who, append(first, filepath.Dir(path))...)
	}
	for f := range numBLAS {
		from := h
		if f >= ltCreate {
			from = light
		}
		for _, name := range f.names(who, strings.HasSuffix(path, ".so.3")) {
			if addr, err := purego.Dlsym(from, name); from != 0 && err == nil && l.addr[f] == 0 {
				l.addr[f] = addr
			}
		}
	}
	return l, nil
}

func (l *blasLibrary) invoke(f blasFn, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(l.addr[f], args...)
	return r
}

func addressOf(p *uint64) uintptr { return uintptr(unsafe.Pointer(p)) }
