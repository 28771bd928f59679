// Loops that show what a core can do at most: STREAM's four, a sum of all that is
// read, chains of multiply-adds, divisions and square roots, dot products of bytes
// and of bf16, and a chain that counts cycles. Microbenchmarks run them.
#include "vec.h"

typedef double vd __attribute__((vector_size(sizeof(vf))));
typedef long vl __attribute__((vector_size(sizeof(vf))));
typedef vd vdu __attribute__((aligned(8)));
typedef vl vlu __attribute__((aligned(8)));
#define DL (VL / 2) // doubles in a vector

// STREAM, McCalpin: n doubles, a multiple of 64; arrays on a line of the cache.
// stores pass the cache where streaming is set.
#define STREAM(NAME, PARAMS, EXPR)                                                                  \
  void NAME PARAMS {                                                                                \
    vd f = (vd){} + (double)s;                                                                      \
    (void)f;                                                                                        \
    if (streaming) {                                                                                \
      ROLLED for (long i = 0; i < n; i += 4 * DL)                                                   \
        UNROLL for (int u = 0; u < 4; u++) {                                                        \
          const long k = i + u * DL;                                                                \
          __builtin_nontemporal_store(EXPR, (vd *)(y + k));                                         \
        }                                                                                           \
    } else {                                                                                        \
      ROLLED for (long i = 0; i < n; i += 4 * DL)                                                   \
        UNROLL for (int u = 0; u < 4; u++) {                                                        \
          const long k = i + u * DL;                                                                \
          *(vd *)(y + k) = EXPR;                                                                    \
        }                                                                                           \
    }                                                                                               \
  }
#define A (*(const vdu *)(a + k))
#define B (*(const vdu *)(b + k))
STREAM(stream_copy, (double *y, const double *a, long n, long streaming, float s), A)
STREAM(stream_scale, (double *y, const double *a, long n, long streaming, float s), f * A)
STREAM(stream_add, (double *y, const double *a, const double *b, long n, long streaming, float s), A + B)
STREAM(stream_triad, (double *y, const double *a, const double *b, long n, long streaming, float s), A + f * B)

// read_sum: Σ of n bytes as 64-bit words, modulo 2^64; n a multiple of 512. So many
// parts of the memory are read side by side, a step of each in turn, then what is left.
long read_sum(const uint8_t *p, long n, long streams) {
  vl s[8];
  UNROLL for (int u = 0; u < 8; u++) s[u] = (vl){};
  const long part = n / (streams * READ_STEP) * READ_STEP;
  const uint8_t *rest = p + streams * part;
  ROLLED for (long i = 0; i < part; i += READ_STEP, p += READ_STEP) {
    const uint8_t *q = p;
    ROLLED for (long j = 0; j < streams; j++, q += part)
      UNROLL for (int u = 0; u < READ_STEP / (4 * VL); u++) s[u % 8] += *(const vlu *)(q + 4 * VL * u);
  }
  ROLLED for (n -= streams * part; n > 0; n -= 32 * VL, rest += 32 * VL)
    UNROLL for (int u = 0; u < 8; u++) s[u] += *(const vlu *)(rest + 4 * VL * u);
  vl t = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
  long r = 0;
  UNROLL for (int i = 0; i < DL; i++) r += t[i];
  return r;
}

// clock_chain: rounds times sixteen additions that wait for each other: a cycle each.
// Registers, because some processors add small constants without an adder.
long clock_chain(long rounds) {
  long x = 1, y = rounds;
  __asm__ volatile("" : "+r"(x), "+r"(y));
  ROLLED for (long i = 0; i < rounds; i++)
    UNROLL for (int u = 0; u < 16; u++) {
      x += y;
      __asm__ volatile("" : "+r"(x));
    }
  return x;
}

// chain_f32: x = op(x) for shape>>8 vectors that do not wait for each other, each
// rounds times: multiply-add with f and g (op 0), g/x (1), root of x (2). The
// vectors follow each other in memory; the number of their lanes is returned.
#define CHAIN(V, L, ILP, OP)                                                  \
  {                                                                           \
    V v[ILP], p = (V){} + f, q = (V){} + e;                                   \
    (void)p, (void)q;                                                         \
    UNROLL for (int j = 0; j < ILP; j++) v[j] = *(const V *)(x + j * L);      \
    ROLLED for (long i = 0; i < rounds; i++)                                  \
      UNROLL for (int j = 0; j < ILP; j++) v[j] = OP;                         \
    UNROLL for (int j = 0; j < ILP; j++) *(V *)(x + j * L) = v[j];            \
  }
