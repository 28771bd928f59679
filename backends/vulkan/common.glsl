// What all kernels share: numbers of types, reading small operands, functions
// with known error. Included after the extensions.

const uint F32 = 1, F16 = 2, BF16 = 3;

// h2f widens f16, denormal numbers included, which unpackHalf2x16 may flush.
float h2f(uint h) {
  float tiny = float(h & 0x3ffu) * 5.9604644775390625e-8;
  return (h & 0x7c00u) == 0 ? ((h & 0x8000u) != 0 ? -tiny : tiny) : unpackHalf2x16(h & 0xffffu).x;
}

float bf2f(uint h) { return uintBitsToFloat(h << 16); }

// f2h rounds to nearest, ties to even: packHalf2x16 may do otherwise.
uint f2h(float f) {
  uint u = floatBitsToUint(f), s = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  if (u >= 0x47800000u) return s | (u > 0x7f800000u ? 0x7e00u : 0x7c00u);
  if (u < 0x38800000u) return s | uint(roundEven(uintBitsToFloat(u) * 16777216.0));
  u += 0xfffu + ((u >> 13) & 1u);
  return s | ((u - 0x38000000u) >> 13);
}

uint f2bf(float f) {
  uint u = floatBitsToUint(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
  return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}

// NARROW reads element i of a buffer of words that holds f32, f16 or bf16.
#define NARROW(buf, type, i) ((type) == F32 ? uintBitsToFloat(buf[i]) : \
  (type) == F16 ? h2f(bitfieldExtract(buf[(i) >> 1], int((i) & 1u) * 16, 16)) : \
  bf2f(bitfieldExtract(buf[(i) >> 1], int((i) & 1u) * 16, 16)))

// exp_ is e^x to about one unit in the last place: x = n ln 2 + r with ln 2 in two
// parts (Cody and Waite), and a polynomial in |r| <= ln 2 / 2.
float exp_(float x) {
  x = clamp(x, -104.0, 89.0);
  float n = roundEven(x * 1.44269504);
  precise float r = x - n * 0.693359375;
  r = r + n * 2.12194440e-4;
  float p = 1.0 / 5040.0;
  p = fma(p, r, 1.0 / 720.0);
  p = fma(p, r, 1.0 / 120.0);
  p = fma(p, r, 1.0 / 24.0);
  p = fma(p, r, 1.0 / 6.0);
  p = fma(p, r, 0.5);
  p = fma(p, r, 1.0);
  p = fma(p, r, 1.0);
  int e = int(n), h = e >> 1;
  return p * uintBitsToFloat(uint(h + 127) << 23) * uintBitsToFloat(uint(e - h + 127) << 23);
}

// tanh_ is a polynomial near zero, where 1 - 2/(e^2x + 1) would cancel.
float tanh_(float x) {
  float a = abs(x), s = x * x;
  if (a < 0.35) {
    float p = -1382.0 / 155925.0;
    p = fma(p, s, 62.0 / 2835.0);
    p = fma(p, s, -17.0 / 315.0);
    p = fma(p, s, 2.0 / 15.0);
    p = fma(p, s, -1.0 / 3.0);
    return fma(p * s, x, x);
  }
  float t = 1.0 - 2.0 / (exp_(2.0 * min(a, 20.0)) + 1.0);
  return x < 0 ? -t : t;
}

float sigmoid_(float x) { return 1.0 / (1.0 + exp_(-x)); }

// gelu_erf is x/2 (1 + erf(x/sqrt 2)) with erf by Abramowitz and Stegun 7.1.26,
// whose error is below 1.5e-7.
float gelu_erf(float x) {
  float a = abs(x) * 0.70710678;
  float t = 1.0 / fma(0.3275911, a, 1.0);
  float p = 1.061405429;
  p = fma(p, t, -1.453152027);
  p = fma(p, t, 1.421413741);
  p = fma(p, t, -0.284496736);
  p = fma(p, t, 0.254829592);
  float tail = p * t * exp_(-a * a); // 1 - erf(a)
  return 0.5 * x * (x < 0 ? tail : 2.0 - tail);
}

float gelu_tanh(float x) { return 0.5 * x * (1.0 + tanh_(0.79788456 * fma(0.044715 * x * x, x, x))); }
