// Unpacking of GGML's block formats into vectors of floats. Each function
// takes one block, or a part of one, at any address.
#ifndef BLOCKS_H
#define BLOCKS_H
#include "vec.h"

INLINE float f16_at(const uint8_t *p) {
#if defined(__aarch64__)
  __fp16 h;
  __builtin_memcpy(&h, p, 2);
  return (float)h;
#else
  return _cvtsh_ss(*(const u16u *)p);
#endif
}

// all_f16 gives the half-precision number at p in every lane.
INLINE vf all_f16(const uint8_t *p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_set1_epi16((short)*(const u16u *)p));
#else
  return vset(f16_at(p));
#endif
}

// nibbles gives 16 low (high = 0) or high (high = 1) nibbles minus bias.
INLINE void nibbles(const uint8_t *p, const int high, const int bias, vf *out) {
#if defined(__AVX512F__)
  // A lookup uses only the index's low four bits: no masking, no conversion.
  const vf iota = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  vi b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
  out[0] = _mm512_permutexvar_ps(high ? _mm512_srli_epi32(b, 4) : b, iota - vset((float)bias));
#else
  u8x16 b = *(const u8x16u *)p;
  b = high ? b >> 4 : b & 15;
  cvt16((i8x16)b - (int8_t)bias, out);
#endif
}

// unpack_q8_0 and unpack_q4_0 give a block's 32 numbers before scaling.
INLINE void unpack_q8_0(const uint8_t *q, vf *out) {
  cvt16((i8x16)*(const u8x16u *)q, out);
  cvt16((i8x16)*(const u8x16u *)(q + 16), out + 16 / VL);
}
INLINE void unpack_q4_0(const uint8_t *q, vf *out) {
  nibbles(q, 0, 8, out);
  nibbles(q, 1, 8, out + 16 / VL);
}

// scales_k4 gives d·sc of a Q4_K or Q5_K block's eight groups, then dmin·m.
// Twelve bytes hold 6-bit numbers: the first four sc and m in the low bits of
// bytes 0-3 and 4-7; of the last four the low nibbles are in bytes 8-11, the
// high two bits on top of bytes 0-7.
INLINE void scales_k4(const uint8_t *p, float *out) {
  uint32_t a = *(const u32u *)(p + 4), b = *(const u32u *)(p + 8), c = *(const u32u *)(p + 12);
  uint64_t sc = (a & 0x3f3f3f3f) | (uint64_t)((c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4) << 32;
  uint64_t m6 = (b & 0x3f3f3f3f) | (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4) << 32;
  i8x16 q = (i8x16)(u64x2){sc, m6};
  vf v[16 / VL];
  cvt16(q, v);
  float d = f16_at(p), m = f16_at(p + 2);
#if VL == 16
  st(out, v[0] * _mm512_mask_blend_ps(0xff00, vset(d), vset(m)));
#else
  UNROLL for (int i = 0; i < 16 / VL; i++) st(out + i * VL, v[i] * vset(i * VL < 8 ? d : m));
#endif
}

// scales_k6 gives d·sc of a Q6_K block's sixteen groups.
INLINE void scales_k6(const uint8_t *p, float *out) {
  vf v[16 / VL];
  cvt16((i8x16)*(const u8x16u *)(p + 192), v);
  vf d = vset(f16_at(p + 208));
  UNROLL for (int i = 0; i < 16 / VL; i++) st(out + i * VL, v[i] * d);
}

// sixes gives four groups of 16 numbers of a Q6_K block: elements 128·half +
// 16·at + 32·g + (0 … 15) for g = 0 … 3.
INLINE void sixes(const uint8_t *p, int half, int at, i8x16 *q) {
  const uint8_t *l = p + half * 64 + at * 16, *h = p + 128 + half * 32 + at * 16;
  u8x16 a = *(const u8x16u *)l, b = *(const u8x16u *)(l + 32), t = *(const u8x16u *)h;
  q[0] = (i8x16)((a & 15) | (t << 4 & 0x30)) - (int8_t)32;
  q[1] = (i8x16)((b & 15) | (t << 2 & 0x30)) - (int8_t)32;
  q[2] = (i8x16)((a >> 4) | (t & 0x30)) - (int8_t)32;
  q[3] = (i8x16)((b >> 4) | (t >> 2 & 0x30)) - (int8_t)32;
}

// at_T gives VL elements of a row from element i on, atn_T n < VL of them and zeros; i is a multiple of VL.
INLINE vf at_f32(const float *p, long i) { return ld_f32(p + i); }
INLINE vf atn_f32(const float *p, long i, long n) { return ldn_f32(p + i, n); }
INLINE vf at_f16(const uint16_t *p, long i) { return ld_f16(p + i); }
INLINE vf atn_f16(const uint16_t *p, long i, long n) { return ldn_f16(p + i, n); }
INLINE vf at_bf16(const uint16_t *p, long i) { return ld_bf16(p + i); }
INLINE vf atn_bf16(const uint16_t *p, long i, long n) { return ldn_bf16(p + i, n); }
INLINE vf at_f8e4m3(const uint8_t *p, long i) { return ld_f8e4m3(p + i); }
INLINE vf atn_f8e4m3(const uint8_t *p, long i, long n) {
  uint8_t t[VL] __attribute__((aligned(16)));
  UNROLL for (int u = 0; u < VL; u++) t[u] = 0;
  ROLLED for (long u = 0; u < n; u++) t[u] = p[i + u];
  return ld_f8e4m3(t);
}
INLINE vf at_q8_0(const uint8_t *p, long i) {
  p += i / 32 * 34;
  return ld_i8(p + 2 + i % 32) * all_f16(p);
}
INLINE vf atn_q8_0(const uint8_t *p, long i, long n) { return (void)n, at_q8_0(p, i); } // rows are whole blocks
#endif
