// Matrix times vector over plain rows, as weights lie in files. Rows are read
// front to back, four at a time, so that x is loaded once per four rows.
#include "blocks.h"

// Bytes to fetch ahead in each row: hardware prefetchers lose a few per cent
// on four interleaved streams.
#define AHEAD 2048

// NAME: y[r] = Σ_i w[r*ldw+i]·x[i] for r < rows, i < k. ldw counts elements.
#define MATVEC(NAME, T, LD, LDN)                                                                      \
  INLINE void NAME##_rows(const T *w, const float *x, float *y, long k, long ldw, const int R) {      \
    vf a[4], b[4];                                                                                    \
    UNROLL for (int j = 0; j < R; j++) a[j] = b[j] = vset(0);                                         \
    long i = 0;                                                                                       \
    ROLLED for (; i + 4 * VL <= k; i += 4 * VL) {                                                     \
      UNROLL for (int u = 0; u < 4; u += 2) {                                                         \
        vf x0 = ld_f32(x + i + u * VL), x1 = ld_f32(x + i + u * VL + VL);                             \
        UNROLL for (int j = 0; j < R; j++) {                                                          \
          const T *p = w + j * ldw + i + u * VL;                                                      \
          __builtin_prefetch((const char *)p + AHEAD);                                                \
          if (sizeof(T) * VL >= 64) __builtin_prefetch((const char *)p + AHEAD + 64);                 \
          a[j] = fma(LD(p), x0, a[j]);                                                                \
          b[j] = fma(LD(p + VL), x1, b[j]);                                                           \
        }                                                                                             \
      }                                                                                               \
    }                                                                                                 \
    ROLLED for (; i + VL <= k; i += VL) {                                                             \
      vf x0 = ld_f32(x + i);                                                                          \
      UNROLL for (int j = 0; j < R; j++) a[j] = fma(LD(w + j * ldw + i), x0, a[j]);                   \
    }                                                                                                 \
    if (i < k) {                                                                                      \
      vf x0 = ldn_f32(x + i, k - i);                                                                  \
      UNROLL for (int j = 0; j < R; j++) a[j] = fma(LDN(w + j * ldw + i, k - i), x0, a[j]);           \
    }                                                                                                 \
    UNROLL for (int j = 0; j < R; j++) y[j] = vsum(a[j] + b[j]);                                      \
  }                                                                                                   \
  void NAME(const T *w, const float *x, float *y, long rows, long k, long ldw) {                      \
    for (; rows >= 4; rows -= 4, w += 4 * ldw, y += 4) NAME##_rows(w, x, y, k, ldw, 4);               \
    for (; rows > 0; rows--, w += ldw, y++) NAME##_rows(w, x, y, k, ldw, 1);                          \
  }
MATVEC(mv_f32, float, ld_f32, ldn_f32)
MATVEC(mv_f16, uint16_t, ld_f16, ldn_f16)
MATVEC(mv_bf16, uint16_t, ld_bf16, ldn_bf16)

