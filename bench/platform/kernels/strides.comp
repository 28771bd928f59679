#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Loads from shared memory, as in strides.hip, without its clock.
#include "common.glsl"
#define WORDS 8192
shared uint s[WORDS + 8];
layout(binding = 0) restrict writeonly buffer O { uint o[]; };
layout(binding = 1) restrict writeonly buffer C { uint cycles[]; };
layout(push_constant) uniform P { uint groups, stride, limit, rounds; };
void main() {
  for (uint i = tid; i < WORDS + 8; i += BLOCK) s[i] = value(i, 7);
  barrier();
  uint base = tid * stride, sum = 0, k = 0;
  for (uint r = 0; r < rounds; r++) {
    uint p = (base + k) & (WORDS - 1);
    [[unroll]] for (uint u = 0; u < 8; u++) sum += s[p + u];
    k = k + 8 >= limit ? 0 : k + 8;
  }
  o[tid] = sum;
}
