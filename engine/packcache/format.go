package packcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/greta-project/greta/internal/mapped"
)

// The header, little-endian:
//
//	 0  magic, 8 bytes
//	 8  bytes of the file, u64
//	16  key, 32 bytes
//	48  SHA-256 of the header's pages without this field, 32 bytes
//	80  CRC-32C of each piece of the contents, u32
//
// then, each on a page, the entries, whose pages are filled up with zeros that their last piece has too.
const (
	magic   = "gretaPk2" // layout of the file, and what a key is made of
	keyAt   = 16
	sumAt   = 48
	fixed   = 80
	page    = 4096
	piece   = 8 << 20 // bytes under one CRC
	maxSize = 1 << 46
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// layout is where a model's entries lie in its file.
type layout struct {
	key            [32]byte
	offsets, sizes []int
	pieces         []int // first CRC of each entry, and their number behind the last
	size           int
}

func newLayout(m Model) (layout, error) {
	l := layout{}
	h := sha256.New()
	word := func(n int) { _ = binary.Write(h, binary.LittleEndian, uint64(n)) }
	text := func(s string) { word(len(s)); h.Write([]byte(s)) }
	// Packed forms are read by the machine's own loads, and other machines
	// may share a home.
	text(magic + " " + runtime.GOARCH)
	text(string(m.Identity))
	pieces, total := 0, 0.0
	for _, e := range m.Entries {
		if e.Size < 0 {
			return l, fmt.Errorf("%s: a packed form of %d bytes", e.Name, e.Size)
		}
		text(e.Name)
		text(e.Recipe)
		word(e.Size)
		l.pieces = append(l.pieces, pieces)
		pieces += (pages(e.Size) + piece - 1) / piece
		total += float64(e.Size) + page
	}
	if total > maxSize || total > math.MaxInt/2 {
		return l, fmt.Errorf("packed forms of %.0f bytes are more than a file takes", total)
	}
	l.pieces = append(l.pieces, pieces)
	l.size = pages(fixed + 4*pieces)
	for _, e := range m.Entries {
		l.offsets = append(l.offsets, l.size)
		l.sizes = append(l.sizes, e.Size)
		l.size += pages(e.Size)
	}
	h.Sum(l.key[:0])
	return l, nil
}

func pages(n int) int { return (n + page - 1) / page * page }

// fileName is made of letters that every file system takes.
func (l *layout) fileName(label string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, label)
	clean = strings.Trim(clean, ".-")
	if len(clean) > 80 {
		clean = clean[:80]
	}
	return clean + "." + hex.EncodeToString(l.key[:12]) + suffix
}

func (l *layout) crcs() int { return l.pieces[len(l.pieces)-1] }

// sum stores the checksums of entry i.
func (l *layout) sum(data []byte, i int) {
	l.eachPiece(i, i+1, func(n int, b []byte) bool {
		binary.LittleEndian.PutUint32(data[fixed+4*n:], crc32.Checksum(b, castagnoli))
		return true
	}, data)
}

// verify compares the contents with their checksums.
func (l *layout) verify(data []byte) error {
	ok := l.eachPiece(0, len(l.sizes), func(n int, b []byte) bool {
		return binary.LittleEndian.Uint32(data[fixed+4*n:]) == crc32.Checksum(b, castagnoli)
	}, data)
	if !ok {
		return fmt.Errorf("its contents do not match their checksums")
	}
	return nil
}

// eachPiece calls f for the pieces of entries [from, to) on all cores and says
// whether all were true.
func (l *layout) eachPiece(from, to int, f func(n int, b []byte) bool, data []byte) bool {
	var next atomic.Int64
	var bad atomic.Bool
	next.Store(int64(l.pieces[from]))
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), l.pieces[to]-l.pieces[from]) {
		wg.Go(func() {
			mapped.Watch()
			defer mapped.Recover()
			entry := from
			for !bad.Load() {
				n := int(next.Add(1)) - 1
				if n >= l.pieces[to] {
					return
				}
				for n >= l.pieces[entry+1] {
					entry++
				}
				at := (n - l.pieces[entry]) * piece
				b := data[l.offsets[entry]+at:][:min(piece, pages(l.sizes[entry])-at)]
				if !f(n, b) {
					bad.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return !bad.Load()
}

// headerSize is that of the pages before the first entry.
func (l *layout) headerSize() int { return pages(fixed + 4*l.crcs()) }

// headerSum covers the header's pages but for itself.
func (l *layout) headerSum(data []byte) [32]byte {
	h := sha256.New()
	h.Write(data[:sumAt])
	h.Write(data[fixed:l.headerSize()])
	return [32]byte(h.Sum(nil))
}

// putHeader writes the header around the checksums that sum has stored.
func (l *layout) putHeader(data []byte) {
	copy(data, magic)
	binary.LittleEndian.PutUint64(data[8:], uint64(l.size))
	copy(data[keyAt:], l.key[:])
	sum := l.headerSum(data)
	copy(data[sumAt:], sum[:])
}

// check says what is wrong with a file of the right length.
func (l *layout) check(data []byte) error {
	switch {
	case string(data[:8]) != magic:
		return fmt.Errorf("it starts with %q, not %q", data[:8], magic)
	case binary.LittleEndian.Uint64(data[8:]) != uint64(l.size):
		return fmt.Errorf("its header speaks of %d bytes, not %d", binary.LittleEndian.Uint64(data[8:]), l.size)
	case !bytes.Equal(data[keyAt:sumAt], l.key[:]):
		return fmt.Errorf("it holds other weights")
	}
	if sum := l.headerSum(data); !bytes.Equal(data[sumAt:fixed], sum[:]) {
		return fmt.Errorf("its header does not match its checksum")
	}
	return l.verify(data)
}
