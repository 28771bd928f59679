// Rotation by position, the same wherever it is done, so that results are equal bit for bit.
#pragma once
struct Turn { float sn, cs; };
// the angle of pair i at position p, times m
G_FN Turn turn_of(const double *freq, const void *factors, u32 ftype, float m, int p, u32 i) {
  double f = freq[i];
  if (factors) f /= (double)load_float(factors, ftype, i);
  Turn t;
  g_sincos((double)p * f, &t.sn, &t.cs);
  t.sn *= m;
  t.cs *= m;
  return t;
}
// The first of a pair and the second; roundings are spelled out.
G_FN float turn_first(float a, float b, Turn t) {
  const float o = -b * t.sn;
  return g_fma(a, t.cs, o);
}
G_FN float turn_second(float a, float b, Turn t) {
  const float o = a * t.sn;
  return g_fma(b, t.cs, o);
}
