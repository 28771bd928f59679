#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "log.glsl"
// z = f(x), element by element, for the functions that models state by name.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OP = 0;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) writeonly buffer Z { float z[]; };
layout(push_constant) uniform Push {
  uint n, cols, inner;
  uint xoff, xstride, zoff, zstride;
  float p, q;
};

const uint RELU = 0, RELU2 = 1, EXP = 2, LOG = 3, TANH = 4, SOFTPLUS = 5, SQRT = 6, RECIPROCAL = 7, ABS = 8,
           FLOOR = 9, AFFINE = 10, CLAMP = 11, POW = 12;

float general(float a) {
  switch (OP) {
    case RELU: return max(a, 0.0);
    case RELU2: return max(a, 0.0) * max(a, 0.0);
    case EXP: return exp_(a);
    case LOG: return log_(a);
    case TANH: return tanh_(a);
    case SOFTPLUS: return softplus_(a);
    case SQRT: return sqrt(a);
    case RECIPROCAL: return 1.0 / a;
    case ABS: return abs(a);
    case FLOOR: return floor(a);
    case AFFINE: return fma(p, a, q);
    case POW: return pow_(a, p);
  }
  return min(max(a, p), q); // CLAMP
}

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint row = i / cols, c = i - row * cols, outer = row / inner, at = (row - outer * inner) * cols + c;
    z[zoff + outer * zstride + at] = general(x[xoff + outer * xstride + at]);
  }
}
