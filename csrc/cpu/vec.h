// What the kernels need of an instruction set: one vector of floats (vf, VL
// lanes) and the operations on it that C's operators do not give. Kernels are
// written once above this file and compiled for each level.
//
// Names: ld loads VL elements and widens them to f32; ldn loads n < VL of them
// and fills up with zeros, touching no byte beyond; st and stn store.
#ifndef VEC_H
#define VEC_H
#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")

typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef uint64_t u64x2 __attribute__((vector_size(16)));
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef f32x4 f32x4u __attribute__((aligned(4), may_alias));

// What weights are read through: files align them to less than their size.
typedef uint16_t u16u __attribute__((aligned(1), may_alias));
typedef uint32_t u32u __attribute__((aligned(1), may_alias));
typedef u8x16 u8x16u __attribute__((aligned(1), may_alias));

#if defined(__AVX512F__)
#include <immintrin.h>
#define VL 16
typedef __m512 vf;
typedef __m512i vi;
INLINE vf vset(float x) { return _mm512_set1_ps(x); }
INLINE vi viset(int32_t x) { return _mm512_set1_epi32(x); }
INLINE __mmask16 first(long n) { return (__mmask16)((1u << n) - 1); }
INLINE vf ld_f32(const float *p) { return _mm512_loadu_ps(p); }
INLINE vi ld_i(const void *p) { return _mm512_loadu_si512(p); }
INLINE vf ldn_f32(const float *p, long n) { return _mm512_maskz_loadu_ps(first(n), p); }
INLINE void st(float *p, vf v) { _mm512_storeu_ps(p, v); }
INLINE void stn(float *p, vf v, long n) { _mm512_mask_storeu_ps(p, first(n), v); }
INLINE vf ld_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
INLINE vf ldn_f16(const uint16_t *p, long n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p)); }
INLINE vf ld_i8(const void *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p))); }
// The numbers of float8 e4m3 have one more bit of exponent in half precision, eight more to its bias.
INLINE vf ld_f8e4m3(const uint8_t *p) {
  __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)), m = _mm256_slli_epi16(_mm256_and_si256(b, _mm256_set1_epi16(127)), 7);
  __m256i s = _mm256_slli_epi16(_mm256_and_si256(b, _mm256_set1_epi16(128)), 8);
  __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(m, _mm256_set1_epi16(127 << 7)), _mm256_set1_epi16(0x7e00));
  return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(_mm256_or_si256(m, s), nan)), vset(256));
}
INLINE vf widen(__m256i h) { return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16); }
INLINE vf ld_bf16(const uint16_t *p) { return widen(_mm256_loadu_si256((const void *)p)); }
INLINE vf ldn_bf16(const uint16_t *p, long n) { return widen(_mm256_maskz_loadu_epi16(first(n), p)); }
INLINE void st_f16(uint16_t *p, vf v) { _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }
INLINE void stn_f16(uint16_t *p, vf v, long n) { _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }
INLINE void stn_u16(uint16_t *p, vi v, long n) { _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtepi32_epi16(v)); }
INLINE void st_u16(uint16_t *p, vi v) { _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(v)); }
INLINE vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); } // b where either is NaN
INLINE vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); } // b where either is NaN
INLINE vi round_i(vf x) { return _mm512_cvtps_epi32(x); }  // ties to even
INLINE vf from_i(vi x) { return _mm512_cvtepi32_ps(x); }
INLINE vi shl(vi x, int n) { return _mm512_slli_epi32(x, (unsigned)n); }
INLINE vi shr(vi x, int n) { return _mm512_srli_epi32(x, (unsigned)n); }
INLINE vi sar(vi x, int n) { return _mm512_srai_epi32(x, (unsigned)n); }
INLINE vi addi(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi subi(vi a, vi b) { return _mm512_sub_epi32(a, b); }
// where_lt gives a in the lanes where x < y, else b.
INLINE vf where_lt(vf x, vf y, vf a, vf b) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a); }
INLINE vf swap(vf x) { return _mm512_permute_ps(x, 0xb1); } // lanes 2i and 2i+1 change places
INLINE vi where_nan(vf x, vi a, vi b) { return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), b, a); }
INLINE float fold(vf v, int max) {
  __m256 a = _mm512_castps512_ps256(v), b = _mm512_extractf32x8_ps(v, 1);
  a = max ? _mm256_max_ps(a, b) : _mm256_add_ps(a, b);
  __m128 c = _mm256_castps256_ps128(a), d = _mm256_extractf128_ps(a, 1);
  c = max ? _mm_max_ps(c, d) : _mm_add_ps(c, d);
  d = _mm_movehl_ps(c, c);
  c = max ? _mm_max_ps(c, d) : _mm_add_ps(c, d);
  d = _mm_shuffle_ps(c, c, 1);
  return _mm_cvtss_f32(max ? _mm_max_ss(c, d) : _mm_add_ss(c, d));
}
// transpose turns VL vectors, the rows of a square, into its columns.
INLINE void transpose(vf *f) {
  vi *r = (vi *)f, t[16], u[16];
  UNROLL for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  UNROLL for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(u[i], u[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(u[i], u[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(u[i + 8], u[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(u[i + 8], u[i + 12], 0xdd);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}
#define MICRO_NR 12 // columns of a micro-kernel's tile; its rows are 2·VL

#elif defined(__AVX2__)
#include <immintrin.h>
#define VL 8
typedef __m256 vf;
typedef __m256i vi;
INLINE vf vset(float x) { return _mm256_set1_ps(x); }
INLINE vi viset(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi first(long n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }
INLINE vf ld_f32(const float *p) { return _mm256_loadu_ps(p); }
INLINE vi ld_i(const void *p) { return _mm256_loadu_si256(p); }
INLINE vf ldn_f32(const float *p, long n) { return _mm256_maskload_ps(p, first(n)); }
INLINE void st(float *p, vf v) { _mm256_storeu_ps(p, v); }
INLINE void stn(float *p, vf v, long n) { _mm256_maskstore_ps(p, first(n), v); }
INLINE __m128i ldn_u16(const uint16_t *p, long n) {
  uint16_t t[8] __attribute__((aligned(16)));
  *(__m128i *)t = _mm_setzero_si128();
  ROLLED for (long i = 0; i < n; i++) t[i] = p[i];
  return *(__m128i *)t;
}
INLINE vf ld_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
INLINE vf ldn_f16(const uint16_t *p, long n) { return _mm256_cvtph_ps(ldn_u16(p, n)); }
INLINE vf ld_i8(const void *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p))); }
INLINE vf ld_f8e4m3(const uint8_t *p) {
  __m128i b = _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)p)), m = _mm_slli_epi16(_mm_and_si128(b, _mm_set1_epi16(127)), 7);
  __m128i s = _mm_slli_epi16(_mm_and_si128(b, _mm_set1_epi16(128)), 8);
  __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(m, _mm_set1_epi16(127 << 7)), _mm_set1_epi16(0x7e00));
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(_mm_or_si128(m, s), nan)), vset(256));
}
INLINE vf widen(__m128i h) { return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16); }
INLINE vf ld_bf16(const uint16_t *p) { return widen(_mm_loadu_si128((const void *)p)); }
INLINE vf ldn_bf16(const uint16_t *p, long n) { return widen(ldn_u16(p, n)); }
INLINE void put_u16(uint16_t *p, __m128i v, long n) {
  uint16_t t[8] __attribute__((aligned(16)));
  *(__m128i *)t = v;
  ROLLED for (long i = 0; i < n; i++) p[i] = t[i];
}
INLINE __m128i narrow(vi v) { return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); }
INLINE void st_f16(uint16_t *p, vf v) { _mm_storeu_si128((void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }
INLINE void stn_f16(uint16_t *p, vf v, long n) { put_u16(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT), n); }
INLINE void st_u16(uint16_t *p, vi v) { _mm_storeu_si128((void *)p, narrow(v)); }
INLINE void stn_u16(uint16_t *p, vi v, long n) { put_u16(p, narrow(v), n); }
INLINE vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE vf vmax(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vmin(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vi round_i(vf x) { return _mm256_cvtps_epi32(x); }
INLINE vf from_i(vi x) { return _mm256_cvtepi32_ps(x); }
INLINE vi shl(vi x, int n) { return _mm256_slli_epi32(x, n); }
INLINE vi shr(vi x, int n) { return _mm256_srli_epi32(x, n); }
INLINE vi sar(vi x, int n) { return _mm256_srai_epi32(x, n); }
INLINE vi addi(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vi subi(vi a, vi b) { return _mm256_sub_epi32(a, b); }
INLINE vf where_lt(vf x, vf y, vf a, vf b) { return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ)); }
INLINE vf swap(vf x) { return _mm256_permute_ps(x, 0xb1); }
INLINE vi where_nan(vf x, vi a, vi b) { return _mm256_blendv_epi8(b, a, (vi)_mm256_cmp_ps(x, x, _CMP_UNORD_Q)); }
INLINE float fold(vf v, int max) {
  __m128 c = _mm256_castps256_ps128(v), d = _mm256_extractf128_ps(v, 1);
  c = max ? _mm_max_ps(c, d) : _mm_add_ps(c, d);
  d = _mm_movehl_ps(c, c);
  c = max ? _mm_max_ps(c, d) : _mm_add_ps(c, d);
  d = _mm_shuffle_ps(c, c, 1);
  return _mm_cvtss_f32(max ? _mm_max_ss(c, d) : _mm_add_ss(c, d));
}
INLINE void transpose(vf *r) {
  vf t[8], u[8];
  UNROLL for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  UNROLL for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}
#define MICRO_NR 6

#elif defined(__aarch64__)
#include <arm_neon.h>
#define VL 4
typedef float32x4_t vf;
typedef int32x4_t vi;
INLINE vf vset(float x) { return vdupq_n_f32(x); }
INLINE vi viset(int32_t x) { return vdupq_n_s32(x); }
INLINE vf ld_f32(const float *p) { return vld1q_f32(p); }
INLINE vi ld_i(const void *p) { return (vi)vld1q_u8(p); }
INLINE vf ldn_f32(const float *p, long n) {
  vf v = vdupq_n_f32(0);
  if (n > 0) v[0] = p[0];
  if (n > 1) v[1] = p[1];
  if (n > 2) v[2] = p[2];
  return v;
}
INLINE void st(float *p, vf v) { vst1q_f32(p, v); }
INLINE void stn(float *p, vf v, long n) {
  if (n > 0) p[0] = v[0];
  if (n > 1) p[1] = v[1];
  if (n > 2) p[2] = v[2];
  if (n > 3) p[3] = v[3];
}
INLINE uint16x4_t ldn_u16(const uint16_t *p, long n) {
  uint16x4_t v = vdup_n_u16(0);
  if (n > 0) v[0] = p[0];
  if (n > 1) v[1] = p[1];
  if (n > 2) v[2] = p[2];
  return v;
}
INLINE void put_u16(uint16_t *p, uint16x4_t v, long n) {
  if (n > 0) p[0] = v[0];
  if (n > 1) p[1] = v[1];
  if (n > 2) p[2] = v[2];
}
INLINE vf ld_f16(const uint16_t *p) { return vcvt_f32_f16((float16x4_t)vld1_u16(p)); }
INLINE vf ldn_f16(const uint16_t *p, long n) { return vcvt_f32_f16((float16x4_t)ldn_u16(p, n)); }
INLINE vf ld_i8(const void *p) {
  int8x8_t b = (int8x8_t)vdup_n_u32(*(const u32u *)p);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(b))));
}
INLINE vf ld_f8e4m3(const uint8_t *p) {
  uint16x4_t b = vget_low_u16(vmovl_u8((uint8x8_t)vdup_n_u32(*(const u32u *)p))), m = vshl_n_u16(vand_u16(b, vdup_n_u16(127)), 7);
  uint16x4_t s = vshl_n_u16(vand_u16(b, vdup_n_u16(128)), 8);
  uint16x4_t nan = vand_u16(vceq_u16(m, vdup_n_u16(127 << 7)), vdup_n_u16(0x7e00));
  return vmulq_n_f32(vcvt_f32_f16((float16x4_t)vorr_u16(vorr_u16(m, s), nan)), 256);
}
INLINE vf ld_bf16(const uint16_t *p) { return (vf)vshll_n_u16(vld1_u16(p), 16); }
INLINE vf ldn_bf16(const uint16_t *p, long n) { return (vf)vshll_n_u16(ldn_u16(p, n), 16); }
INLINE void st_f16(uint16_t *p, vf v) { vst1_u16(p, (uint16x4_t)vcvt_f16_f32(v)); }
INLINE void stn_f16(uint16_t *p, vf v, long n) { put_u16(p, (uint16x4_t)vcvt_f16_f32(v), n); }
INLINE void st_u16(uint16_t *p, vi v) { vst1_u16(p, vmovn_u32((uint32x4_t)v)); }
INLINE void stn_u16(uint16_t *p, vi v, long n) { put_u16(p, vmovn_u32((uint32x4_t)v), n); }
INLINE vf fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE vf fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
INLINE vf vmax(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE vf vmin(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
INLINE vi round_i(vf x) { return vcvtnq_s32_f32(x); }
INLINE vf from_i(vi x) { return vcvtq_f32_s32(x); }
INLINE vi shl(vi x, int n) { return x << n; }
INLINE vi shr(vi x, int n) { return (vi)((uint32x4_t)x >> (unsigned)n); }
INLINE vi sar(vi x, int n) { return x >> n; }
INLINE vi addi(vi a, vi b) { return a + b; }
INLINE vi subi(vi a, vi b) { return a - b; }
INLINE vf where_lt(vf x, vf y, vf a, vf b) { return vbslq_f32(vcltq_f32(x, y), a, b); }
INLINE vf swap(vf x) { return vrev64q_f32(x); }
INLINE vi where_nan(vf x, vi a, vi b) { return vbslq_s32(vceqq_f32(x, x), b, a); }
INLINE float fold(vf v, int max) {
  if (!max) return vaddvq_f32(v);
  vf s = vmax(v, (vf)vextq_f32(v, v, 2));
  return vmax(s, vextq_f32(s, s, 1))[0];
}
INLINE void transpose(vf *r) {
  vf a = vtrn1q_f32(r[0], r[1]), b = vtrn2q_f32(r[0], r[1]), c = vtrn1q_f32(r[2], r[3]), d = vtrn2q_f32(r[2], r[3]);
  r[0] = (vf)vtrn1q_f64((float64x2_t)a, (float64x2_t)c);
  r[1] = (vf)vtrn1q_f64((float64x2_t)b, (float64x2_t)d);
  r[2] = (vf)vtrn2q_f64((float64x2_t)a, (float64x2_t)c);
  r[3] = (vf)vtrn2q_f64((float64x2_t)b, (float64x2_t)d);
}
#define MICRO_NR 12
#else
#error "no such level"
#endif

// Some processors fetch too little ahead by themselves, because their prefetchers work
// within a page of memory. So memory that is read in order is asked for before its turn,
// with each STEP bytes read. Where one stream of loads keeps too little under way, as on
// Intel's processors and AMD's up to Zen 3, FAR is FAR_PAGES: windows of four pages, one window ahead and its pages
// side by side, a line of each. FAR_LINES leaves most to the processor, Zen 4, which
// begins a page early enough if the first of every four lines is asked for some pages
// ahead, into the second-level cache: every line, or the second of two, costs up to
// a third. FAR_ALL asks for every line, into the first level, as Zen 5 wants it: its prefetchers
// follow loops that have some arithmetic between their loads at half of memory's rate.
// A hint may lie behind the end of the data; it never faults.
enum { FAR_OFF, FAR_PAGES, FAR_LINES, FAR_ALL };
#if defined(__x86_64__)
#define CAN_FAR 1
#else
#define CAN_FAR 0 // none is known that gains
#endif
#if defined(__AVX512F__)
#define CAN_ALL 1
#else
#define CAN_ALL 0 // processors that want it have AVX-512; some kernels would take too much of the stack
#endif
#define STEP 256
#define PAGES (STEP / 64)
#define WINDOW (4096 * PAGES)
#define LINES_AHEAD (11 << 10)
#define ALL_AHEAD (12 << 10)

// step_of gives the beginning of the step in which p lies.
INLINE const uint8_t *step_of(const uint8_t *p) { return (const uint8_t *)((uintptr_t)p & ~(uintptr_t)(STEP - 1)); }

// ask_step asks for the lines that go with the step at p.
INLINE void ask_step(const int FAR, const uint8_t *p) {
  if (FAR == FAR_LINES) {
    __builtin_prefetch(step_of(p) + LINES_AHEAD, 0, 2);
    return;
  }
  if (FAR == FAR_ALL) {
    UNROLL for (int i = 0; i < STEP; i += 64) __builtin_prefetch(step_of(p) + ALL_AHEAD + i);
    return;
  }
  const uintptr_t at = (uintptr_t)p & (WINDOW - 1);
  const uint8_t *line = p - at + WINDOW + at / STEP * 64;
  UNROLL for (int i = 0; i < PAGES; i++) __builtin_prefetch(line + 4096 * i);
}

// ask does so for the steps from next up to end; the step after them is returned.
INLINE const uint8_t *ask(const int FAR, const uint8_t *next, const uint8_t *end) {
  ROLLED for (; next < end; next += STEP) ask_step(FAR, next);
  return next;
}

#define READ_STEP 512 // bytes of a stream at a time, where several are read

#define MICRO_MR (2 * VL)
#define R (16 / VL) // vectors of rows in a panel of sixteen
INLINE float vsum(vf v) { return fold(v, 0); }

// sums4 adds up the lanes of each of four vectors.
INLINE f32x4 sums4(const vf *a) {
#if defined(__aarch64__)
  return vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(a[2], a[3]));
#elif defined(__AVX512F__)
  vf x = _mm512_unpacklo_ps(a[0], a[1]) + _mm512_unpackhi_ps(a[0], a[1]);
  vf y = _mm512_unpacklo_ps(a[2], a[3]) + _mm512_unpackhi_ps(a[2], a[3]);
  vf s = _mm512_shuffle_ps(x, y, 0x44) + _mm512_shuffle_ps(x, y, 0xee);
  __m256 h = _mm512_castps512_ps256(s) + _mm512_extractf32x8_ps(s, 1);
  return _mm256_castps256_ps128(h) + _mm256_extractf128_ps(h, 1);
#else
  vf x = _mm256_unpacklo_ps(a[0], a[1]) + _mm256_unpackhi_ps(a[0], a[1]);
  vf y = _mm256_unpacklo_ps(a[2], a[3]) + _mm256_unpackhi_ps(a[2], a[3]);
  vf s = _mm256_shuffle_ps(x, y, 0x44) + _mm256_shuffle_ps(x, y, 0xee);
  return _mm256_castps256_ps128(s) + _mm256_extractf128_ps(s, 1);
#endif
}

// cvt16 widens 16 signed bytes to floats.
INLINE void cvt16(i8x16 q, vf *out) {
  union { f32x16 all; vf v[16 / VL]; } u;
  u.all = __builtin_convertvector(q, f32x16);
  UNROLL for (int i = 0; i < 16 / VL; i++) out[i] = u.v[i];
}
#endif
