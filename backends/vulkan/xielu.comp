#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "log.glsl"
// z = a x² + beta x for x > 0, else b (e^min(x, eps) - 1 - x) + beta x, with a = softplus(p) and
// b = beta + softplus(n), each of one element.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PTYPE = F32;
layout(constant_id = 2) const uint NTYPE = F32;
layout(constant_id = 3) const uint BTYPE = 0; // 0: there is none
layout(constant_id = 4) const uint ETYPE = 0;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer P { uint wp[]; };
layout(binding = 2, std430) readonly buffer N { uint wn[]; };
layout(binding = 3, std430) readonly buffer B { uint wb[]; };
layout(binding = 4, std430) readonly buffer E { uint we[]; };
layout(binding = 5, std430) writeonly buffer Z { float z[]; };
layout(push_constant) uniform Push {
  uint n, cols, inner;
  uint xoff, xstride, poff, noff, boff, eoff, zoff, zstride;
  float betas, epss;
};

void main() {
  float beta = BTYPE != 0 ? NARROW(wb, BTYPE, boff) : betas, eps = ETYPE != 0 ? NARROW(we, ETYPE, eoff) : epss;
  float up = softplus_(NARROW(wp, PTYPE, poff)), down = beta + softplus_(NARROW(wn, NTYPE, noff));
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint row = i / cols, c = i - row * cols, outer = row / inner, at = (row - outer * inner) * cols + c;
    float a = x[xoff + outer * xstride + at];
    z[zoff + outer * zstride + at] = a > 0 ? fma(up * a, a, beta * a) : fma(down, expm1_(min(a, eps)) - a, beta * a);
  }
}
