package schedule

import (
	"crypto/sha256"
	"encoding/binary"
)

// Hash names a full page: it depends on all tokens before the page's end and on
// what Root was given. Equal hashes mean equal content (SHA-256).
type Hash [sha256.Size]byte

// Root is where a chain of pages' hashes begins: pages are shared only among
// sequences of equal model, type of cache, adapter and salt.
func Root(model, cache, adapter, salt string) Hash {
	h := sha256.New()
	for _, s := range []string{model, cache, adapter, salt} {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return Hash(h.Sum(nil))
}

// next is the hash of the page that holds tokens, behind the page with hash h.
// buf is scratch memory.
func (h Hash) next(tokens []int32, buf *[]byte) Hash {
	b := append((*buf)[:0], h[:]...)
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	*buf = b
	return sha256.Sum256(b)
}

// index finds a page by its hash: open addressing with linear steps, half full
// at most. It allocates nothing after its making.
type index struct {
	table []int32 // page number, −1: empty
	hash  []Hash  // by page
}

func newIndex(pages int) index {
	n := 2
	for n < 2*pages {
		n *= 2
	}
	x := index{table: make([]int32, n), hash: make([]Hash, pages)}
	for i := range x.table {
		x.table[i] = -1
	}
	return x
}

func (x *index) home(h *Hash) int {
	return int(binary.LittleEndian.Uint64(h[:8]) & uint64(len(x.table)-1))
}

// find gives the page with hash h, −1 where there is none.
func (x *index) find(h *Hash) int32 {
	for i := x.home(h); ; i = (i + 1) & (len(x.table) - 1) {
		if p := x.table[i]; p < 0 || x.hash[p] == *h {
			return p
		}
	}
}

// put adds a page; its hash must not be there yet.
func (x *index) put(page int32, h *Hash) {
	x.hash[page] = *h
	i := x.home(h)
	for x.table[i] >= 0 {
		i = (i + 1) & (len(x.table) - 1)
	}
	x.table[i] = page
}

// remove takes a page out, and moves those behind it that belong before it.
func (x *index) remove(page int32) {
	mask := len(x.table) - 1
	i := x.home(&x.hash[page])
	for x.table[i] != page {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; x.table[j] >= 0; j = (j + 1) & mask {
		home := x.home(&x.hash[x.table[j]])
		if (j-home)&mask >= (j-i)&mask {
			x.table[i], i = x.table[j], j
		}
	}
	x.table[i] = -1
}

// Hashes are those of the full pages of size positions that a prompt can share: behind
// them at least one token is left.
func Hashes(root Hash, tokens []int32, size int) []Hash {
	var all []Hash
	var buf []byte
	for end := size; end < len(tokens); end += size {
		root = root.next(tokens[end-size:end], &buf)
		all = append(all, root)
	}
	return all
}

// Known counts the first of pages that the pool knows.
func (p *Pool) Known(pages []Hash) int {
	for i := range pages {
		if p.index.find(&pages[i]) < 0 {
			return i
		}
	}
	return len(pages)
}
