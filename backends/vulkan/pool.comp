#version 450
#extension GL_GOOGLE_include_directive : require
#define STATUS 3
#include "status.glsl"
// y[r] = the mean of the rows [at[r,0], at[r,1]) of x: a workgroup has 32 columns of a result, and takes a row of
// them for each 32 invocations at a time.
layout(local_size_x_id = 0) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer BAt { int ends[]; };
layout(binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, cols, xoff, xstride, atoff, yoff, ystride, launch; };
shared float part[256];

void main() {
  const uint t = gl_LocalInvocationID.x, lane = t % 32, ways = gl_WorkGroupSize.x / 32, r = gl_WorkGroupID.y;
  const uint c = gl_WorkGroupID.x * 32 + lane;
  const int from = ends[atoff + 2 * r], to = ends[atoff + 2 * r + 1];
  if (from < 0 || from >= to || to > int(rows)) {
    if (gl_WorkGroupID.x == 0 && t == 0) refuse(launch, r, from < 0 || from >= int(rows) ? from : to, rows);
    return;
  }
  float sum = 0;
  if (c < cols)
    for (uint i = uint(from) + t / 32; i < uint(to); i += ways) sum += x[xoff + i * xstride + c];
  part[t] = sum;
  barrier();
  if (t >= 32 || c >= cols) return;
  for (uint i = 1; i < ways; i++) sum += part[32 * i + lane];
  y[yoff + r * ystride + c] = sum / float(to - from);
}
