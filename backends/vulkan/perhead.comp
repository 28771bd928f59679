#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// z[s,h,j] = w[h,j]·x[s,h] + b[h,j]: LANES invocations sum up an element.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WTYPE = F32;
layout(constant_id = 2) const uint BTYPE = 0; // 0: there is none
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer W { uint w[]; };
layout(binding = 2, std430) readonly buffer B { uint b[]; };
layout(binding = 3, std430) writeonly buffer Z { float z[]; };
layout(push_constant) uniform Push { uint n, heads, outs, k, xoff, xstride, woff, boff, zoff, zstride; };

const uint LANES = 8;
shared float sums[256];

void main() {
  const uint t = gl_LocalInvocationID.x, lane = t % LANES, each = gl_WorkGroupSize.x / LANES;
  uint rounds = (n + gl_NumWorkGroups.x * each - 1) / (gl_NumWorkGroups.x * each);
  for (uint r = 0; r < rounds; r++) {
    uint i = (r * gl_NumWorkGroups.x + gl_WorkGroupID.x) * each + t / LANES;
    uint per = heads * outs, s = i / per, at = i - s * per, h = at / outs;
    float sum = 0;
    if (i < n) {
      uint ax = xoff + s * xstride + h * k, aw = woff + at * k;
      for (uint j = lane; j < k; j += LANES) sum = fma(NARROW(w, WTYPE, aw + j), x[ax + j], sum);
    }
    sums[t] = sum;
    barrier();
    if (lane == 0 && i < n) {
      for (uint j = 1; j < LANES; j++) sum += sums[t + j];
      if (BTYPE != 0) sum += NARROW(b, BTYPE, boff + at);
      z[zoff + s * zstride + at] = sum;
    }
    barrier();
  }
}
