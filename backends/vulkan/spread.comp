#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// z = f(x, y) over four dimensions, in each of which every tensor has a stride of its own, zero
// where it is spread: operators of tensors of different shapes, and copies of parts of tensors.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OP = 0;
layout(constant_id = 2) const uint XTYPE = F32;
layout(constant_id = 3) const uint YTYPE = F32;
layout(binding = 0, std430) readonly buffer X { uint x[]; };
layout(binding = 1, std430) readonly buffer Y { uint y[]; };
layout(binding = 2, std430) writeonly buffer Z { float z[]; };
layout(push_constant) uniform Push {
  uint n, n1, n2, n3; // elements, and sizes of dimensions 1 to 3
  uint xoff, x0, x1, x2, x3;
  uint yoff, y0, y1, y2, y3;
  uint zoff, z0, z1, z2, z3;
};

const uint ADD = 0, MUL = 1, SUB = 2, DIV = 3, MIN = 4, MAX = 5, GREATER = 6, COPY = 7;

float apply(float a, float b) {
  switch (OP) {
    case ADD: return a + b;
    case MUL: return a * b;
    case SUB: return a - b;
    case DIV: return a / b;
    case MIN: return min(a, b);
    case MAX: return max(a, b);
    case GREATER: return a > b ? 1.0 : 0.0;
  }
  return a; // COPY
}

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint r = i / n3, i3 = i - r * n3, q = r / n2, i2 = r - q * n2, i0 = q / n1, i1 = q - i0 * n1;
    uint ax = xoff + i0 * x0 + i1 * x1 + i2 * x2 + i3 * x3;
    float a = NARROW(x, XTYPE, ax), b = 0;
    if (OP != COPY) {
      uint ay = yoff + i0 * y0 + i1 * y1 + i2 * y2 + i3 * y3;
      b = NARROW(y, YTYPE, ay);
    }
    z[zoff + i0 * z0 + i1 * z1 + i2 * z2 + i3 * z3] = apply(a, b);
  }
}
