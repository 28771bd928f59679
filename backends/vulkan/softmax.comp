#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "common.glsl"
#include "reduce.glsl"
// y = exp(x - max) / sum exp(x - max) of each row, a workgroup a row.
layout(local_size_x_id = 0) in;
layout(binding = 0, std430) readonly buffer BX { float x[]; };
layout(binding = 1, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push { uint n, cols, inner, xoff, xstride, yoff, ystride; };

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  for (uint row = gl_WorkGroupID.x; row < n; row += gl_NumWorkGroups.x) {
    uint outer = row / inner, within = (row - outer * inner) * cols;
    uint ax = xoff + outer * xstride + within, ay = yoff + outer * ystride + within;
    float top = x[ax];
    for (uint i = t; i < cols; i += T) top = max(top, x[ax + i]);
    top = wgMax(top);
    float s = 0;
    for (uint i = t; i < cols; i += T) s += exp_(x[ax + i] - top);
    s = wgSum(s);
    for (uint i = t; i < cols; i += T) y[ay + i] = exp_(x[ax + i] - top) / s;
  }
}
