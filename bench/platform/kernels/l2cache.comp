#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Group g reads chunk g mod run: LOADS pairs of numbers an invocation. The last run
// groups say what they found. Sums are modulo 2^32.
#include "common.glsl"
#if defined(FN_check)
layout(binding = 0) readonly buffer O { uvec2 o[]; };
layout(binding = 1) buffer W { uint wrong; };
layout(push_constant) uniform P { uint groups, run; };
void main() {
  if (BEYOND) return;
  uint first = group() * (BLOCK * LOADS) + tid, s = 0;
  for (uint u = 0; u < LOADS; u += 2) s += value(first + u * BLOCK, 1) * value(first + (u + 1) * BLOCK, 1);
  if (o[thread()] != uvec2(s)) atomicAdd(wrong, 1);
}
#else
layout(binding = 0) restrict readonly buffer B { uvec2 b[]; };
layout(binding = 1) restrict writeonly buffer O { uvec2 o[]; };
layout(push_constant) uniform P { uint groups, run, blocks; };
void main() {
  if (BEYOND) return;
  uint chunk = group() % run, p = chunk * (BLOCK * LOADS) + tid;
  uvec2 s = uvec2(0);
  [[unroll]] for (uint u = 0; u < LOADS; u += 2) s += b[p + u * BLOCK] * b[p + (u + 1) * BLOCK];
  // The sum is asked for everywhere, or the loads would be left out where it is not stored.
  if (group() + run >= blocks || s == uvec2(1, 2)) o[chunk * BLOCK + tid] = s;
}
#endif
