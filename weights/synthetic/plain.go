package synthetic

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/greta-project/greta/tensor"
)

// Plain values are drawn from a table of normal deviates: 12 random bits an
// element. f32 and f64 take further bits for the low end of their mantissa, so
// that values hardly repeat.
const (
	tableBits = 12
	tableSize = 1 << tableBits
	tableMask = tableSize - 1
	lowBits   = 14 // a change of a value by 2^-10 of itself at most
)

// deviates is a table of mean 0 and variance 1, exactly but for rounding: sums
// of eight 16-bit fields (the central limit), each with its negative.
var deviates = sync.OnceValue(func() *[tableSize]float64 {
	var sums [tableSize / 2]int64
	squares := int64(0)
	for i := range sums {
		for j := range uint64(2) {
			for w := mix((2*uint64(i) + j + 1) * gamma); w != 0; w >>= 16 {
				sums[i] += int64(w & 0xffff)
			}
		}
		sums[i] -= 4 * 0xffff
		squares += sums[i] * sums[i]
	}
	norm := math.Sqrt(float64(squares) / (tableSize / 2))
	table := new([tableSize]float64)
	for i, s := range sums {
		table[i] = float64(s) / norm
		table[tableSize-1-i] = -table[i]
	}
	return table
})

// scaled gives mean + std·deviate with both operations rounded.
func scaled(mean, std float64) *[tableSize]float64 {
	table := *deviates()
	for i := range table {
		product := float64(table[i] * std) // the conversion forbids a fused multiply-add
		table[i] = mean + product
	}
	return &table
}

// plainFiller gives the function that fills a chunk of a float type.
func plainFiller(t tensor.Type, mean, std float64) func(dst []byte, key uint64) {
	values := scaled(mean, std)
	switch bytesOf(t) {
	case 1:
		var codes [tableSize]uint8
		for i, v := range values {
			codes[i] = tensor.F32ToF8(t, float32(v))
		}
		return func(dst []byte, key uint64) { fill8(dst, key, &codes) }
	case 2:
		toHalf := tensor.F32ToF16
		if t == tensor.BF16 {
			toHalf = tensor.F32ToBF16
		}
		var codes [tableSize]uint16
		for i, v := range values {
			codes[i] = toHalf(float32(v))
		}
		return func(dst []byte, key uint64) { fill16(dst, key, &codes) }
	case 4:
		var codes [tableSize]uint32
		for i, v := range values {
			codes[i] = math.Float32bits(float32(v))
		}
		return func(dst []byte, key uint64) { fill32(dst, key, &codes) }
	}
	return func(dst []byte, key uint64) {
		for i := 0; i+8 <= len(dst); i += 8 {
			w := mix(key)
			// 52 bits of mantissa: the same relative change as in f32.
			binary.LittleEndian.PutUint64(dst[i:],
				math.Float64bits(values[w&tableMask])^w>>tableBits>>(64-tableBits-(lowBits+29)))
			key += gamma
		}
	}
}

func fill8(dst []byte, key uint64, codes *[tableSize]uint8) {
	le := binary.LittleEndian
	half := func(w uint64) uint64 {
		return uint64(codes[w&tableMask]) | uint64(codes[w>>16&tableMask])<<8 |
			uint64(codes[w>>32&tableMask])<<16 | uint64(codes[w>>48&tableMask])<<24
	}
	for len(dst) >= 8 {
		le.PutUint64(dst, half(mix(key))|half(mix(key+gamma))<<32)
		key += gamma2
		dst = dst[8:]
	}
	var last [8]byte
	le.PutUint64(last[:], half(mix(key))|half(mix(key+gamma))<<32)
	copy(dst, last[:])
}

func fill16(dst []byte, key uint64, codes *[tableSize]uint16) {
	le := binary.LittleEndian
	word := func(w uint64) uint64 {
		return uint64(codes[w&tableMask]) | uint64(codes[w>>16&tableMask])<<16 |
			uint64(codes[w>>32&tableMask])<<32 | uint64(codes[w>>48&tableMask])<<48
	}
	for len(dst) >= 16 {
		le.PutUint64(dst, word(mix(key)))
		le.PutUint64(dst[8:], word(mix(key+gamma)))
		key += gamma2
		dst = dst[16:]
	}
	var last [16]byte
	le.PutUint64(last[:], word(mix(key)))
	le.PutUint64(last[8:], word(mix(key+gamma)))
	copy(dst, last[:])
}

func fill32(dst []byte, key uint64, codes *[tableSize]uint32) {
	le := binary.LittleEndian
	word := func(w uint64) uint64 { // per 32 bits: 12 of index, 14 of mantissa
		lo := codes[w&tableMask] ^ uint32(w>>tableBits)&(1<<lowBits-1)
		hi := codes[w>>32&tableMask] ^ uint32(w>>(32+tableBits))&(1<<lowBits-1)
		return uint64(lo) | uint64(hi)<<32
	}
	for len(dst) >= 16 {
		le.PutUint64(dst, word(mix(key)))
		le.PutUint64(dst[8:], word(mix(key+gamma)))
		key += gamma2
		dst = dst[16:]
	}
	var last [16]byte
	le.PutUint64(last[:], word(mix(key)))
	le.PutUint64(last[8:], word(mix(key+gamma)))
	copy(dst, last[:])
}
