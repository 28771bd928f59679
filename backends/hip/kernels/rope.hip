// Rotation by position, and storing in a cache: a block a token.
#include "prelude.h"
#define NT 128

// Whether token s writes its position: not where it lies outside the cache,
// and not where a later token of the step has the same one.
G_FN bool writes(const int *pos, u32 s, u32 tokens, u32 positions, u32 *status, u32 launch) {
  __shared__ u32 later;
  int p = pos[s];
  if (p < 0 || (u32)p >= positions) {
    if (tid() == 0) fail(status, launch, s, p);
    return false;
  }
  if (s + 1 >= tokens) return true;
  if (tid() == 0) later = 0;
  bar();
  for (u32 i = s + 1 + tid(); i < tokens; i += NT)
    if (pos[i] == p) later = 1;
  bar();
  return !later;
}

// y[a], y[b] = m·rotate(x[a], x[b]) by the angle pos·freq; elements behind the
// rotated ones are copied. With positions above zero y is a cache of type
// ytype whose row pos[s] is written, else the dense result.
G_KERNEL G_BOUNDS(NT) rope(void *y, u32 ytype, u32 positions, const float *x, u32 xstride, const int *pos, u32 tokens,
                           u32 heads, u32 dh, const double *freq, u32 half, u32 pair, const void *factors, u32 ftype,
                           float m, u32 *status, u32 launch) {
  const u32 s = bidx();
  const int p = pos[s];
  if (positions && !writes(pos, s, tokens, positions, status, launch)) return;
  if (!positions && p < 0 && tid() == 0) fail(status, launch, s, p);
  const float *in = x + (u64)s * xstride;
  const u64 out = (u64)(positions ? (u32)p : s) * heads * dh;
  for (u32 i = tid(); i < half; i += NT) {
    double f = freq[i];
    if (factors) f /= (double)load_float(factors, ftype, i);
    float sn, cs;
    g_sincos((double)p * f, &sn, &cs);
    sn *= m;
    cs *= m;
    u32 a = pair ? 2 * i : i, b = pair ? 2 * i + 1 : i + half;
    for (u32 h = 0; h < heads; h++) {
      float va = in[h * dh + a], vb = in[h * dh + b];
      store_float(y, ytype, out + h * dh + a, va * cs - vb * sn);
      store_float(y, ytype, out + h * dh + b, vb * cs + va * sn);
    }
  }
  const u32 rest = dh - 2 * half;
  for (u32 i = tid(); i < heads * rest; i += NT) {
    u32 at_e = i / rest * dh + 2 * half + i % rest;
    store_float(y, ytype, out + at_e, in[at_e]);
  }
}

// cache[pos[s]] = x[s]
G_KERNEL G_BOUNDS(NT) push(void *y, u32 ytype, u32 positions, const float *x, u32 xstride, const int *pos, u32 tokens,
                           u32 row, u32 *status, u32 launch) {
  const u32 s = bidx();
  if (!writes(pos, s, tokens, positions, status, launch)) return;
  const u64 out = (u64)pos[s] * row;
  for (u32 i = tid(); i < row; i += NT) store_float(y, ytype, out + i, x[(u64)s * xstride + i]);
}
