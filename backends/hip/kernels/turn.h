// Rotation by position, the same wherever it is done, so that results are equal bit for bit.
#pragma once
struct Turn { float sn, cs; };
// the frequency of pair i
G_FN double turn_rate(const double *freq, const void *factors, u32 ftype, u32 i) {
  double f = freq[i];
  if (factors) f /= (double)load_float(factors, ftype, i);
  return f;
}
// the angle of a pair of frequency f at position p, times m
G_FN Turn turn_by(double f, float m, int p) {
  Turn t;
  g_sincos((double)p * f, &t.sn, &t.cs);
  t.sn *= m;
  t.cs *= m;
  return t;
}
G_FN Turn turn_of(const double *freq, const void *factors, u32 ftype, float m, int p, u32 i) {
  return turn_by(turn_rate(freq, factors, ftype, i), m, p);
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
