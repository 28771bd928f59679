// Package synthetic makes weights from a seed: the same on every machine, and
// about as fast as memory is written.
//
// Every value comes from a counter: word i of a chunk is mix(key + i·γ), the
// SplitMix64 generator of Steele, Lea and Flood (OOPSLA 2014), with the chunk's
// key from seed, name and chunk number. So chunks are made in any order by any
// number of goroutines. Integer arithmetic and single, correctly rounded
// float64 operations are all that is used: no result depends on fused
// multiply-adds or a platform's math functions.
package synthetic

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/greta-project/greta/tensor"
)

// Kind says how values are spread.
type Kind int

const (
	// Matrix has mean 0 and standard deviation 1/√K, K being the last size, so
	// that a product keeps the size of its input and deep networks stay finite.
	Matrix Kind = iota
	// Norm lies around 1 with standard deviation 0.15: no norm weight is
	// mistaken for another, nor for ones.
	Norm
	// Bias has mean 0 and standard deviation 0.1.
	Bias
)

const (
	normStd = 0.15
	biasStd = 0.1
)

// KindOf guesses a weight's kind from its name and shape: matrices have two
// sizes or more; of the others biases say so or are named b and a letter (bq).
func KindOf(name string, shape tensor.Shape) Kind {
	if len(shape) > 1 {
		return Matrix
	}
	last := name[strings.LastIndexAny(name, "./")+1:]
	if strings.Contains(last, "bias") || strings.HasPrefix(last, "b_") || len(last) <= 2 && strings.HasPrefix(last, "b") {
		return Bias
	}
	return Norm
}

// Fill writes the weight of this name: dense rows of t, the size of which must
// be that of shape. The kind is KindOf's.
func Fill(dst []byte, t tensor.Type, shape tensor.Shape, name string, seed uint64) error {
	return FillKind(dst, t, shape, name, seed, KindOf(name, shape))
}

// FillKind is Fill with a kind. t is a float type or, for a Matrix, a block
// format; of another type there are no weights to make.
func FillKind(dst []byte, t tensor.Type, shape tensor.Shape, name string, seed uint64, kind Kind) error {
	size, err := shape.Bytes(t)
	if err != nil {
		return fmt.Errorf("synthetic weight %s: %w", name, err)
	}
	if size != len(dst) {
		return fmt.Errorf("synthetic weight %s: %s %v takes %d bytes, but %d are given", name, t, shape, size, len(dst))
	}
	mean, std := 0.0, 0.0
	switch kind {
	case Norm:
		mean, std = 1, normStd
	case Bias:
		std = biasStd
	default:
		std = 1 / math.Sqrt(float64(max(1, shape.Last())))
	}
	key := hash(seed, name)
	switch {
	case t.IsFloat():
		fillChunks(dst, plainChunk*bytesOf(t), key, plainFiller(t, mean, std))
	case t.IsBlock() && kind == Matrix && layoutOf(t).unit == 0:
		return fmt.Errorf("synthetic weight %s: there are no blocks of %s: a row in weights/synthetic/codes.go "+
			"says where its scales are", name, t)
	case t.IsBlock() && kind == Matrix:
		elems, bytes := t.Block()
		fillChunks(dst, chunkElems/elems*bytes, key, blockFiller(t, std))
	case t.IsBlock():
		return fmt.Errorf("synthetic weight %s: norms and biases are plain floats, not %s", name, t)
	default:
		return fmt.Errorf("synthetic weight %s: weights are floats or block formats, not %s", name, t)
	}
	return nil
}

const (
	gamma      = 0x9e3779b97f4a7c15 // 2^64 / golden ratio, odd
	gamma2     = 2 * gamma & math.MaxUint64
	chunkElems = 1 << 15 // of block formats: whole blocks of all
	plainChunk = 1 << 14
)

// mix is SplitMix64's finaliser.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// hash gives a weight's key: FNV-1a of the name, mixed with the seed.
func hash(seed uint64, name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return mix(mix(seed+gamma) ^ h)
}

// fillChunks runs fill over chunks of dst on all cores.
func fillChunks(dst []byte, chunk int, key uint64, fill func(dst []byte, key uint64)) {
	chunks := (len(dst) + chunk - 1) / chunk
	var next atomic.Int64
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= chunks {
				return
			}
			fill(dst[i*chunk:min((i+1)*chunk, len(dst))], mix(key+uint64(i)*gamma))
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), chunks) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}

// fillWords covers dst with random bits.
func fillWords(dst []byte, key uint64) {
	le := binary.LittleEndian
	for len(dst) >= 16 { // two at a time: their multiplications overlap
		le.PutUint64(dst, mix(key))
		le.PutUint64(dst[8:], mix(key+gamma))
		key += gamma2
		dst = dst[16:]
	}
	var last [16]byte
	le.PutUint64(last[:], mix(key))
	le.PutUint64(last[8:], mix(key+gamma))
	copy(dst, last[:])
}

func bytesOf(t tensor.Type) int { _, b := t.Block(); return b }
