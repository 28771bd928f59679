// Panels: sixteen rows of a weight matrix, stored so that one product is one
// forward stream. The formats whose blocks are quantised are multiplied with
// activations of eight bits; panels.go in backends/cpu/simd packs them and
// describes the same layout in Go.
//
// A panel is a sequence of units: the units of the scales of k-quants, behind them the
// scales of six bits of Q4_K and Q5_K (sixes), then pairs of blocks of 32 columns, other
// scales before codes. In a block, 64-byte vectors
// hold four columns of each of the sixteen rows: byte 4·row + c of vector g is
// column 4·g + c. Codes of fewer than eight bits lie in planes, in this order:
//
//	bits     1 vector: group g in bit g
//	pairs    2 vectors: group g in vector g & 1, bits 2·(g >> 1) and the next
//	nibbles  4 vectors: group g in the low half of vector g, g + 4 in the high
//
// Memory is met strictly forwards: a line that is skipped and fetched later
// costs up to a third of the speed.
#ifndef PANEL_H
#define PANEL_H
#include "vec.h"

enum { Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, Q4_K, Q5_K, Q6_K, Q2_K, Q3_K };

#define IS_K(f) ((f) >= Q4_K)
#define AFFINE(f) ((f) == Q4_1 || (f) == Q5_1 || (f) == Q4_K || (f) == Q5_K || (f) == Q2_K)
#define HALVES(f) ((f) >= Q6_K) // a scale for each 16 columns
#define QUANTS(f)                                                                              \
  ((f) == Q8_0 ? 512 : (f) == Q5_0 || (f) == Q5_1 || (f) == Q5_K ? 320 : (f) == Q6_K ? 384     \
   : (f) == Q2_K ? 128 : (f) == Q3_K ? 192 : 256)
#define SIXES(f) ((f) == Q4_K || (f) == Q5_K) // scales of six bits, of a unit together
#define HEAD(f) (SIXES(f) ? 256 : IS_K(f) ? 64 : 0)
#define SCALES(f) (SIXES(f) ? 0 : !IS_K(f) && AFFINE(f) ? 128 : 64) // of a pair
#define PAIR(f) (SCALES(f) + 2 * QUANTS(f))
#define PAIRS(f) (IS_K(f) ? 4 : 1)
#define UNIT(f) (HEAD(f) + PAIRS(f) * PAIR(f))
// SIGNED codes are multiplied as they are where the processor can do that; a
// dot product of unsigned with signed bytes takes them plus 128.
#define SIGNED(f) ((f) == Q8_0 || (f) == IQ4_NL)
// OFFSET is the logarithm of what is to be taken off a code, 0 for nothing.
#define OFFSET(f)                                                                              \
  (SIGNED(f) ? (UNSIGNED_DOT ? 7 : 0) : (f) == Q4_0 ? 3 : (f) == Q5_0 ? 4 : (f) == Q6_K ? 5 : (f) == Q3_K ? 2 : 0)

typedef int32_t i32u __attribute__((aligned(1), may_alias));

INLINE vi all4(const void *p) { return viset(*(const i32u *)p); } // four bytes in every lane

// IN_ORDER keeps the compiler from moving what v stands for: left alone it
// brings loads forward until they need more registers than there are.
#define IN_ORDER(REGISTER, v) __asm__ volatile("" : REGISTER(v))
#define LOADED(REGISTER, v) __asm__ volatile("" : : REGISTER(v)) // by now

