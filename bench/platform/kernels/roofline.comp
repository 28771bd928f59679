#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Two chains of STEPS multiply-adds for each element, as in roofline.hip; and the check.
#include "common.glsl"
#if defined(FN_check)
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer T { float table[]; };
layout(binding = 2) buffer W { uint wrong; };
layout(push_constant) uniform P { uint groups, n; float limit; };
void main() {
  uint i = thread();
  if (BEYOND || i >= n) return;
  float want = table[value(i, 1) - 1], e = a[i] - want;
  if (!(abs(e) <= want * limit)) atomicAdd(wrong, 1);
}
#else
layout(binding = 0) restrict writeonly buffer A { float a[]; };
layout(binding = 1) restrict readonly buffer B { float b[]; };
layout(push_constant) uniform P { uint groups, n; };
void main() {
  uint i = thread();
  if (BEYOND || i >= n) return;
  float v = b[i], x = 1.0 - v * (1.0 / 262144.0), s = v * (1.0 / 256.0), t = 1.0;
#if STEPS > 64
  for (uint k = 0; k < STEPS; k += 64) [[unroll]] for (uint u = 0; u < 64; u++) {
#else
  [[unroll]] for (int k = 0; k < STEPS; k++) {
#endif
    s = fma(s, x, 0.25);
    t = fma(t, x, 0.75);
  }
  a[i] = s + t;
}
#endif
