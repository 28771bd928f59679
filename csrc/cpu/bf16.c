// Products of bf16 panels with many rows of activations, on processors with
// dot products of bf16: activations are rounded to bf16, sums are f32. Panels
// lie in memory as such a product wants them (plainpanel.c).
#include "compact.h"

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

// rare adds the products of a compact panel's exceptions with N rows of activations.
INLINE void rare(const uint8_t *w, const float *x, vf *a, long k, const int N) {
  const uint32_t *ends = (const uint32_t *)(w + ENDS), *e = ends + SEGMENTS;
  ROLLED for (int s = 0; s < SEGMENTS; s++)
    ROLLED for (const uint32_t *end = end_of(ends, s, k); e < end; e++) {
      const long c = 4096l * s + (*e >> 4 & 4095);
      if (c >= k) continue;
      const float *pair = x + c / 2 * NR;
      const vf v = (vf)_mm512_maskz_set1_epi32((__mmask16)(1u << (*e & 15)), (int)(c & 1 ? *e & 0xffff0000 : *e >> 16));
      UNROLL for (int j = 0; j < N; j++) a[j] = dot2(a[j], v, vset(pair[j]));
    }
}

// What pcb_bf16 does: y[j*ldy + 16·p + i] = row i of compact panel p times row j of a tile, to which
// r[j*ldy + 16·p + i] is added unless r is null, for j < n and p < panels. Unless dst is null the panels
// are stored there as plain ones, with zeros for exceptions, for the tiles that follow.
typedef struct {
  const uint8_t *w;
  const float *x;
  float *y;
  const float *r;
  uint8_t *dst;
  long ldy, n, panels, k;
} compact_job;

// mul_c is mul for two compact panels or one.
INLINE void mul_c(const compact_job *t, const int N, const int two, const int store) {
  const long n = t->n, ldy = t->ldy, size = HEAD + room(t->k) + t->k / 8 * BLOCK;
  const uint8_t *w = t->w, *v = w + size;
  const float *x = t->x, *r = t->r;
  float *y = t->y;
  uint8_t *d = t->dst, *e = d + 32 * t->k;
  vf a[NR], b[NR];
  UNROLL for (int j = 0; j < N; j++) {
    if (j < n) {
      __builtin_prefetch(y + j * ldy, 1, 3);
      if (two) __builtin_prefetch(y + j * ldy + 16, 1, 3);
      if (r) __builtin_prefetch(r + j * ldy, 0, 3);
      if (r && two) __builtin_prefetch(r + j * ldy + 16, 0, 3);
    }
  }
  UNROLL for (int j = 0; j < N; j++) a[j] = b[j] = vset(0);
  rare(w, x, a, t->k, N);
  if (two) rare(v, x, b, t->k, N);
  const vi tw = four(w), tv = two ? four(v) : viset(0);
  w += HEAD + room(t->k);
  v += HEAD + room(t->k);
  ROLLED for (long k = t->k; k > 0; k -= 8, w += BLOCK, v += BLOCK) {
    UNROLL for (int l = 0; l < BLOCK; l += 64) { // as far ahead as FAR says
      __builtin_prefetch(w + FAR / 4 * BLOCK + l, 0, 3);
      if (two) __builtin_prefetch(v + FAR / 4 * BLOCK + l, 0, 3);
    }
    UNROLL for (int h = 0; h < 2; h++) {
      vi p[2], q[2];
      half(w, tw, 0, h, p);
      if (two) half(v, tv, 0, h, q);
      UNROLL for (int u = 0; u < 2; u++, x += NR, d += 64, e += 64) {
        __builtin_prefetch(x + FAR * NR, 0, 3);
        if (store) st_i(d, p[u]);
        if (store && two) st_i(e, q[u]);
        UNROLL for (int j = 0; j < N; j++) {
          vf s = vset(x[j]);
          a[j] = dot2(a[j], (vf)p[u], s);
          if (two) b[j] = dot2(b[j], (vf)q[u], s);
        }
      }
    }
  }
  UNROLL for (int j = 0; j < N; j++) {
    if (j < n) {
      st(y + j * ldy, r ? a[j] + ld_f32(r + j * ldy) : a[j]);
      if (two) st(y + j * ldy + 16, r ? b[j] + ld_f32(r + j * ldy + 16) : b[j]);
    }
  }
}

void pcb_bf16(const compact_job *job) {
  compact_job t = *job;
  const long two = 2 * (HEAD + room(t.k) + t.k / 8 * BLOCK);
  ROLLED for (; t.panels > 0; t.panels -= 2, t.w += two, t.y += 32, t.r += t.r ? 32 : 0, t.dst += t.dst ? 64 * t.k : 0) {
    if (t.panels == 1 && t.dst)
      mul_c(&t, NR, 0, 1);
    else if (t.panels == 1)
      mul_c(&t, NR, 0, 0);
    else if (t.dst)
      mul_c(&t, NR, 1, 1);
    else if (t.n > 8)
      mul_c(&t, NR, 1, 0);
    else if (t.n > 4)
      mul_c(&t, 8, 1, 0);
    else
      mul_c(&t, 4, 1, 0);
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
