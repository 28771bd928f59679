// Package spvpack rewrites modules of SPIR-V so that they compress well, and reads archives of them. A compiler numbers
// the values of a module anew in each variant of a kernel; packed, an operand is how far back its value was made, and a
// type, constant or variable is named by what it is, so that equal code has equal bytes, whatever stands before it.
//
// Packed, a module is numbers of seven bits a byte (binary.Uvarint): its header's five words, then of each
// instruction the opcode, the number of words, its type, its result as the distance from the next number, and the other
// operands (numbers.number). A type is its place, or what is left of it behind the places. Which instructions have a
// type and a result is a matter of size alone: both directions read one table.
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

// numbers turns operands into numbers and back: both directions see the instructions before.
type numbers struct {
	last   uint32            // result
	first  uint32            // the last result before functions
	body   bool              // in functions
	places map[uint32]uint32 // of what is made before functions: by results
	ids    [places]uint32    // results by place
	used   [places]bool
	count  int // of places that are used
}

// places is how many names there are for what is made before functions.
const places = 2048

// What a number that is not twice a distance ends with, in three bits.
const (
	literal = 1 // a number as it is
	global  = 3 // a place
	behind  = 5 // how far before the last result
	ahead   = 7 // how far behind it
)

// Distances ahead are less than most; operands below least are no results but numbers.
const most, least = 4096, 16

// number gives the number of an operand.
func (c *numbers) number(w uint32) uint64 {
	d := c.last - w
	place, ok := c.places[w]
	switch {
	case d < near:
		return uint64(d) << 1
	case ok && w >= least:
		return uint64(place)<<3 | global
	case c.body && w > c.first && w < c.last:
		return uint64(d)<<3 | behind
	case c.body && w > c.last && w-c.last < most:
		return uint64(w-c.last)<<3 | ahead
	}
	return uint64(w)<<3 | literal
}

// operand gives the operand of a number.
func (c *numbers) operand(v uint64) uint32 {
	w := uint32(v >> 3)
	switch {
	case v&1 == 0:
		return c.last - uint32(v>>1)
	case v&7 == global:
		return c.ids[w%places]
	case v&7 == behind:
		return c.last - w
	case v&7 == ahead:
		return c.last + w
	}
	return w
}

// typeNumber gives the number of a type.
func (c *numbers) typeNumber(w uint32) uint64 {
	if place, ok := c.places[w]; ok {
		return uint64(place)
	}
	return uint64(w) + places
}

// typeOperand gives the type of a number.
func (c *numbers) typeOperand(v uint64) uint32 {
	if v < places {
		return c.ids[v]
	}
	return uint32(v - places)
}

// see takes note of an instruction and its operands.
func (c *numbers) see(op uint32, operands []uint32) {
	if op == 54 && !c.body { // OpFunction
		c.body, c.first = true, c.last
	}
	typed, result := parts(op)
	at := 0
	if typed {
		at = 1
	}
	if !result || len(operands) <= at {
		return
	}
	c.last = operands[at]
	if c.body || c.count >= places/2 {
		return
	}
	place := c.name(op, operands[:at], operands[at+1:])
	for c.used[place] {
		place = (place + 1) % places
	}
	c.used[place], c.ids[place], c.places[c.last] = true, c.last, place
	c.count++
}

// name is the place that an instruction's operands, but for its result, come to (FNV-1a).
func (c *numbers) name(op uint32, operands ...[]uint32) uint32 {
	h := uint32(2166136261)
	mix := func(v uint32) {
		for range 4 {
			h = (h ^ v&0xff) * 16777619
			v >>= 8
		}
	}
	mix(op)
	for _, list := range operands {
		for _, w := range list {
			if place, ok := c.places[w]; ok {
				w = place
			}
			mix(w)
		}
	}
	return (h ^ h>>15) % places
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
	c := &numbers{places: map[uint32]uint32{}}
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
			put(c.typeNumber(rest[0]))
			rest = rest[1:]
		}
		if result && len(rest) > 0 {
			d := int32(rest[0] - c.last - 1)
			put(uint64(uint32(d<<1 ^ d>>31)))
			rest = rest[1:]
		}
		for _, w := range rest {
			put(c.number(w))
		}
		c.see(op, words[at+1:at+n])
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
	c := &numbers{places: map[uint32]uint32{}}
	for len(r.from) > 0 {
		op, n := uint32(r.next(math.MaxUint16)), int(r.next(math.MaxUint16))
		if r.err == nil && (n == 0 || n-1 > len(r.from)) {
			r.err = errors.New("the packed module has an instruction that is longer than what is left")
		}
		if r.err != nil {
			break
		}
		words = append(words, op|uint32(n)<<16)
		begin, left := len(words), n-1
		typed, result := parts(op)
		if typed && left > 0 {
			words = append(words, c.typeOperand(r.next(math.MaxUint32+places)))
			left--
		}
		if result && left > 0 {
			d := uint32(r.next(math.MaxUint32))
			words = append(words, c.last+(d>>1^-(d&1)+1))
			left--
		}
		for ; left > 0; left-- {
			words = append(words, c.operand(r.next(1<<35-1)))
		}
		c.see(op, words[begin:])
	}
	if r.err == nil && words[0] != Magic {
		r.err = errors.New("the packed module is none of SPIR-V: its first word is another")
	}
	return words, r.err
}
