// Package spvpack rewrites modules of SPIR-V so that they compress well, and reads archives of them. A compiler numbers
// the values of a module anew in each variant of a kernel; packed, an operand is how far back its value was made, so
// that equal code has equal bytes.
//
// Packed, a module is numbers of seven bits a byte (binary.Uvarint): its header's five words, then of each
// instruction the opcode, the number of words, its type as it is, its result as the distance from the next number, and
// the other operands. One that lies less than near before the last result is twice its distance, another twice itself
// and one. Which instructions have a type and a result is a matter of size alone: both directions read one table.
package spvpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Magic is a module's first word.
const Magic = 0x07230203

const (
	header = 5   // words
	near   = 400 // what of the program's kernels made the fewest bytes
)

// parts says whether an instruction has a type and a result. Those of the specification's groups for names,
// modes, decorations, memory without a result and control flow have none.
func parts(op uint32) (typed, result bool) {
	switch {
	case op == 7, op == 11, op >= 19 && op <= 39, op == 248, op == 4456: // strings, imports, types, labels
		return false, true
	case op <= 17 && op != 12 && op != 1, op == 56, op >= 62 && op <= 64, op >= 71 && op <= 76, op == 99,
		op >= 218 && op <= 225, op == 228, op >= 246 && op <= 255, op == 317, op == 332, op == 4458:
		return false, false
	}
	return true, true
}

// Pack packs the words of a module.
func Pack(words []uint32) ([]byte, error) {
	if len(words) < header || words[0] != Magic {
		return nil, errors.New("this is no module of SPIR-V: its first word is another")
	}
	var out []byte
	put := func(v uint64) { out = binary.AppendUvarint(out, v) }
	for _, w := range words[:header] {
		put(uint64(w))
	}
	last := uint32(0)
	for at := header; at < len(words); {
		op, n := words[at]&0xffff, int(words[at]>>16)
		if n == 0 || at+n > len(words) {
			return nil, fmt.Errorf("the instruction at word %d has %d words, %d are left", at, n, len(words)-at)
		}
		put(uint64(op))
		put(uint64(n))
		rest := words[at+1 : at+n]
		typed, result := parts(op)
		if typed && len(rest) > 0 {
			put(uint64(rest[0]))
			rest = rest[1:]
		}
		if result && len(rest) > 0 {
			d := int32(rest[0] - last - 1)
			put(uint64(uint32(d<<1 ^ d>>31)))
			last, rest = rest[0], rest[1:]
		}
		for _, w := range rest {
			if d := last - w; d < near {
				put(uint64(d) << 1)
			} else {
				put(uint64(w)<<1 | 1)
			}
		}
		at += n
	}
	return out, nil
}

// reader takes numbers from packed bytes; behind the first error it gives zeros.
type reader struct {
	from []byte
	err  error
}

func (r *reader) next(most uint64) uint64 {
	v, n := binary.Uvarint(r.from)
	if n <= 0 || v > most {
		r.err, r.from = errors.New("the packed module is cut off or damaged"), nil
		return 0
	}
	r.from = r.from[n:]
	return v
}

// Plain gives the words of a module that is not packed.
func Plain(code []byte) ([]uint32, error) {
	if len(code)%4 != 0 {
		return nil, fmt.Errorf("a module of %d bytes: a number of whole words is expected", len(code))
	}
	words := make([]uint32, len(code)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(code[4*i:])
	}
	return words, nil
}

// Unpack gives the words of a packed module.
func Unpack(packed []byte) ([]uint32, error) {
	r := &reader{from: packed}
	words := make([]uint32, 0, 2*len(packed)/3)
	word := func() uint32 {
		v := uint32(r.next(math.MaxUint32))
		words = append(words, v)
		return v
	}
	for range header {
		word()
	}
	last := uint32(0)
	for len(r.from) > 0 {
		op, n := uint32(r.next(math.MaxUint16)), int(r.next(math.MaxUint16))
		if r.err == nil && (n == 0 || n-1 > len(r.from)) {
			r.err = errors.New("the packed module has an instruction that is longer than what is left")
		}
		if r.err != nil {
			break
		}
		words = append(words, op|uint32(n)<<16)
		left := n - 1
		typed, result := parts(op)
		if typed && left > 0 {
			word()
			left--
		}
		if result && left > 0 {
			d := uint32(r.next(math.MaxUint32))
			last += d>>1 ^ -(d & 1) + 1
			words = append(words, last)
			left--
		}
		for ; left > 0; left-- {
			if v := r.next(1<<33 - 1); v&1 == 0 {
				words = append(words, last-uint32(v>>1))
			} else {
				words = append(words, uint32(v>>1))
			}
		}
	}
	if r.err == nil && words[0] != Magic {
		r.err = errors.New("the packed module is none of SPIR-V: its first word is another")
	}
	return words, r.err
}
