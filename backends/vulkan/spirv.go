//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/greta-project/greta/backends/vulkan/spvpack"
)

// The compiled kernels; make.sh makes them from the .comp files. Each is packed and compressed by itself, an eighth of
// its size, and unpacked when a pipeline of it is made, which takes a driver tens of milliseconds.
//
//go:embed spirv/*.spv.zst
var packedModules embed.FS

const packedSuffix = ".spv.zst"

// moduleNames are the names of all modules, in order.
var moduleNames = sync.OnceValue(func() []string {
	list, err := packedModules.ReadDir("spirv")
	if err != nil { // the files are part of the program
		panic(err)
	}
	var names []string
	for _, f := range list {
		names = append(names, strings.TrimSuffix(f.Name(), packedSuffix))
	}
	slices.Sort(names)
	return names
})

func packedModule(name string) ([]byte, error) {
	return packedModules.ReadFile("spirv/" + name + packedSuffix)
}

// unpacker decodes what fits memory at once; it starts nothing.
var unpacker = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
})

// spirv gives the words of a module, aligned as Vulkan wants them.
func spirv(name string) ([]uint32, error) {
	packed, err := packedModule(name)
	if err != nil {
		return nil, err
	}
	z, err := unpacker()
	if err != nil {
		return nil, err
	}
	code, err := z.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("the kernel %s: %w", name, err)
	}
	words, err := spvpack.Words(code)
	if err != nil {
		return nil, fmt.Errorf("the kernel %s: %w", name, err)
	}
	return words, nil
}

// codeOf is a hash of all modules whose names are one of the stems, or begin with one and a "_".
func codeOf(stems ...string) string {
	h := sha256.New()
	for _, name := range moduleNames() {
		if !slices.ContainsFunc(stems, func(s string) bool { return name == s || strings.HasPrefix(name, s+"_") }) {
			continue
		}
		code, err := packedModule(name)
		if err != nil {
			return ""
		}
		fmt.Fprintln(h, name, len(code))
		h.Write(code)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