#define CHAINS(V, L, ILP)                                                              \
  if (op == 0) CHAIN(V, L, ILP, __builtin_elementwise_fma(v[j], p, q))                 \
  else if (op == 1) CHAIN(V, L, ILP, q / v[j])                                         \
  else CHAIN(V, L, ILP, __builtin_elementwise_sqrt(v[j]))
#define CHAIN_FN(NAME, T, V, L)                                                        \
  long NAME(T *x, long shape, long rounds, float f, float e) {                         \
    long op = shape & 255, ilp = shape >> 8;                                           \
    if (ilp == 1) CHAINS(V, L, 1)                                                      \
    else if (ilp == 2) CHAINS(V, L, 2)                                                 \
    else if (ilp == 4) CHAINS(V, L, 4)                                                 \
    else if (ilp == 8) CHAINS(V, L, 8)                                                 \
    else CHAINS(V, L, 12)                                                              \
    return L;                                                                          \
  }
CHAIN_FN(chain_f32, float, vf, VL)
CHAIN_FN(chain_f64, double, vd, DL)

// roof_f32: y = s + t, the ends of two chains of steps multiply-adds, for numbers v
// from 1 to 256: with x = 1 - v/2^18, s = v/256, then s·x + ¼ each time; t = 1, then
// t·x + ¾. n is a multiple of 4·VL.
void roof_f32(float *y, const float *v, long n, long steps) {
  vf quarter = (vf){} + 0.25f, most = (vf){} + 0.75f, one = (vf){} + 1.0f;
  ROLLED for (long i = 0; i < n; i += 4 * VL) {
    vf x[4], s[4], t[4];
    UNROLL for (int u = 0; u < 4; u++) {
      vf w = ld_f32(v + i + u * VL);
      x[u] = one - w * (float)0x1p-18;
      s[u] = w * (float)0x1p-8;
      t[u] = one;
    }
    ROLLED for (long k = 0; k < steps; k++)
      UNROLL for (int u = 0; u < 4; u++) {
        s[u] = __builtin_elementwise_fma(s[u], x[u], quarter);
        t[u] = __builtin_elementwise_fma(t[u], x[u], most);
      }
    UNROLL for (int u = 0; u < 4; u++) st(y + i + u * VL, s[u] + t[u]);
  }
}

// dot_i8: twelve vectors of 32-bit sums; to each, rounds times, the dot products of
// four bytes of w and four of x. w is below 16, so that no step saturates. The
// lanes of a vector are returned.
long dot_i8(int *sums, const void *w, const void *x, long rounds) {
  vi s[12];
  UNROLL for (int j = 0; j < 12; j++) s[j] = ld_i(sums + j * VL);
  vi a = ld_i(w), b = ld_i(x);
#if !defined(__AVX512VNNI__) && !defined(__AVXVNNI__) && defined(__AVX2__)
  vi ones = (vi)_mm256_set1_epi16(1);
#endif
  ROLLED for (long i = 0; i < rounds; i++)
    UNROLL for (int j = 0; j < 12; j++) {
#if defined(__AVX512VNNI__)
      s[j] = _mm512_dpbusd_epi32(s[j], a, b);
#elif defined(__AVXVNNI__)
      s[j] = _mm256_dpbusd_avx_epi32(s[j], a, b);
#elif defined(__AVX2__)
      vi p = a;
      __asm__ volatile("" : "+x"(p)); // the product is computed anew for each sum
      s[j] = _mm256_add_epi32(s[j], _mm256_madd_epi16(_mm256_maddubs_epi16(p, b), ones));
#elif defined(__ARM_FEATURE_DOTPROD)
      s[j] = (vi)vdotq_s32((int32x4_t)s[j], (int8x16_t)a, (int8x16_t)b);
#else
      vi p = a;
      __asm__ volatile("" : "+w"(p));
      int16x8_t low = vmull_s8(vget_low_s8((int8x16_t)p), vget_low_s8((int8x16_t)b));
      int16x8_t high = vmull_s8(vget_high_s8((int8x16_t)p), vget_high_s8((int8x16_t)b));
      s[j] = (vi)vaddq_s32((int32x4_t)s[j], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
    }
  UNROLL for (int j = 0; j < 12; j++) st((float *)sums + j * VL, (vf)s[j]);
  return VL;
}
