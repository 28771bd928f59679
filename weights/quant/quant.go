// Package quant decodes and encodes tensor data: plain floats of every width
// and GGML's block formats, in which a few dozen elements share a scale.
//
// Each family has a file that gives its byte layout, its decoder and its
// encoder: legacy.go (q4_0 … q8_0), q2k.go, q3k.go, q4k.go (q4_K and q5_K),
// q6k.go, iq4.go, iq.go, fp4.go, ternary.go, plain.go. The searches for scales that the
// encoders share are in search.go.
//
// Decoders give the same bits as GGML's reference on every machine. Encoders
// minimise the squared error over the elements of a block; they do not
// reproduce another encoder's bytes. All functions may be called from several
// goroutines at once on distinct destinations.
package quant

import (
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/greta-project/greta/internal/mapped"
	"github.com/greta-project/greta/tensor"
)

// decode widens whole blocks; the callers have checked the lengths. Calls are
// direct so that buffers on a caller's stack stay there.
func decode(t tensor.Type, dst []float32, src []byte) {
	switch t {
	case tensor.F64:
		decodeF64(dst, src)
	case tensor.F32:
		decodeF32(dst, src)
	case tensor.F16:
		decodeF16(dst, src)
	case tensor.BF16:
		decodeBF16(dst, src)
	case tensor.Q4_0:
		decodeQ4_0(dst, src)
	case tensor.Q4_1:
		decodeQ4_1(dst, src)
	case tensor.Q5_0:
		decodeQ5_0(dst, src)
	case tensor.Q5_1:
		decodeQ5_1(dst, src)
	case tensor.Q8_0:
		decodeQ8_0(dst, src)
	case tensor.Q2_K:
		decodeQ2K(dst, src)
	case tensor.Q3_K:
		decodeQ3K(dst, src)
	case tensor.Q4_K:
		decodeQ4K(dst, src)
	case tensor.Q5_K:
		decodeQ5K(dst, src)
	case tensor.Q6_K:
		decodeQ6K(dst, src)
	case tensor.IQ4_NL:
		decodeIQ4NL(dst, src)
	case tensor.IQ4_XS:
		decodeIQ4XS(dst, src)
	case tensor.TQ1_0:
		decodeTQ1(dst, src)
	case tensor.TQ2_0:
		decodeTQ2(dst, src)
	case tensor.IQ1_S:
		decodeIQ1S(dst, src)
	case tensor.IQ1_M:
		decodeIQ1M(dst, src)
	case tensor.IQ2_XXS:
		decodeIQ2XXS(dst, src)
	case tensor.IQ2_XS:
		decodeIQ2XS(dst, src)
	case tensor.IQ2_S:
		decodeIQ2S(dst, src)
	case tensor.IQ3_XXS:
		decodeIQ3XXS(dst, src)
	case tensor.IQ3_S:
		decodeIQ3S(dst, src)
	case tensor.MXFP4:
		decodeMXFP4(dst, src)
	case tensor.NVFP4:
		decodeNVFP4(dst, src)
	case tensor.NF4:
		decodeNF4(dst, src)
	case tensor.F8E4M3_B32:
		decodeF8Block(dst, src)
	case tensor.F8E4M3, tensor.F8E5M2, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ:
		decodeF8(t, dst, src)
	}
}

