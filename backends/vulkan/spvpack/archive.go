package spvpack

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Index is the file of an archive's folder that names its modules: a line for each, "GROUP NAME BYTES HASH", in the
// order in which they lie packed one behind another in GROUP.zst. Bytes are those it has packed, and the hash is of
// its SPIR-V.
const Index = "modules"

// Archive is a folder of modules in groups. Variants of a kernel are a group, compressed as one: most of their bytes
// are equal. A group is unpacked when a module of it is first asked for, and stays in memory.
type Archive struct {
	names   []string
	modules map[string]member
	groups  map[string]func() ([]byte, error)
}

type member struct {
	group    string
	from, to int
	hash     string
}

// OpenArchive reads the index of a folder.
func OpenArchive(dir fs.FS) (*Archive, error) {
	index, err := fs.ReadFile(dir, Index)
	if err != nil {
		return nil, err
	}
	a := &Archive{modules: map[string]member{}, groups: map[string]func() ([]byte, error){}}
	end := map[string]int{}
	n := 0
	for line := range strings.Lines(string(index)) {
		n++
		f := strings.Fields(line)
		if len(f) != 4 {
			return nil, fmt.Errorf("line %d of %s is not GROUP NAME BYTES HASH: %q", n, Index, line)
		}
		group, name, hash := f[0], f[1], f[3]
		size, err := strconv.ParseUint(f[2], 10, 31)
		if err != nil {
			return nil, fmt.Errorf("line %d of %s: the bytes of %s: %w", n, Index, name, err)
		}
		if _, ok := a.modules[name]; ok {
			return nil, fmt.Errorf("line %d of %s has %s a second time", n, Index, name)
		}
		from := end[group]
		end[group] = from + int(size)
		a.modules[name] = member{group, from, end[group], hash}
		a.names = append(a.names, name)
	}
	for group := range end {
		a.groups[group] = sync.OnceValues(func() ([]byte, error) { return readGroup(dir, group) })
	}
	slices.Sort(a.names)
	return a, nil
}

// unpacker decodes what fits memory at once; it starts nothing.
var unpacker = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
})

func readGroup(dir fs.FS, group string) ([]byte, error) {
	packed, err := fs.ReadFile(dir, group+".zst")
	if err != nil {
		return nil, err
	}
	z, err := unpacker()
	if err != nil {
		return nil, err
	}
	return z.DecodeAll(packed, nil)
}

// Names are the names of all modules, in order. They are not to be changed.
func (a *Archive) Names() []string { return a.names }

// Hash is a hash of a module's SPIR-V, "" where there is no such module.
func (a *Archive) Hash(name string) string { return a.modules[name].hash }

// Group is the group of a module, "" where there is no such module.
func (a *Archive) Group(name string) string { return a.modules[name].group }

// Words gives the words of a module, aligned as Vulkan wants them.
func (a *Archive) Words(name string) ([]uint32, error) {
	m, ok := a.modules[name]
	if !ok {
		return nil, fmt.Errorf("there is no kernel %s", name)
	}
	group, err := a.groups[m.group]()
	if err == nil && m.to > len(group) {
		err = errors.New("the archive is shorter than its index says")
	}
	if err != nil {
		return nil, fmt.Errorf("the kernel %s of %s.zst: %w", name, m.group, err)
	}
	words, err := Unpack(group[m.from:m.to])
	if err == nil && hashOf(words) != m.hash {
		err = errors.New("the archive has other code than its index says")
	}
	if err != nil {
		return nil, fmt.Errorf("the kernel %s of %s.zst: %w", name, m.group, err)
	}
	return words, nil
}

// Line packs a module: its bytes of a group, and its line of the index.
func Line(group, name string, words []uint32) (packed []byte, line string, err error) {
	if packed, err = Pack(words); err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	return packed, fmt.Sprintf("%s %s %d %s\n", group, name, len(packed), hashOf(words)), nil
}

func hashOf(words []uint32) string {
	h := sha256.Sum256(Bytes(words))
	return hex.EncodeToString(h[:8])
}

// Bytes gives the bytes of words as a file of SPIR-V has them.
func Bytes(words []uint32) []byte {
	out := make([]byte, 0, 4*len(words))
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}