// Formats of 32 elements with one f16 scale in front: the block's dot product
// is taken on unscaled numbers, then scaled. Scales of VL blocks are widened
// at once. ldw counts bytes.
#define MATVEC32(NAME, BYTES, UNPACK)                                                                 \
  INLINE void NAME##_rows(const uint8_t *w, const float *x, float *y, long nb, long ldw, const int R) { \
    vf acc[4];                                                                                        \
    float d[4 * VL];                                                                                  \
    UNROLL for (int j = 0; j < R; j++) acc[j] = vset(0);                                              \
    ROLLED for (long b0 = 0; b0 < nb; b0 += VL) {                                                     \
      long n = nb - b0 < VL ? nb - b0 : VL;                                                           \
      UNROLL for (int j = 0; j < R; j++) {                                                            \
        const uint8_t *p = w + j * ldw + b0 * BYTES;                                                  \
        uint16_t h[VL] __attribute__((aligned(32)));                                                  \
        if (n == VL) {                                                                                \
          UNROLL for (int i = 0; i < VL; i++) h[i] = *(const u16u *)(p + i * BYTES);                  \
          st(d + j * VL, ld_f16(h));                                                                  \
        } else {                                                                                      \
          ROLLED for (long i = 0; i < n; i++) h[i] = *(const u16u *)(p + i * BYTES);                  \
          st(d + j * VL, ldn_f16(h, n));                                                              \
        }                                                                                             \
      }                                                                                               \
      ROLLED for (long i = 0; i < n; i++) {                                                           \
        vf xv[32 / VL];                                                                               \
        const float *xp = x + (b0 + i) * 32;                                                          \
        UNROLL for (int u = 0; u < 32 / VL; u++) xv[u] = ld_f32(xp + u * VL);                         \
        UNROLL for (int j = 0; j < R; j++) {                                                          \
          const uint8_t *p = w + j * ldw + (b0 + i) * BYTES;                                          \
          __builtin_prefetch(p + AHEAD);                                                              \
          vf q[32 / VL];                                                                              \
          UNPACK(p + 2, q);                                                                           \
          vf s = q[0] * xv[0];                                                                        \
          UNROLL for (int u = 1; u < 32 / VL; u++) s = fma(q[u], xv[u], s);                           \
          acc[j] = fma(s, vset(d[j * VL + i]), acc[j]);                                               \
        }                                                                                             \
      }                                                                                               \
    }                                                                                                 \
    UNROLL for (int j = 0; j < R; j++) y[j] = vsum(acc[j]);                                           \
  }                                                                                                   \
  void NAME(const uint8_t *w, const float *x, float *y, long rows, long k, long ldw) {                \
    for (; rows >= 4; rows -= 4, w += 4 * ldw, y += 4) NAME##_rows(w, x, y, k / 32, ldw, 4);          \
    for (; rows > 0; rows--, w += ldw, y++) NAME##_rows(w, x, y, k / 32, ldw, 1);                     \
  }
MATVEC32(mv_q8_0, 34, unpack_q8_0)
MATVEC32(mv_q4_0, 18, unpack_q4_0)

// Q4_K: w = d·sc·q - dmin·m per 32 elements, so the row's sum is
// Σ d·sc·(q·x) - dmin·m·(Σ x), kept lane by lane until the end.
INLINE void q4_k_rows(const uint8_t *w, const float *x, float *y, long nb, long ldw, const int R) {
  vf acc[2], sub[2];
  float d[2][16];
  UNROLL for (int j = 0; j < R; j++) acc[j] = sub[j] = vset(0);
  ROLLED for (long b = 0; b < nb; b++, x += 256) {
    UNROLL for (int j = 0; j < R; j++) scales_k4(w + j * ldw + b * 144, d[j]);
    ROLLED for (int c = 0; c < 4; c++) { // 64 elements: 32 low nibbles, 32 high
      UNROLL for (int half = 0; half < 2; half++) {
        vf xv[32 / VL], xs;
        UNROLL for (int u = 0; u < 32 / VL; u++) xv[u] = ld_f32(x + c * 64 + half * 32 + u * VL);
        xs = xv[0];
        UNROLL for (int u = 1; u < 32 / VL; u++) xs += xv[u];
        UNROLL for (int j = 0; j < R; j++) {
          const uint8_t *q = w + j * ldw + b * 144 + 16 + c * 32;
          vf v[32 / VL];
          nibbles(q, half, 0, v);
          nibbles(q + 16, half, 0, v + 16 / VL);
          vf s = v[0] * xv[0];
          UNROLL for (int u = 1; u < 32 / VL; u++) s = fma(v[u], xv[u], s);
          acc[j] = fma(s, vset(d[j][c * 2 + half]), acc[j]);
          sub[j] = fma(xs, vset(d[j][8 + c * 2 + half]), sub[j]);
        }
      }
    }
  }
  UNROLL for (int j = 0; j < R; j++) y[j] = vsum(acc[j] - sub[j]);
}
void mv_q4_k(const uint8_t *w, const float *x, float *y, long rows, long k, long ldw) {
  for (; rows >= 2; rows -= 2, w += 2 * ldw, y += 2) q4_k_rows(w, x, y, k / 256, ldw, 2);
  if (rows) q4_k_rows(w, x, y, k / 256, ldw, 1);
}

