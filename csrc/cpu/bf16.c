// Products of bf16 panels with many rows of activations, on processors with
// dot products of bf16: activations are rounded to bf16, sums are f32. Panels
// lie in memory as such a product wants them (plainpanel.c).
#include "vec.h"

#define NR 12 // rows of activations in a tile: [k/2][NR] pairs
#define FAR 32 // pairs from which operands are asked for ahead, most of them from the third-level cache

// pack_bf16x: rows of k floats, ld apart, as a tile; missing rows, and the last
// element of an odd k, are paired with zeros.
void pack_bf16x(const float *x, long ld, uint32_t *dst, long k, long rows) {
  ROLLED for (long i = 0; i < k; i += 32) {
    long n = k - i, low = n < 16 ? n : 16, high = n < 16 ? 0 : n < 32 ? n - 16 : 16;
    vf r[16];
    UNROLL for (int j = 0; j < 16; j++) {
      r[j] = vset(0);
      if (j < NR && j < rows) r[j] = (vf)_mm512_cvtne2ps_pbh(ldn_f32(x + j * ld + i + 16, high), ldn_f32(x + j * ld + i, low));
    }
    transpose(r);
    UNROLL for (int j = 0; j < 16; j++)
      if (2 * j < n) stn((float *)dst + (i / 2 + j) * NR, r[j], NR);
  }
}

INLINE vf dot2(vf s, vf w, vf x) { return _mm512_dpbf16_ps(s, (__m512bh)w, (__m512bh)x); }

// mul computes two panels of 16 rows, or one, with N rows of activations, of
// which n are stored, r added unless it is null.
INLINE void mul(const float *w, const float *v, const float *x, float *y, const float *r, long ldy, long pairs, long n, const int N, const int two) {
  vf a[NR], b[NR];
  // Rows of y are far apart, so that no processor fetches them by itself.
  UNROLL for (int j = 0; j < N; j++) {
    if (j < n) {
      __builtin_prefetch(y + j * ldy, 1, 3);
      if (two) __builtin_prefetch(y + j * ldy + 16, 1, 3);
      if (r) __builtin_prefetch(r + j * ldy, 0, 3);
      if (r && two) __builtin_prefetch(r + j * ldy + 16, 0, 3);
    }
  }
  UNROLL for (int j = 0; j < N; j++) a[j] = b[j] = vset(0);
  ROLLED for (; pairs > 0; pairs--, w += 16, v += 16, x += NR) {
    __builtin_prefetch(w + FAR * 16, 0, 3);
    if (two) __builtin_prefetch(v + FAR * 16, 0, 3);
    __builtin_prefetch(x + FAR * NR, 0, 3);
    vf w0 = ld_f32(w), w1 = two ? ld_f32(v) : vset(0);
    UNROLL for (int j = 0; j < N; j++) {
      vf s = vset(x[j]);
      a[j] = dot2(a[j], w0, s);
      if (two) b[j] = dot2(b[j], w1, s);
    }
  }
  UNROLL for (int j = 0; j < N; j++) {
    if (j < n) {
      st(y + j * ldy, r ? a[j] + ld_f32(r + j * ldy) : a[j]);
      if (two) st(y + j * ldy + 16, r ? b[j] + ld_f32(r + j * ldy + 16) : b[j]);
    }
  }
}

// pb_bf16: y[j*ldy + 16·p + i] = row i of panel p times row j of a tile, to
// which r[j*ldy + 16·p + i] is added unless r is null, for j < n and p < panels,
// with shape = n | panels << 8 | pairs << 32; pairs is half of the columns,
// rounded up.
void pb_bf16(const float *w, const float *x, float *y, const float *r, long ldy, long shape) {
  const long n = shape & 255, pairs = shape >> 32;
  ROLLED for (long p = shape >> 8 & 0xffffff; p > 0; p -= 2, w += 32 * pairs, y += 32, r += r ? 32 : 0) {
    if (p == 1)
      mul(w, w, x, y, r, ldy, pairs, n, NR, 0);
    else if (n > 8)
      mul(w, w + 16 * pairs, x, y, r, ldy, pairs, n, NR, 1);
    else if (n > 4)
      mul(w, w + 16 * pairs, x, y, r, ldy, pairs, n, 8, 1);
    else
      mul(w, w + 16 * pairs, x, y, r, ldy, pairs, n, 4, 1);
  }
}

// peak_bf16 is peak_f32 of vector.c for dot products of bf16.
long peak_bf16(float *p, long n) {
  vf a[12], x = ld_f32(p);
  UNROLL for (int i = 0; i < 12; i++) a[i] = vset((float)i);
  ROLLED for (long r = 0; r < n; r++)
    UNROLL for (int i = 0; i < 12; i++) a[i] = dot2(a[i], x, x);
  UNROLL for (int i = 1; i < 12; i++) a[0] += a[i];
  st(p, a[0]);
  return n * 12 * 32;
}