// Products of NC rows of activations with VL rows of weights are NC vectors: vector c
// holds those of row c of the activations. Where the processor multiplies two rows by
// two (I8MM) and NC is PAIRED, lane 2·i + j of vector 2·p + h is of row 2·h + i of the
// weights and row 2·p + j of the activations; vectors of codes then hold eight columns
// of two rows, those of half h of VL.
enum { LOW, HIGH, WHOLE }; // parts of VL rows
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define PAIRED(NC) ((NC) > 1)
typedef int64_t i64u __attribute__((aligned(1), may_alias));
INLINE vi zip(vi a, vi b, const int high) { return high ? vzip2q_s32(a, b) : vzip1q_s32(a, b); }
// plane gives the vector of a plane at q, or a half of it and of the next one; bits gives
// the bits of two groups the same places.
INLINE vi plane(const uint8_t *q, const int part) { return part == WHOLE ? ld_i(q) : zip(ld_i(q), ld_i(q + 64), part); }
INLINE vi bits(const uint8_t *q, const int part) {
  vi h = ld_i(q);
  return part == WHOLE ? h : zip(h, shr(h, 1), part);
}
// lanes_x gives a number of each row of activations, p[0] … p[NC-1], in the lanes of
// vector c; lanes_w those of rows of weights, the lanes of v.
INLINE vi lanes_x(const int NC, const uint8_t *p, const int c) {
  return PAIRED(NC) ? (vi)vdupq_n_s64(*(const i64u *)(p + 8 * (c >> 1))) : all4(p + 4 * c);
}
INLINE vf lanes_w(const int NC, vf v, const int c) { return PAIRED(NC) ? (vf)zip((vi)v, (vi)v, c & 1) : v; }
// dot_2x2 adds products of eight bytes to the vectors of both halves.
INLINE void dot_2x2(vi *s, vi low, vi high, vi x) {
  s[0] = vmmlaq_s32(s[0], (int8x16_t)low, (int8x16_t)x);
  s[1] = vmmlaq_s32(s[1], (int8x16_t)high, (int8x16_t)x);
  __asm__("" : "+w"(s[0]), "+w"(s[1])); // in order, but what was loaded may be kept
}
// row_of gives the products of row c of the activations, in order.
INLINE vf row_of(const int NC, const vf *v, const int c) {
  if (!PAIRED(NC)) return v[c];
  return c & 1 ? vuzp2q_f32(v[c - 1], v[c]) : vuzp1q_f32(v[c], v[c + 1]);
}
#else
#define PAIRED(NC) 0
#define plane(Q, PART) ((void)(PART), ld_i(Q))
#define bits plane
#define lanes_x(NC, P, C) all4((P) + 4 * (C))
#define lanes_w(NC, V, C) (V)
#define dot_2x2(S, LOW, HIGH, X) ((void)(LOW), (void)(HIGH))
#define row_of(NC, V, C) (V)[C]
#endif

// dot adds four products of bytes to every lane: w of 7 bits or, where f is
// SIGNED, of 8; x between -127 and 127. It is the i-th of n calls; t is its own.
#if defined(__AVX512F__)
INLINE vi lookup(vi table, vi at) { return _mm512_shuffle_epi8(table, at); }
INLINE vi repeat16(const void *p) { return _mm512_broadcast_i32x4(_mm_loadu_si128(p)); }
#define UNSIGNED_DOT 1
INLINE void dot(const int f, vi *s, vi *t, vi w, vi x, const int i, const int n) {
  (void)f, (void)t, (void)i, (void)n;
  *s = _mm512_dpbusd_epi32(*s, w, x);
}
#elif defined(__AVX2__)
INLINE vi lookup(vi table, vi at) { return _mm256_shuffle_epi8(table, at); }
INLINE vi repeat16(const void *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128(p)); }
#if defined(__AVXVNNI__)
#define UNSIGNED_DOT 1
INLINE void dot(const int f, vi *s, vi *t, vi w, vi x, const int i, const int n) {
  (void)f, (void)t, (void)i, (void)n;
  *s = _mm256_dpbusd_avx_epi32(*s, w, x);
  IN_ORDER("+x", *s);
}
#else
#define UNSIGNED_DOT 0
// KEEP is how many sums of two products fit sixteen bits: 2·127·15·8 = 30480,
// 2·127·31·4 = 31496, 2·127·63·2 = 32004, 2·127·128 = 32512.
#define KEEP(f) (SIGNED(f) ? 1 : (f) == Q6_K ? 2 : (f) == Q5_0 || (f) == Q5_1 || (f) == Q5_K ? 4 : 8)
INLINE void dot(const int f, vi *s, vi *t, vi w, vi x, const int i, const int n) {
  vi p = SIGNED(f) ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) : _mm256_maddubs_epi16(w, x);
  *t = i % KEEP(f) ? _mm256_add_epi16(*t, p) : p;
  if (i % KEEP(f) == KEEP(f) - 1 || i == n - 1) {
    *s = addi(*s, _mm256_madd_epi16(*t, _mm256_set1_epi16(1)));
    IN_ORDER("+x", *s);
  } else {
    IN_ORDER("+x", *t);
  }
}
#endif
#elif defined(__aarch64__)
INLINE vi lookup(vi table, vi at) { return (vi)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)at); }
INLINE vi repeat16(const void *p) { return ld_i(p); }
#define UNSIGNED_DOT 0
INLINE void dot(const int f, vi *s, vi *t, vi w, vi x, const int i, const int n) {
  (void)f, (void)t, (void)i, (void)n;
#if defined(__ARM_FEATURE_DOTPROD)
  *s = vdotq_s32(*s, (int8x16_t)w, (int8x16_t)x);
#else
  int8x16_t a = (int8x16_t)w, b = (int8x16_t)x;
  int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
  *s = vpadalq_s16(*s, vpaddq_s16(low, high)); // 2·128·127 fits sixteen bits
#endif
  IN_ORDER("+w", *s);
}
#endif

