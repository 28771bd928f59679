#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// z = f(x), element by element, for the functions that models state by name.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OP = 0;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) writeonly buffer Z { float z[]; };
layout(push_constant) uniform Push {
  uint n, cols, inner;
  uint xoff, xstride, zoff, zstride;
  float p, q;
};

const uint RELU = 0, RELU2 = 1, EXP = 2, LOG = 3, TANH = 4, SOFTPLUS = 5, SQRT = 6, RECIPROCAL = 7, ABS = 8,
           FLOOR = 9, AFFINE = 10, CLAMP = 11;

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

float general(float a) {
  switch (OP) {
    case RELU: return max(a, 0.0);
    case RELU2: return max(a, 0.0) * max(a, 0.0);
    case EXP: return exp_(a);
    case LOG: return log_(a);
    case TANH: return tanh_(a);
    case SOFTPLUS: return softplus_(a);
    case SQRT: return sqrt(a);
    case RECIPROCAL: return 1.0 / a;
    case ABS: return abs(a);
    case FLOOR: return floor(a);
    case AFFINE: return fma(p, a, q);
  }
  return min(max(a, p), q); // CLAMP
}

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint row = i / cols, c = i - row * cols, outer = row / inner, at = (row - outer * inner) * cols + c;
    z[zoff + outer * zstride + at] = general(x[xoff + outer * xstride + at]);
  }
}
