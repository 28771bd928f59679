// Compact panels of bf16: twelve bits a weight (backends/cpu/simd/compact.go says why). An element's low
// byte is kept as it is. Its high byte, sign and most of the exponent, is one of sixteen.
// A panel of k columns, a multiple of 8:
//
//	  0  table[16]  the high bytes; the first is 0
//	 32  ends[8]    u32: how many exceptions there are up to the end of each segment of 4096 columns
//	 64  exceptions, u32 each: element << 16 | column in the segment << 4 | row; room for k / 32 of them
//	  …  of each 8 columns 64 bytes of codes, places in the table, and 128 of low bytes
//
// Of the low bytes, the first 64 are those of four columns, the others those of the next four: byte
// 16·(r / 4) + 8·(c / 2) + 2·(r % 4) + c % 2 for row r and column c. Byte i of the codes has that of
// byte i of the first four columns in its low nibble, that of the others in its high one. So both bytes
// become pairs of columns as plain panels have them without leaving their quarter of a
// register. Where an exception is, both are 0.
#ifndef COMPACT_H
#define COMPACT_H
#include "vec.h"

#if defined(__AVX512F__)
INLINE vi lookup(vi table, vi i) { return _mm512_shuffle_epi8(table, i); }
INLINE vi zip_low(vi a, vi b) { return _mm512_unpacklo_epi8(a, b); }
INLINE vi zip_high(vi a, vi b) { return _mm512_unpackhi_epi8(a, b); }
INLINE vi four(const void *p) { return _mm512_broadcast_i32x4(_mm_loadu_si128(p)); }
INLINE void st_i(void *p, vi v) { _mm512_storeu_si512(p, v); }
#else
INLINE vi lookup(vi table, vi i) { return _mm256_shuffle_epi8(table, i); }
INLINE vi zip_low(vi a, vi b) { return _mm256_unpacklo_epi8(a, b); }
INLINE vi zip_high(vi a, vi b) { return _mm256_unpackhi_epi8(a, b); }
INLINE vi four(const void *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128(p)); }
INLINE void st_i(void *p, vi v) { _mm256_storeu_si256(p, v); }
#endif

#define HEAD 64
#define SEGMENTS 8
#define BLOCK 192 // bytes of 8 columns
#define ENDS 32   // where ends are

// room gives the bytes that a panel has for exceptions.
INLINE long room(long k) { return (k / 8 + 63) & ~63l; }

// half gives part r of the first four of 8 columns, or of the others, as plain panels have them: pair u in out[R·u].
INLINE void half(const uint8_t *w, vi table, int r, const int others, vi *out) {
  vi codes = ld_i(w + 4 * VL * r), low = ld_i(w + 64 + 64 * others + 4 * VL * r);
  vi high = lookup(table, (others ? shr(codes, 4) : codes) & viset(0x0f0f0f0f));
  out[0] = zip_low(low, high);
  out[R] = zip_high(low, high);
}

// block gives part r of 8 columns.
INLINE void block(const uint8_t *w, vi table, int r, vi *out) {
  half(w, table, r, 0, out);
  half(w, table, r, 1, out + 2 * R);
}

// end_of gives where the exceptions of a segment end, which follow ends; a damaged panel has no more than it has room for.
INLINE const uint32_t *end_of(const uint32_t *ends, int segment, long k) {
  const uint32_t n = ends[segment], most = (uint32_t)(room(k) / 4);
  return ends + SEGMENTS + (n < most ? n : most);
}

// rare_sums stores the sums of the products of a panel's exceptions, elements of f16 or bf16. They come first: what
// is read at the end of a panel would have to be waited for.
INLINE void rare_sums(const uint32_t *ends, const float *x, float *y, long k, const int f16) {
  const uint32_t *e = ends + SEGMENTS;
  UNROLL for (int r = 0; r < R; r++) st(y + VL * r, vset(0));
  ROLLED for (int s = 0; s < SEGMENTS; s++)
    ROLLED for (const uint32_t *end = end_of(ends, s, k); e < end; e++) {
      union { uint32_t u; float f; } v = {*e & 0xffff0000};
      if (f16) v.f = _cvtsh_ss((uint16_t)(*e >> 16));
      const long c = 4096l * s + (*e >> 4 & 4095);
      if (c < k) y[*e & 15] += v.f * x[c];
    }
}
#endif