// Q6_K: w = d·sc·(q - 32), one sc per 16 elements.
INLINE void q6_k_rows(const uint8_t *w, const float *x, float *y, long nb, long ldw, const int R) {
  vf acc[2];
  float d[2][16];
  UNROLL for (int j = 0; j < R; j++) acc[j] = vset(0);
  ROLLED for (long b = 0; b < nb; b++, x += 256) {
    UNROLL for (int j = 0; j < R; j++) scales_k6(w + j * ldw + b * 210, d[j]);
    ROLLED for (int c = 0; c < 4; c++) { // 16 bytes of high bits give 4 groups of 16
      int half = c >> 1, at = c & 1;
      const float *xp = x + half * 128 + at * 16;
      vf xv[4][16 / VL];
      UNROLL for (int g = 0; g < 4; g++)
        UNROLL for (int u = 0; u < 16 / VL; u++) xv[g][u] = ld_f32(xp + g * 32 + u * VL);
      UNROLL for (int j = 0; j < R; j++) {
        i8x16 q[4];
        sixes(w + j * ldw + b * 210, half, at, q);
        UNROLL for (int g = 0; g < 4; g++) {
          vf v[16 / VL];
          cvt16(q[g], v);
          vf s = v[0] * xv[g][0];
          UNROLL for (int u = 1; u < 16 / VL; u++) s = fma(v[u], xv[g][u], s);
          acc[j] = fma(s, vset(d[j][half * 8 + g * 2 + at]), acc[j]);
        }
      }
    }
  }
  UNROLL for (int j = 0; j < R; j++) y[j] = vsum(acc[j]);
}
void mv_q6_k(const uint8_t *w, const float *x, float *y, long rows, long k, long ldw) {
  for (; rows >= 2; rows -= 2, w += 2 * ldw, y += 2) q6_k_rows(w, x, y, k / 256, ldw, 2);
  if (rows) q6_k_rows(w, x, y, k / 256, ldw, 1);
}

// wsum_T: y[i] += Σ_r p[r]·v[r*ldv+i] for i < d: attention's weighted sum of
// value rows. ldv counts elements.
#define WSUM(NAME, T, LD, LDN)                                                                        \
  void NAME(const T *v, const float *p, float *y, long rows, long d, long ldv) {                      \
    long i = 0;                                                                                       \
    ROLLED for (; i + 4 * VL <= d; i += 4 * VL) {                                                     \
      vf a[4];                                                                                        \
      UNROLL for (int u = 0; u < 4; u++) a[u] = ld_f32(y + i + u * VL);                               \
      ROLLED for (long r = 0; r < rows; r++) {                                                        \
        vf s = vset(p[r]);                                                                            \
        UNROLL for (int u = 0; u < 4; u++) a[u] = fma(LD(v + r * ldv + i + u * VL), s, a[u]);         \
      }                                                                                               \
      UNROLL for (int u = 0; u < 4; u++) st(y + i + u * VL, a[u]);                                    \
    }                                                                                                 \
    ROLLED for (; i + VL <= d; i += VL) {                                                             \
      vf a = ld_f32(y + i);                                                                           \
      ROLLED for (long r = 0; r < rows; r++) a = fma(LD(v + r * ldv + i), vset(p[r]), a);             \
      st(y + i, a);                                                                                   \
    }                                                                                                 \
    if (i < d) {                                                                                      \
      vf a = ldn_f32(y + i, d - i);                                                                   \
      ROLLED for (long r = 0; r < rows; r++) a = fma(LDN(v + r * ldv + i, d - i), vset(p[r]), a);     \
      stn(y + i, a, d - i);                                                                           \
    }                                                                                                 \
  }
WSUM(wsum_f32, float, ld_f32, ldn_f32)
WSUM(wsum_f16, uint16_t, ld_f16, ldn_f16)
WSUM(wsum_bf16, uint16_t, ld_bf16, ldn_bf16)