// encodeBlock converts one block, or any number of elements of a plain type; w weighs their errors, nil: all alike.
func encodeBlock(t tensor.Type, dst []byte, src, w []float32) {
	switch t {
	case tensor.F64:
		encodeF64(dst, src)
	case tensor.F32:
		encodeF32(dst, src)
	case tensor.F16:
		encodeF16(dst, src)
	case tensor.BF16:
		encodeBF16(dst, src)
	case tensor.Q4_0:
		encodeQ4_0(dst, src, w)
	case tensor.Q4_1:
		encodeQ4_1(dst, src, w)
	case tensor.Q5_0:
		encodeQ5_0(dst, src, w)
	case tensor.Q5_1:
		encodeQ5_1(dst, src, w)
	case tensor.Q8_0:
		encodeQ8_0(dst, src)
	case tensor.Q2_K:
		encodeQ2K(dst, src, w)
	case tensor.Q3_K:
		encodeQ3K(dst, src, w)
	case tensor.Q4_K:
		encodeQ4K(dst, src, w)
	case tensor.Q5_K:
		encodeQ5K(dst, src, w)
	case tensor.Q6_K:
		encodeQ6K(dst, src, w)
	case tensor.IQ4_NL:
		encodeIQ4NL(dst, src, w)
	case tensor.IQ4_XS:
		encodeIQ4XS(dst, src, w)
	case tensor.TQ1_0:
		encodeTQ1(dst, src)
	case tensor.TQ2_0:
		encodeTQ2(dst, src)
	case tensor.MXFP4:
		encodeMXFP4(dst, src)
	case tensor.NF4:
		encodeNF4(dst, src)
	case tensor.F8E4M3_B32:
		encodeF8Block(dst, src)
	case tensor.F8E4M3, tensor.F8E5M2, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ:
		encodeF8(t, dst, src)
	}
}

// Supported says whether Decode knows a type: every float type and
// every block format, no integers.
func Supported(t tensor.Type) bool { return t.IsFloat() || t.IsBlock() }

// Encodable says whether Encode knows a type: what Decode knows, but for the lattices of iq1 to iq3 and nvfp4, whose
// scales need a factor of the whole tensor beside them. These are only read.
func Encodable(t tensor.Type) bool {
	return Supported(t) && !(tensor.IQ1_S <= t && t <= tensor.IQ3_S) && t != tensor.NVFP4
}

// Decode widens the first len(dst) consecutive elements of src, which holds t.
// len(dst) must be a multiple of t's block; src may be longer than needed.
// Block formats give the bits of GGML's reference, plain types exact values,
// save that f64 is rounded to nearest.
func Decode(t tensor.Type, dst []float32, src []byte) error {
	need, err := checkDecode(t, len(dst), len(src))
	if err != nil {
		return err
	}
	decode(t, dst, src[:need])
	return nil
}

// DecodeF64 is Decode into float64. f64 is exact; every other type gives the
// float64 of the value that Decode gives, which is that float32 exactly.
func DecodeF64(t tensor.Type, dst []float64, src []byte) error {
	need, err := checkDecode(t, len(dst), len(src))
	if err != nil {
		return err
	}
	src = src[:need]
	if t == tensor.F64 {
		widenF64(dst, src)
		return nil
	}
	var buf [256]float32 // a multiple of every block
	for len(dst) > 0 {
		n := min(len(buf), len(dst))
		bytes := t.RowBytes(n)
		decode(t, buf[:n], src[:bytes])
		for i, v := range buf[:n] {
			dst[i] = float64(v)
		}
		dst, src = dst[n:], src[bytes:]
	}
	return nil
}

func checkDecode(t tensor.Type, elems, have int) (need int, err error) {
	if !Supported(t) {
		return 0, fmt.Errorf("quant: cannot decode %s: not a float type or block format", t)
	}
	block, bytes := t.Block()
	if elems%block != 0 {
		return 0, fmt.Errorf("quant: cannot decode %d elements of %s: not a multiple of its block of %d", elems, t, block)
	}
	// In blocks, so that a count near the largest int cannot overflow.
	if elems/block > have/bytes {
		return 0, fmt.Errorf("quant: %d elements of %s take %d bytes for each %d, but only %d bytes are given", elems, t,
			bytes, block, have)
	}
	return elems / block * bytes, nil
}

// MaxBlockValue is the largest magnitude that a block format accepts, that of
// f16: scales are stored in f16, and no sound weight is anywhere near it.
const MaxBlockValue = 65504

// Encode converts src, rows of rowElems elements, to t and writes the bytes to
// dst, which must have room for them. Rows must be a multiple of t's block, so
// that no block spans two rows.
//
// Block formats refuse NaN, infinities and magnitudes over MaxBlockValue with
// an error that names the first such element. Plain types keep NaN and
// infinities where they have codes for them; f16 and bf16 refuse a finite
// value that would round to infinity; 8-bit floats saturate. After an error the
// contents of dst are unspecified.
func Encode(t tensor.Type, dst []byte, src []float32, rowElems int) error {
	if err := checkEncode(t, len(dst), len(src), rowElems); err != nil {
		return err
	}
	return encode(t, dst, src, 0)
}

