// Functions of single elements that models state by name: a thread an element.
// x is rows with a stride in dimension 0, y is dense.
#include "prelude.h"
#include "log.h"

// from the nearest integer; beyond 2^23 there are no others
G_FN float g_floor(float a) {
  if (!(g_abs(a) < 8388608.0f)) return a;
  float n = g_rint(a);
  return n > a ? n - 1.0f : n;
}

// a^p: by multiplications, and a root, for multiples of one half, of which there are few, else e^(p ln a)
G_FN float g_pow(float a, float p) {
  const float w = g_abs(p), whole = g_floor(w);
  if (w <= 64.0f && (w == whole || w == whole + 0.5f)) {
    float r = w == whole ? 1.0f : g_sqrt(a);
    for (u32 e = (u32)whole; e != 0; e >>= 1) {
      if (e & 1) r *= a;
      a *= a;
    }
    return p < 0.0f ? 1.0f / r : r;
  }
  if (a < 0.0f && w != whole) return u2f(0x7fc00000u);
  const float r = g_exp(p * g_log(g_abs(a)));
  return a < 0.0f && whole - 2.0f * g_floor(whole * 0.5f) == 1.0f ? -r : r;
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
UNARY(sqrt_of, g_sqrt(v))
UNARY(pow_of, g_pow(v, p))
