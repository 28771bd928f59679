// Functions of single elements that models state by name: a thread an element.
// x is rows with a stride in dimension 0, y is dense.
#include "prelude.h"

// where dense element i of a tensor lies: row is the elements of an index of dimension 0
G_FN u64 spread(u32 i, u32 row, u32 stride) { return row == stride ? i : (u64)(i / row) * stride + i % row; }

// 2 atanh(s) by its series, for |s| <= 1/3: the first term left out is 2e-9 of the sum.
G_FN float atanh2(float s) {
  float t = s * s, p = 0.0666666667f;
  p = g_fma(p, t, 0.0769230769f);
  p = g_fma(p, t, 0.0909090909f);
  p = g_fma(p, t, 0.111111111f);
  p = g_fma(p, t, 0.142857143f);
  p = g_fma(p, t, 0.2f);
  p = g_fma(p, t, 0.333333333f);
  return 2.0f * g_fma(p * t, s, s);
}
// ln a = e ln 2 + ln m with m in [√½, √2), ln m = 2 atanh((m - 1) / (m + 1)).
G_FN float g_log(float a) {
  u32 u = f2u(a);
  if ((u & 0x7fffffffu) == 0) return u2f(0xff800000u);
  if (u == 0x7f800000u) return a;
  if (u > 0x7f800000u) return u2f(0x7fc00000u); // negative numbers, and what is none
  int e = 0;
  if (u < 0x00800000u) { // a subnormal number: from its integer
    u = f2u((float)u);
    e = -149;
  }
  u32 v = u - 0x3f3504f3u; // √½
  e += (int)v >> 23;
  float m = u2f((v & 0x7fffffu) + 0x3f3504f3u), n = (float)e;
  return g_fma(n, 0.693359375f, g_fma(n, -2.12194440e-4f, atanh2((m - 1.0f) / (m + 1.0f)))); // ln 2 in two parts
}
G_FN float g_softplus(float a) {
  float u = g_exp(-g_abs(a));
  return g_max(a, 0.0f) + atanh2(u / (2.0f + u));
}
// from the nearest integer; beyond 2^23 there are no others
G_FN float g_floor(float a) {
  if (!(g_abs(a) < 8388608.0f)) return a;
  float n = g_rint(a);
  return n > a ? n - 1.0f : n;
}

#define UNARY(NAME, VALUE)                                                                             \
  G_KERNEL G_BOUNDS(256) NAME(float *__restrict__ y, const float *x, u32 n, u32 row, u32 stride, float p, float q) { \
    begin_next();                                                                                      \
    wait_previous();                                                                                   \
    u32 i = bidx() * 256 + tid();                                                                      \
    if (i >= n) return;                                                                                \
    float v = x[spread(i, row, stride)];                                                               \
    (void)p, (void)q;                                                                                  \
    y[i] = VALUE;                                                                                      \
  }
UNARY(relu, v < 0.0f ? 0.0f : v)
UNARY(relu2, v < 0.0f ? 0.0f : v * v)
UNARY(exp_of, v > 88.72284f ? u2f(0x7f800000u) : g_exp(v))
UNARY(log_of, g_log(v))
UNARY(tanh_of, g_tanh(v))
UNARY(softplus, g_softplus(v))
UNARY(reciprocal, 1.0f / v)
UNARY(abs_of, g_abs(v))
UNARY(floor_of, g_floor(v))
UNARY(affine, g_fma(p, v, q))
UNARY(clamp_of, v < p ? p : v > q ? q : v)
