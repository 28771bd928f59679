#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "slots.glsl"
// h = diag(exp(g)) h + b (a'h) + k v', y = q'h, of the h before where EARLY: an invocation takes a column of a head's
// state through all rows.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool RANK = false; // there are a and b
layout(constant_id = 2) const bool EARLY = false;
layout(binding = 2, std430) readonly buffer BQ { float q[]; };
layout(binding = 3, std430) readonly buffer BK { float keys[]; };
layout(binding = 4, std430) readonly buffer BV { float v[]; };
layout(binding = 5, std430) readonly buffer BG { float g[]; };
layout(binding = 6, std430) readonly buffer BA { float a[]; };
layout(binding = 7, std430) readonly buffer BB { float b[]; };
layout(binding = 8, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, dk, dv, dg, width;
  uint stateoff, planoff, qoff, qstride, koff, kstride, voff, vstride, goff, gstride, aoff, astride, boff, bstride, yoff;
};

void main() {
  uint c = gl_GlobalInvocationID.x;
  if (c >= heads * dv) return;
  uint h = c / dv, j = c - h * dv;
  for (uint s = 0; s < tokens; s++) {
    int now = source(planoff, s);
    if (now == PAD) { y[yoff + s * heads * dv + c] = 0; continue; }
    uint at = stateoff + uint(target(planoff, s)) * width + h * dk * dv + j;
    uint from = now >= 0 ? stateoff + uint(now) * width + h * dk * dv + j : at;
    uint ks = koff + s * kstride + h * dk, qs = qoff + s * qstride + h * dk, gs = goff + s * gstride + h * dg;
    uint as = aoff + s * astride + h * dk, bs = boff + s * bstride + h * dk;
    float value = v[voff + s * vstride + c], seen = 0, sum = 0;
    if (now != FRESH && (RANK || EARLY)) {
      for (uint i = 0; i < dk; i++) {
        float m = state[from + i * dv];
        if (RANK) seen = fma(a[as + i], m, seen);
        if (EARLY) sum = fma(q[qs + i], m, sum);
      }
    }
    float decay = exp_(g[gs]);
    for (uint i = 0; i < dk; i++) {
      if (dg > 1) decay = exp_(g[gs + i]);
      float m = keys[ks + i] * value;
      if (now != FRESH) m = fma(decay, state[from + i * dv], m);
      if (RANK) m = fma(b[bs + i], seen, m);
      state[at + i * dv] = m;
      if (!EARLY) sum = fma(q[qs + i], m, sum);
    }
    y[yoff + s * heads * dv + c] = sum;
  }
}
