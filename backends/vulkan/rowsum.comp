#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "common.glsl"
#include "reduce.glsl"
// Sums, means, largest elements and running sums of rows: a workgroup a row.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OP = 0;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) writeonly buffer Z { float z[]; };
layout(push_constant) uniform Push { uint n, cols, inner, xoff, xstride, zoff, zstride; };

const uint SUM = 0, MEAN = 1, LARGEST = 2, CUMSUM = 3;
shared float sums[256];

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  for (uint row = gl_WorkGroupID.x; row < n; row += gl_NumWorkGroups.x) {
    uint outer = row / inner, sub = row - outer * inner, ax = xoff + outer * xstride + sub * cols;
    if (OP == CUMSUM) { // each invocation has columns that follow each other
      uint per = (cols + T - 1) / T, from = min(t * per, cols), end = min(from + per, cols);
      float s = 0;
      for (uint i = from; i < end; i++) s += x[ax + i];
      sums[t] = s;
      barrier();
      s = 0;
      for (uint i = 0; i < t; i++) s += sums[i];
      for (uint i = from; i < end; i++) {
        s += x[ax + i];
        z[zoff + outer * zstride + sub * cols + i] = s;
      }
      barrier();
      continue;
    }
    float s = OP == LARGEST ? x[ax] : 0.0;
    for (uint i = t; i < cols; i += T) s = OP == LARGEST ? max(s, x[ax + i]) : s + x[ax + i];
    s = OP == LARGEST ? wgMax(s) : wgSum(s);
    if (t == 0) z[zoff + outer * zstride + sub] = OP == MEAN ? s / float(cols) : s;
  }
}
