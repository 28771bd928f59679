// Rotation by position, and storing in a cache: a block a token and head.
#include "prelude.h"
#define NT 64

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
G_KERNEL G_BOUNDS(NT) rope(void *__restrict__ y, u32 ytype, u32 positions, const float *__restrict__ x, u32 xstride,
                           const int *__restrict__ pos, u32 tokens, u32 heads, u32 dh, const double *__restrict__ freq,
                           u32 half, u32 pair, const void *__restrict__ factors, u32 ftype, float m, u32 *status,
                           u32 launch) {
  const u32 s = bidx(), h = bidy();
  const int p = pos[s];
  if (positions && !writes(pos, s, tokens, positions, status, launch)) return;
  if (!positions && p < 0 && tid() == 0) fail(status, launch, s, p);
  x += (u64)s * xstride + h * dh;
  const u64 out = ((u64)(positions ? (u32)p : s) * heads + h) * dh;
  for (u32 i = tid(); i < half; i += NT) {
    u32 a = pair ? 2 * i : i, b = pair ? 2 * i + 1 : i + half;
    float va = x[a], vb = x[b];
    double f = freq[i];
    if (factors) f /= (double)load_float(factors, ftype, i);
    float sn, cs;
    g_sincos((double)p * f, &sn, &cs);
    sn *= m;
    cs *= m;
    store_float(y, ytype, out + a, va * cs - vb * sn);
    store_float(y, ytype, out + b, vb * cs + va * sn);
  }
  for (u32 i = 2 * half + tid(); i < dh; i += NT) store_float(y, ytype, out + i, x[i]);
}

// cache[pos[s]] = x[s], a piece of dh elements
G_KERNEL G_BOUNDS(NT) push(void *__restrict__ y, u32 ytype, u32 positions, const float *__restrict__ x, u32 xstride,
                           const int *__restrict__ pos, u32 tokens, u32 heads, u32 dh, u32 *status, u32 launch) {
  const u32 s = bidx(), h = bidy();
  if (!writes(pos, s, tokens, positions, status, launch)) return;
  const u64 out = ((u64)pos[s] * heads + h) * dh;
  x += (u64)s * xstride + h * dh;
  for (u32 i = tid(); i < dh; i += NT) store_float(y, ytype, out + i, x[i]);
}