// dot_lane is dot with lane i of x in the place of all lanes of x, where there is an
// instruction for it.
#if defined(__ARM_FEATURE_DOTPROD)
#define LANES 1
#define DOT_LANE(I) (I): *s = vdotq_laneq_s32(*s, (int8x16_t)w, (int8x16_t)x, I); break
INLINE void dot_lane(vi *s, vi w, vi x, const int i) {
  switch (i) {
  case DOT_LANE(0);
  case DOT_LANE(1);
  case DOT_LANE(2);
  case DOT_LANE(3);
  }
  __asm__("" : "+w"(*s)); // as above
}
#else
#define LANES 0
#define dot_lane(S, W, X, I) ((void)(X))
#endif

// code gives the codes of group g for the r-th VL rows of a block; for half of these rows,
// where g is even, also those of group g + 1.
INLINE vi code(const int f, const uint8_t *q, const int g, long r, const int part) {
  q += 4 * VL * r;
  if (f == Q8_0) {
    vi v = plane(q + 64 * g, part);
    return UNSIGNED_DOT ? v ^ viset((int)0x80808080) : v;
  }
  if (f == Q2_K || f == Q3_K) {
    const int from = f == Q3_K ? 64 : 0;
    vi v = shr(plane(q + from + 64 * (g & 1), part), 2 * (g >> 1)) & viset(0x03030303);
    if (f == Q2_K) return v;
    vi h = bits(q, part);
    return v | ((g < 2 ? shl(h, 2 - g) : shr(h, g - 2)) & viset(0x04040404));
  }
  vi v = plane(q + QUANTS(f) - 256 + 64 * (g & 3), part);
  v = (g < 4 ? v : shr(v, 4)) & viset(0x0f0f0f0f);
  if (f == IQ4_NL) { // the format's sixteen levels
    static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    vi table = repeat16(levels);
    return lookup(UNSIGNED_DOT ? table ^ viset((int)0x80808080) : table, v);
  }
  if (f == Q5_0 || f == Q5_1 || f == Q5_K) {
    vi h = bits(q, part);
    v |= (g < 4 ? shl(h, 4 - g) : shr(h, g - 4)) & viset(0x10101010);
  }
  if (f == Q6_K) {
    vi h = plane(q + 64 * (g & 1), part);
    const int at = 2 * (g >> 1);
    v |= (at < 4 ? shl(h, 4 - at) : shr(h, at - 4)) & viset(0x30303030);
  }
  return v;
}

// sixes unpacks a pair's scales of six bits, of those of its unit at p: scales of sixteen rows, then
// offsets, of either block. The low six bits of three times 64 bytes are those of pairs 0 to 2; of
// pair 3 each has two bits on top, lowest first.
INLINE void sixes(const uint8_t *p, int pair, uint8_t *dst) {
  UNROLL for (int i = 0; i < 64; i += 4 * VL) {
    vi v;
    if (pair < 3)
      v = ld_i(p + 64 * pair + i) & viset(0x3f3f3f3f);
    else
      v = (shr(ld_i(p + i), 6) & viset(0x03030303)) | (shr(ld_i(p + i + 64), 4) & viset(0x0c0c0c0c)) |
          (shr(ld_i(p + i + 128), 2) & viset(0x30303030));
    st((float *)(dst + i), (vf)v);
  }
}

// scales gives factor a and addend m of the r-th VL rows in block b of the
// pair whose scales are at s, for each half of the block where the format has two; of k-quants
// in the units d and low.
INLINE void scales(const int f, vf d, vf low, const uint8_t *s, long b, long r, vf *a, vf *m) {
  if (!IS_K(f)) {
    const uint16_t *h = (const uint16_t *)s + 16 * b + VL * r;
    a[0] = ld_f16(h);
    if (AFFINE(f)) m[0] = ld_f16(h + 32);
    return;
  }
  s += 32 * b + VL * r;
  if (f == Q2_K) { // scales in the low nibbles, offsets in the high ones
    UNROLL for (int h = 0; h < 2; h++) {
      vi c = round_i(ld_i8(s + 16 * h)) & viset(255);
      a[h] = d * from_i(c & viset(15));
      m[h] = low * from_i(shr(c, 4));
    }
    return;
  }
  a[0] = d * ld_i8(s);
  if (HALVES(f)) a[1] = d * ld_i8(s + 16);
  if (AFFINE(f)) m[0] = low * ld_i8(s + 16);
}
#endif
