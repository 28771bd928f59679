#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "common.glsl"
#include "reduce.glsl"
// RMSNorm or LayerNorm of each row, a workgroup a row, after adding r where there is one:
// y = x / sqrt(mean(x^2) + eps) w, or y = (x - mean) / sqrt(variance + eps) w + b.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool LAYER = false;
layout(constant_id = 2) const bool ADD = false;
layout(constant_id = 3) const uint W = 0; // types, 0: none
layout(constant_id = 4) const uint B = 0;
layout(binding = 0, std430) readonly buffer BX { float x[]; };
layout(binding = 1, std430) readonly buffer BR { float r[]; };
layout(binding = 2, std430) readonly buffer BW { uint w[]; };
layout(binding = 3, std430) readonly buffer BB { uint b[]; };
layout(binding = 4, std430) writeonly buffer BS { float sum[]; };
layout(binding = 5, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint n, cols, inner;
  uint xoff, xstride, roff, rstride, soff, sstride, yoff, ystride, woff, boff;
  float eps;
};

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  for (uint row = gl_WorkGroupID.x; row < n; row += gl_NumWorkGroups.x) {
    uint outer = row / inner, within = (row - outer * inner) * cols;
    uint ax = xoff + outer * xstride + within, ar = roff + outer * rstride + within;
    uint as = soff + outer * sstride + within, ay = yoff + outer * ystride + within;
    float mean = 0;
    if (LAYER) {
      float s = 0;
      for (uint i = t; i < cols; i += T) s += x[ax + i];
      mean = wgSum(s) / float(cols);
    }
    float s = 0;
    for (uint i = t; i < cols; i += T) {
      float v = x[ax + i];
      if (ADD) { v += r[ar + i]; sum[as + i] = v; }
      v -= mean;
      s = fma(v, v, s);
    }
    float k = 1.0 / sqrt(wgSum(s) / float(cols) + eps);
    for (uint i = t; i < cols; i += T) {
      float v = x[ax + i];
      if (ADD) v += r[ar + i];
      v = (v - mean) * k;
      if (W != 0) v *= NARROW(w, W, woff + i);
      if (B != 0) v += NARROW(b, B, boff + i);
      y[ay + i] = v;
    }
  }
}
