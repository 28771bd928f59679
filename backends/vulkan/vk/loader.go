//go:build linux && (amd64 || arm64) && !nogpu

// Package vk binds the commands of Vulkan that the backend calls, generated
// from the registry by tools/vkgen, without cgo.
//
// Ownership is Vulkan's: what Create or Allocate gave is given back by Destroy
// or Free. Pointers are read during the call only; structs that hold pointers must
// be made by composite literals or new, so that the collector sees them. Every
// structure with a type field is set up by its Init.
package vk

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

//go:generate go run ../../../tools/vkgen -dir ../../../tools/vkgen -o .

// Error gives the registry's name of a result code.
func (r Result) Error() string {
	if name, ok := resultNames[r]; ok {
		return name
	}
	return fmt.Sprintf("VkResult(%d)", int32(r))
}

// Loader is the system's Vulkan loader.
type Loader struct {
	Path string
	get  uintptr // vkGetInstanceProcAddr
}

// libraries are the names under which the loader is installed.
var libraries = []string{"libvulkan.so.1", "libvulkan.so"}

// Open finds the loader: by these names, or by the usual ones where none are given.
func Open(names ...string) (*Loader, error) {
	if len(names) == 0 {
		names = libraries
	}
	var errs []string
	for _, name := range names {
		lib, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		get, err := purego.Dlsym(lib, "vkGetInstanceProcAddr")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return &Loader{name, get}, nil
	}
	return nil, errors.New(strings.Join(errs, "; "))
}

// Global resolves the commands that need no instance.
func (l *Loader) Global() *Commands { return resolve("g", l.get, 0) }

// ForInstance resolves the commands of an instance and its physical devices.
func (l *Loader) ForInstance(i Instance) *Commands { return resolve("i", l.get, uintptr(i)) }

// ForDevice resolves a device's commands, without the loader's dispatch in between.
func ForDevice(i *Commands, d Device) *Commands {
	return resolve("d", i.GetDeviceProcAddrAddr, uintptr(d))
}

// resolve asks get for all commands of a level.
func resolve(level string, get, handle uintptr) *Commands {
	c := &Commands{}
	addrs := unsafe.Slice((*uintptr)(unsafe.Pointer(c)), len(names))
	for i, name := range names {
		if levels[i] == level[0] {
			s := CString(name)
			addrs[i], _, _ = purego.SyscallN(get, handle, uintptr(unsafe.Pointer(s)))
			runtime.KeepAlive(s)
		}
	}
	return c
}

// CString makes a string that ends in a zero byte.
func CString(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

// CStrings makes an array of strings, nil where there are none.
func CStrings(list []string) **byte {
	if len(list) == 0 {
		return nil
	}
	p := make([]*byte, len(list))
	for i, s := range list {
		p[i] = CString(s)
	}
	return &p[0]
}

// GoString reads an array that ends in a zero byte or at its length.
func GoString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// GoStringAt reads a C string, "" for nil.
func GoStringAt(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
