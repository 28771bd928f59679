#version 450
#extension GL_GOOGLE_include_directive : require
#define STATUS 3
#include "common.glsl"
#include "status.glsl"
// z[u] = x[e[u]] in each row.
layout(local_size_x_id = 0) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer E { int e[]; };
layout(binding = 2, std430) writeonly buffer Z { float z[]; };
layout(push_constant) uniform Push { uint n, cols, limit, inner, xoff, xstride, eoff, zoff, zstride, launch; };

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint row = i / cols, c = i - row * cols, outer = row / inner, sub = row - outer * inner;
    int at = e[eoff + i];
    if (at < 0 || at >= int(limit)) { refuse(launch, i, at, limit); continue; }
    z[zoff + outer * zstride + sub * cols + c] = x[xoff + outer * xstride + sub * limit + uint(at)];
  }
}
