#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "slots.glsl"
// h[p,n] = exp(dt a[n]) h[p,n] + dt x[p] b[n], y[p] = sum over n of h[p,n] c[n]: LANES invocations take a row of a
// head's state through all rows of the step.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ATYPE = F32;
layout(binding = 2, std430) readonly buffer BX { float x[]; };
layout(binding = 3, std430) readonly buffer BDt { float dt[]; };
layout(binding = 4, std430) readonly buffer BA { uint a[]; };
layout(binding = 5, std430) readonly buffer BIn { float b[]; };
layout(binding = 6, std430) readonly buffer BOut { float c[]; };
layout(binding = 7, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, p, n, m, share, width; // m: columns of a, share: heads of a group
  uint stateoff, planoff, xoff, xstride, dtoff, dtstride, aoff, boff, bstride, coff, cstride, yoff, ystride;
};

const uint LANES = 8;
shared float sums[256];

void main() {
  const uint t = gl_LocalInvocationID.x, lane = t % LANES;
  uint i = gl_WorkGroupID.x * (gl_WorkGroupSize.x / LANES) + t / LANES, h = i / p;
  bool real = i < heads * p;
  for (uint s = 0; s < tokens; s++) {
    int now = source(planoff, s);
    float sum = 0;
    if (real && now != PAD) {
      uint at = stateoff + uint(target(planoff, s)) * width + i * n;
      uint from = now >= 0 ? stateoff + uint(now) * width + i * n : at;
      float step = dt[dtoff + s * dtstride + h], in_ = step * x[xoff + s * xstride + i];
      uint bs = boff + s * bstride + h / share * n, cs = coff + s * cstride + h / share * n;
      for (uint j = lane; j < n; j += LANES) {
        float old = now == FRESH ? 0.0 : state[from + j];
        float decay = exp_(step * NARROW(a, ATYPE, aoff + h * m + (m > 1 ? j : 0)));
        float v = fma(decay, old, in_ * b[bs + j]);
        state[at + j] = v;
        sum = fma(v, c[cs + j], sum);
      }
    }
    sums[t] = sum;
    barrier();
    if (real && lane == 0) {
      for (uint j = 1; j < LANES; j++) sum += sums[t + j];
      y[yoff + s * ystride + i] = sum;
    }
    barrier();
  }
}
