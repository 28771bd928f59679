#version 450
#extension GL_GOOGLE_include_directive : require
#define STATUS 2
#include "status.glsl"
// Orders the pairs of a token and a place of its experts by expert, and cuts those of each expert into tiles of so many
// rows, for products by groups (groups.glsl). Tiles behind the last one have no pairs. One workgroup.
layout(local_size_x_id = 0) in; // 1024 at most
layout(binding = 0, std430) readonly buffer BE { int experts[]; };
layout(binding = 1, std430) writeonly buffer BG { uint groups[]; };
layout(push_constant) uniform Push { uint pairs, count, rows, tiles, eoff, launch; };

shared uint places[1024]; // of an expert: how many pairs it has, then where its next one goes
shared uvec2 sums[1024];  // pairs and tiles of an invocation's experts and those before them

void main() {
  const uint t = gl_LocalInvocationID.x, T = gl_WorkGroupSize.x;
  for (uint e = t; e < count; e += T) places[e] = 0;
  barrier();
  for (uint i = t; i < pairs; i += T) {
    int e = experts[eoff + i];
    if (e < 0 || e >= int(count)) refuse(launch, i, e, count);
    else atomicAdd(places[e], 1);
  }
  barrier();
  uint per = (count + T - 1) / T, from = min(t * per, count), to = min(from + per, count);
  uvec2 own = uvec2(0);
  for (uint e = from; e < to; e++) own += uvec2(places[e], (places[e] + rows - 1) / rows);
  sums[t] = own;
  barrier();
  for (uint d = 1; d < T; d *= 2) {
    uvec2 before = t >= d ? sums[t - d] : uvec2(0);
    barrier();
    sums[t] += before;
    barrier();
  }
  uvec2 next = sums[t] - own;
  for (uint e = from; e < to; e++) {
    uint n = places[e];
    places[e] = next.x;
    for (uint r = 0; r < n; r += rows) {
      groups[2 * next.y] = e << 16 | min(rows, n - r);
      groups[2 * next.y + 1] = next.x + r;
      next.y++;
    }
    next.x += n;
  }
  for (uint i = sums[T - 1].y + t; i < tiles; i += T) groups[2 * i] = 0;
  barrier();
  for (uint i = t; i < pairs; i += T) {
    int e = experts[eoff + i];
    if (e >= 0 && e < int(count)) groups[2 * tiles + atomicAdd(places[e], 1)] = i;
  }
}
