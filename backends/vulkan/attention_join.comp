#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Puts the parts of attention together: each has its largest score, the sum of
// exponentials relative to it, and the sum of values weighted with them.
layout(local_size_x_id = 0) in;
layout(binding = 0, std430) readonly buffer BPart { float part[]; };
layout(binding = 1, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push { uint heads, dv, parts, partoff, yoff, ystride; };

void main() {
  uint h = gl_WorkGroupID.x, s = gl_WorkGroupID.y;
  uint from = partoff + (s * heads + h) * parts * (dv + 2);
  float top = part[from];
  for (uint p = 1; p < parts; p++) top = max(top, part[from + p * (dv + 2)]);
  for (uint i = gl_LocalInvocationID.x; i < dv; i += gl_WorkGroupSize.x) {
    float sum = 0, total = 0;
    for (uint p = 0; p < parts; p++) {
      uint a = from + p * (dv + 2);
      float w = exp_(part[a] - top);
      total = fma(w, part[a + 1], total);
      sum = fma(w, part[a + 2 + i], sum);
    }
    y[yoff + s * ystride + h * dv + i] = sum / total;
  }
}
