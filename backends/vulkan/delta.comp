#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "slots.glsl"
// h = diag(exp(g)) h, h += k (beta (v - k'h)), y = q'h: an invocation takes a column of a head's state through all rows.
layout(local_size_x_id = 0) in;
layout(binding = 2, std430) readonly buffer BQ { float q[]; };
layout(binding = 3, std430) readonly buffer BK { float keys[]; };
layout(binding = 4, std430) readonly buffer BV { float v[]; };
layout(binding = 5, std430) readonly buffer BG { float g[]; };
layout(binding = 6, std430) readonly buffer BBeta { float beta[]; };
layout(binding = 7, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, dk, dv, dg, width;
  uint stateoff, planoff, qoff, qstride, koff, kstride, voff, vstride, goff, gstride, boff, bstride, yoff, ystride;
};

void main() {
  uint c = gl_GlobalInvocationID.x;
  if (c >= heads * dv) return;
  uint h = c / dv, j = c - h * dv;
  for (uint s = 0; s < tokens; s++) {
    int now = source(planoff, s);
    if (now == PAD) { y[yoff + s * ystride + c] = 0; continue; }
    uint at = stateoff + uint(target(planoff, s)) * width + h * dk * dv + j;
    uint from = now >= 0 ? stateoff + uint(now) * width + h * dk * dv + j : at;
    uint ks = koff + s * kstride + h * dk, qs = qoff + s * qstride + h * dk, gs = goff + s * gstride + h * dg;
    float decay = exp_(g[gs]), seen = 0;
    for (uint i = 0; i < dk; i++) {
      if (dg > 1) decay = exp_(g[gs + i]);
      float m = now == FRESH ? 0.0 : decay * state[from + i * dv];
      state[at + i * dv] = m;
      seen = fma(keys[ks + i], m, seen);
    }
    float add = beta[boff + s * bstride + h] * (v[voff + s * vstride + c] - seen), sum = 0;
    for (uint i = 0; i < dk; i++) {
      float m = fma(keys[ks + i], add, state[at + i * dv]);
      state[at + i * dv] = m;
      sum = fma(q[qs + i], m, sum);
    }
    y[yoff + s * ystride + c] = sum;
  }
}