// EncodeParallel is Encode on as many goroutines as given, GOMAXPROCS where
// workers is 0 or less. The result does not depend on their number.
func EncodeParallel(t tensor.Type, dst []byte, src []float32, rowElems, workers int) error {
	if err := checkEncode(t, len(dst), len(src), rowElems); err != nil {
		return err
	}
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	const chunk = 16 << 10 // elements: a few hundred microseconds of work, and whole blocks
	chunks := (len(src) + chunk - 1) / chunk
	workers = min(workers, chunks)
	if workers <= 1 {
		return encode(t, dst, src, 0)
	}
	var (
		mu      sync.Mutex
		next    int
		failed  error
		failing = chunks // the lowest chunk that failed: later ones need no work
		wg      sync.WaitGroup
	)
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		if next >= failing {
			return -1
		}
		next++
		return next - 1
	}
	for range workers {
		wg.Go(func() {
			mapped.Watch()
			defer mapped.Recover()
			for i := take(); i >= 0; i = take() {
				lo, hi := i*chunk, min((i+1)*chunk, len(src))
				if err := encode(t, dst[t.RowBytes(lo):t.RowBytes(hi)], src[lo:hi], lo); err != nil {
					mu.Lock()
					if i < failing {
						failing, failed = i, err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

func checkEncode(t tensor.Type, have, elems, rowElems int) error {
	if !Supported(t) {
		return fmt.Errorf("quant: cannot encode to %s: not a float type or block format", t)
	}
	if !Encodable(t) {
		return fmt.Errorf("quant: cannot encode to %s: the format is only read", t)
	}
	if rowElems <= 0 && elems > 0 {
		return fmt.Errorf("quant: rows of %d elements; expected a positive number", rowElems)
	}
	if elems == 0 {
		return nil
	}
	if elems%rowElems != 0 {
		return fmt.Errorf("quant: %d elements are not whole rows of %d", elems, rowElems)
	}
	if err := t.CheckRow(rowElems); err != nil {
		return fmt.Errorf("quant: %w; choose another type for this tensor", err)
	}
	if need := t.RowBytes(elems); have < need {
		return fmt.Errorf("quant: %d elements of %s need %d bytes, but the destination has %d", elems, t, need, have)
	}
	return nil
}

// encode converts whole blocks; offset is the place of src[0] in the tensor.
func encode(t tensor.Type, dst []byte, src []float32, offset int) error {
	if i := refused(t, src); i >= 0 {
		return refusal(t, src[i], offset+i)
	}
	block, bytes := t.Block()
	if block == 1 {
		encodeBlock(t, dst[:t.RowBytes(len(src))], src, nil)
		return nil
	}
	for len(src) >= block {
		encodeBlock(t, dst[:bytes], src[:block], nil)
		dst, src = dst[bytes:], src[block:]
	}
	return nil
}

// refused gives the index of the first element that t cannot take, or -1.
func refused(t tensor.Type, src []float32) int {
	var above, below uint32 // refuse magnitudes whose bits lie in (above, below)
	switch {
	case t.IsBlock():
		above, below = math.Float32bits(MaxBlockValue), math.MaxUint32
	case t == tensor.F16:
		above, below = math.Float32bits(65520)-1, 0x7f800000 // 65520 is the first that rounds up to 2^16
	case t == tensor.BF16:
		above, below = 0x7f7f7fff, 0x7f800000
	default:
		return -1
	}
	for i, v := range src {
		if b := math.Float32bits(v) &^ (1 << 31); b > above && b < below {
			return i
		}
	}
	return -1
}

func refusal(t tensor.Type, v float32, i int) error {
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return fmt.Errorf("quant: element %d is %g, which %s cannot hold: the weights are damaged or need another type", i, v,
			t)
	}
	return fmt.Errorf("quant: element %d is %g, beyond the range of %s: choose bf16 or f32 for this tensor", i, v, t)
}
