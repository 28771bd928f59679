// Matrix product Y[S,N] = X[S,K]·W[N,K]ᵀ: packing into panels, and the
// micro-kernel that multiplies two panels. MR = 2·VL rows of W, NR rows of X.
#include "vec.h"

#define FAR 32 // columns from which rows of X are asked for ahead, which come from the third-level cache

// PACK: dst[i*width+r] = src[r*ld+i] for i < k, r < rows; 0 for rows <= r < width.
#define PACK(NAME, T, LD, LDN)                                                                        \
  void NAME(const T *src, long ld, float *dst, long k, long rows, long width) {                       \
    ROLLED for (long g = 0; g < width; g += VL, src += VL * ld, rows -= VL) {                         \
      long w = width - g < VL ? width - g : VL;                                                       \
      long i = 0;                                                                                     \
      if (rows >= VL && w == VL) {                                                                    \
        ROLLED for (; i + VL <= k; i += VL) {                                                         \
          vf r[VL];                                                                                   \
          UNROLL for (int j = 0; j < VL; j++) r[j] = LD(src + j * ld + i);                            \
          transpose(r);                                                                               \
          UNROLL for (int j = 0; j < VL; j++) st(dst + (i + j) * width + g, r[j]);                    \
        }                                                                                             \
      }                                                                                               \
      ROLLED for (; i < k; i += VL) {                                                                 \
        long n = k - i < VL ? k - i : VL;                                                             \
        vf r[VL];                                                                                     \
        UNROLL for (int j = 0; j < VL; j++)                                                           \
          r[j] = j < rows ? (n == VL ? LD(src + j * ld + i) : LDN(src + j * ld + i, n)) : vset(0);    \
        transpose(r);                                                                                 \
        UNROLL for (int j = 0; j < VL; j++)                                                           \
          if (j < n) stn(dst + (i + j) * width + g, r[j], w);                                         \
      }                                                                                               \
    }                                                                                                 \
  }
PACK(pack_f32, float, ld_f32, ldn_f32)
PACK(pack_f16, uint16_t, ld_f16, ldn_f16)
PACK(pack_bf16, uint16_t, ld_bf16, ldn_bf16)

// SPREAD: dst[i/NR*apart + r*NR + i%NR] = src[r*ld+i] for r < n, i < cols: panels of NR columns, the last one
// filled up with zeros. Returns 0 if all of them are finite. Whole vectors are stored where
// what follows comes later.
#define SPAN ((MICRO_NR + VL - 1) / VL)
#define WITHIN(n) ((n) < 0 ? 0 : (n) < VL ? (n) : VL)
#define SPREAD(NAME, T, LD, LDN)                                                                            \
  long NAME(const T *src, long ld, float *dst, long n, long cols, long apart) {                             \
    vf bad = vset(0);                                                                                       \
    ROLLED for (long left = cols; left > 0; left -= MICRO_NR, src += MICRO_NR, dst += apart) {              \
      const T *p = src;                                                                                     \
      float *to = dst;                                                                                      \
      long r = 0;                                                                                           \
      if (left >= SPAN * VL)                                                                                \
        ROLLED for (; r < n - 1; r++, p += ld, to += MICRO_NR)                                              \
          UNROLL for (int v = 0; v < SPAN; v++) {                                                           \
            vf x = LD(p + v * VL);                                                                          \
            bad = fma(x, vset(0), bad);                                                                     \
            st(to + v * VL, x);                                                                             \
          }                                                                                                 \
      ROLLED for (; r < n; r++, p += ld, to += MICRO_NR)                                                    \
        UNROLL for (int v = 0; v < SPAN; v++) {                                                             \
          vf x = left >= (v + 1) * VL ? LD(p + v * VL) : LDN(p + v * VL, WITHIN(left - v * VL));            \
          bad = fma(x, vset(0), bad);                                                                       \
          if (MICRO_NR >= (v + 1) * VL) st(to + v * VL, x); else stn(to + v * VL, x, MICRO_NR - v * VL);    \
        }                                                                                                   \
    }                                                                                                       \
    return !(vsum(bad) == 0);                                                                               \
  }
SPREAD(spread_f32, float, ld_f32, ldn_f32)
SPREAD(spread_f16, uint16_t, ld_f16, ldn_f16)
SPREAD(spread_bf16, uint16_t, ld_bf16, ldn_bf16)

// tile computes with NR columns, of which nr are stored. What it adds to or writes is asked
// for first: rows of c are far apart, so that no processor fetches them by itself.
INLINE void tile(const float *w, const float *x, float *c, long ldc, long k, long mr, long nr, long add, const int NR) {
  vf a[MICRO_NR], b[MICRO_NR];
  UNROLL for (int j = 0; j < NR; j++) {
    a[j] = b[j] = vset(0);
    if (j < nr)
      UNROLL for (int i = 0; i < MICRO_MR; i += 16) __builtin_prefetch(c + j * ldc + i, 1, 2);
  }
  ROLLED for (; k > 0; k--, w += MICRO_MR, x += MICRO_NR) {
    __builtin_prefetch(x + FAR * MICRO_NR, 0, 3);
    vf w0 = ld_f32(w), w1 = ld_f32(w + VL);
    UNROLL for (int j = 0; j < NR; j++) {
      vf s = vset(x[j]);
      a[j] = fma(w0, s, a[j]);
      b[j] = fma(w1, s, b[j]);
    }
  }
  if (mr == MICRO_MR) {
    UNROLL for (int j = 0; j < NR; j++) {
      if (j < nr) {
        float *p = c + j * ldc;
        if (add) {
          a[j] += ld_f32(p);
          b[j] += ld_f32(p + VL);
        }
        st(p, a[j]);
        st(p + VL, b[j]);
      }
    }
    return;
  }
  long m0 = mr < VL ? mr : VL, m1 = mr - m0;
  UNROLL for (int j = 0; j < NR; j++) {
    if (j < nr) {
      float *p = c + j * ldc;
      if (m0 == VL) {
        st(p, add ? a[j] + ld_f32(p) : a[j]);
        if (m1) stn(p + VL, add ? b[j] + ldn_f32(p + VL, m1) : b[j], m1);
      } else {
        stn(p, add ? a[j] + ldn_f32(p, m0) : a[j], m0);
      }
    }
  }
}

// micro: c[j*ldc+i] (+)= Σ_k w[k*MR+i]·x[k*NR+j] for i < mr, j < nr.
// shape = mr | nr << 8 | add << 16.
void micro(const float *w, const float *x, float *c, long ldc, long k, long shape) {
  long mr = shape & 255, nr = shape >> 8 & 255, add = shape >> 16;
  if (nr > MICRO_NR * 2 / 3)
    tile(w, x, c, ldc, k, mr, nr, add, MICRO_NR);
  else if (nr > MICRO_NR / 3)
    tile(w, x, c, ldc, k, mr, nr, add, MICRO_NR * 2 / 3);
  else
    tile(w, x, c, ldc, k, mr, nr, add, MICRO_NR / 3);
}
