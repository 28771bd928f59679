#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Each group reads the same 2n pairs of numbers, times times. zero is 0, which the
// compiler does not know. Sums are modulo 2^32.
#include "common.glsl"
layout(binding = 0) restrict readonly buffer B { uvec2 b[]; };
layout(binding = 1) restrict writeonly buffer O { uvec2 o[]; };
layout(push_constant) uniform P { uint groups, n, times, zero; };
void main() {
  if (BEYOND) return;
  uvec2 s[LOADS];
  [[unroll]] for (uint u = 0; u < LOADS; u++) s[u] = uvec2(0);
  uint p = tid;
  for (uint k = 0; k < times; k++) {
    p += zero;
    uint q = p + n;
#ifdef ONCE // n is BLOCK * LOADS: a loop would take longer than the loads
    const uint i = 0;
#else
    for (uint i = 0; i < n; i += BLOCK * LOADS)
#endif
      [[unroll]] for (uint u = 0; u < LOADS; u++) s[u] += b[p + i + u * BLOCK] * b[q + i + u * BLOCK];
  }
  uvec2 all = uvec2(0);
  [[unroll]] for (uint u = 0; u < LOADS; u++) all += s[u];
  o[thread()] = all;
}
