// Logarithms and what comes of them, with their error.
#pragma once
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
// e^a - 1, by its series near zero, where the difference would cancel
G_FN float g_expm1(float a) {
  if (g_abs(a) > 0.35f) return g_exp(a) - 1.0f;
  float p = 2.48015873e-5f;
  p = g_fma(p, a, 1.98412698e-4f);
  p = g_fma(p, a, 1.38888889e-3f);
  p = g_fma(p, a, 8.33333333e-3f);
  p = g_fma(p, a, 4.16666667e-2f);
  p = g_fma(p, a, 0.166666667f);
  p = g_fma(p, a, 0.5f);
  return g_fma(p * a, a, a);
}
#if G_AMD
G_FN float g_sqrt(float a) { return __builtin_sqrtf(a); }
#else
G_FN float g_sqrt(float a) { float r; asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(a)); return r; }
#endif
