// Logarithms and what comes of them, with known error. Included behind common.glsl.

// 2 atanh(s) by its series, for |s| <= 1/3: the first term left out is 2e-9 of the sum.
float atanh2(float s) {
  float t = s * s, p = 1.0 / 15.0;
  p = fma(p, t, 1.0 / 13.0);
  p = fma(p, t, 1.0 / 11.0);
  p = fma(p, t, 1.0 / 9.0);
  p = fma(p, t, 1.0 / 7.0);
  p = fma(p, t, 1.0 / 5.0);
  p = fma(p, t, 1.0 / 3.0);
  return 2.0 * fma(p * t, s, s);
}

// ln a = e ln 2 + ln m with m in [sqrt 1/2, sqrt 2), ln m = 2 atanh((m - 1) / (m + 1)).
float log_(float a) {
  uint u = floatBitsToUint(a);
  if ((u & 0x7fffffffu) == 0) return uintBitsToFloat(0xff800000u);
  if (u == 0x7f800000u) return a;
  if (u > 0x7f800000u) return uintBitsToFloat(0x7fc00000u); // negative numbers, and what is none
  int e = 0;
  if (u < 0x00800000u) { // a subnormal number, which an addition might flush: from its integer
    u = floatBitsToUint(float(u));
    e = -149;
  }
  uint v = u - 0x3f3504f3u; // sqrt 1/2
  e += int(v) >> 23;
  float m = uintBitsToFloat((v & 0x7fffffu) + 0x3f3504f3u);
  float l = atanh2((m - 1.0) / (m + 1.0));
  return fma(float(e), 0.693359375, fma(float(e), -2.12194440e-4, l)); // ln 2 in two parts
}

float softplus_(float a) {
  float u = exp_(-abs(a));
  return max(a, 0.0) + atanh2(u / (2.0 + u));
}

// expm1_ is e^a - 1, by its series near zero, where the difference would cancel.
float expm1_(float a) {
  if (abs(a) > 0.35) return exp_(a) - 1.0;
  float p = 1.0 / 40320.0;
  p = fma(p, a, 1.0 / 5040.0);
  p = fma(p, a, 1.0 / 720.0);
  p = fma(p, a, 1.0 / 120.0);
  p = fma(p, a, 1.0 / 24.0);
  p = fma(p, a, 1.0 / 6.0);
  p = fma(p, a, 0.5);
  return fma(p * a, a, a);
}

// pow_ is a^p: by multiplications, and a root, for multiples of one half, of which there are few, else e^(p ln a).
float pow_(float a, float p) {
  float w = abs(p), whole = floor(w);
  if (w <= 64.0 && (w == whole || w == whole + 0.5)) {
    float r = w == whole ? 1.0 : sqrt(a);
    for (uint e = uint(whole); e != 0; e >>= 1) {
      if ((e & 1u) != 0) r *= a;
      a *= a;
    }
    return p < 0 ? 1.0 / r : r;
  }
  if (a < 0 && w != whole) return uintBitsToFloat(0x7fc00000u);
  float r = exp_(p * log_(abs(a)));
  return a < 0 && mod(w, 2.0) == 1.0 ? -r : r;
}
