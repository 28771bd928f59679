#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// A chase of indices by one invocation: an index costs the computation of an address
// more than the pointer that HIP's kernel follows. at: where to start, and then where
// it ended.
#include "common.glsl"
layout(binding = 0) restrict readonly buffer A { uint a[]; };
layout(binding = 1) restrict buffer B { uint at[]; };
layout(push_constant) uniform P { uint groups, warm, count; };
void main() {
  if (BEYOND || tid != 0) return;
  uint p = at[0];
  for (uint i = 0; i < warm + count; i += 32) [[unroll]] for (uint u = 0; u < 32; u++) p = a[p];
  at[0] = p;
}
