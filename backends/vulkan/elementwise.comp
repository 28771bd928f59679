#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "apply.glsl"
// z = f(x), or f(x, y), element by element; also the copies of views and splits.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OP = 0;
layout(constant_id = 2) const uint VECTOR = 0; // type of y where it is one row for all, else 0
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer Y { uint y[]; };
layout(binding = 2, std430) writeonly buffer Z { float z[]; };
layout(push_constant) uniform Push {
  uint n, cols, inner;
  uint xoff, xstride, xpitch; // pitch: from row to row inside an index of dimension 0
  uint yoff, ystride, zoff, zstride;
  float by;
};

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint row = i / cols, c = i - row * cols, outer = row / inner, sub = row - outer * inner;
    float a = x[xoff + outer * xstride + sub * xpitch + c], b = 0;
    if (two(OP)) {
      uint at = yoff + (VECTOR != 0 ? c : outer * ystride + sub * cols + c);
      b = VECTOR != 0 ? NARROW(y, VECTOR, at) : uintBitsToFloat(y[at]);
    }
    z[zoff + outer * zstride + sub * cols + c] = apply(OP, a, b, by);
  }
}
