#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "common.glsl"
#include "reduce.glsl"
#include "forms.glsl"
// norm.comp for rows of whole groups of four elements, of which an invocation keeps
// up to 4 in registers; it writes the result also in the form that products want, or only so.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool LAYER = false;
layout(constant_id = 2) const bool ADD = false;
layout(constant_id = 3) const uint W = 0; // types, 0: none
layout(constant_id = 4) const uint B = 0;
layout(constant_id = 5) const uint FORM = 0;
layout(constant_id = 6) const bool STORE = true; // y itself is read, not its form alone
layout(binding = 0, std430) readonly buffer BX { vec4 x[]; };
layout(binding = 1, std430) readonly buffer BR { vec4 r[]; };
layout(binding = 2, std430) readonly buffer BW { uint w[]; };
layout(binding = 3, std430) readonly buffer BB { uint b[]; };
layout(binding = 4, std430) writeonly buffer BS { vec4 sum[]; };
layout(binding = 5, std430) writeonly buffer BY { vec4 y[]; };
layout(push_constant) uniform Push {
  uint n, cols, inner; // these and the offsets in groups of four
  uint xoff, xstride, roff, rstride, soff, sstride, yoff, ystride, woff, boff;
  float eps;
  uint pitch;
};

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  for (uint row = gl_WorkGroupID.x; row < n; row += gl_NumWorkGroups.x) {
    uint outer = row / inner, within = (row - outer * inner) * cols;
    uint ax = xoff + outer * xstride + within, ar = roff + outer * rstride + within;
    uint as = soff + outer * sstride + within, ay = yoff + outer * ystride + within;
    vec4 v[4];
    float s = 0;
    [[unroll]] for (uint j = 0; j < 4; j++) {
      uint i = t + j * T;
      v[j] = vec4(0);
      if (i < cols) {
        v[j] = x[ax + i];
        if (ADD) {
          v[j] += r[ar + i];
          sum[as + i] = v[j];
        }
      }
      s += LAYER ? dot(v[j], vec4(1)) : dot(v[j], v[j]);
    }
    s = wgSum(s) / float(4 * cols);
    if (LAYER) {
      float mean = s;
      s = 0;
      [[unroll]] for (uint j = 0; j < 4; j++) {
        if (t + j * T < cols) v[j] -= mean;
        s += dot(v[j], v[j]);
      }
      s = wgSum(s) / float(4 * cols);
    }
    float k = 1.0 / sqrt(s + eps);
    [[unroll]] for (uint j = 0; j < 4; j++) {
      uint i = t + j * T;
      if (i < cols) {
        v[j] *= k;
        uint aw = woff + 4 * i, ab = boff + 4 * i;
        if (W != 0) v[j] *= vec4(NARROW(w, W, aw), NARROW(w, W, aw + 1), NARROW(w, W, aw + 2), NARROW(w, W, aw + 3));
        if (B != 0) v[j] += vec4(NARROW(b, B, ab), NARROW(b, B, ab + 1), NARROW(b, B, ab + 2), NARROW(b, B, ab + 3));
        if (STORE) y[ay + i] = v[j];
      }
    }
    if (FORM == DOTS) {
      [[unroll]] for (uint j = 0; j < 4; j++) if (j * T < pitch) putDots(v[j], row * pitch, t + j * T, pitch);
    } else if (FORM != 0) {
      float most = 0;
      [[unroll]] for (uint j = 0; j < 4; j++) most = max(most, greatest(v[j]));
      vec2 k2 = halving(wgMax(most));
      if (t == 0) scales_[row] = k2.y;
      [[unroll]] for (uint j = 0; j < 4; j++)
        if (t + j * T < pitch) putHalves(v[j] * k2.x, row, t + j * T, pitch, FORM == BFLOATS);
    }
  }
}
