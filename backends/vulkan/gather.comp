#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 1) const bool ALIGNED = false;
#define WEIGHTS 0
#define STATUS 3
#include "common.glsl"
#include "decode.glsl"
#include "status.glsl"
// y[r] = w[at[r]], widened: the embedding, and the selection of rows. An invocation
// stores a unit. The binding holds the rows from first on, count of them.
layout(local_size_x_id = 0) in;
layout(binding = 1, std430) readonly buffer BAt { int ids[]; };
layout(binding = 2, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push { uint n, cols, units, woff, wstride, first, count, limit, atoff, yoff, ystride, launch; };

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint r = i / units, u = i - r * units;
    int id = ids[atoff + r];
    if (id < 0 || id >= int(limit)) { refuse(launch, r, id, limit); continue; }
    if (uint(id) < first || uint(id) - first >= count) continue;
    vec4 v[UNIT4];
    decode(woff + (uint(id) - first) * wstride, u, cols, v);
    [[unroll]] for (uint j = 0; j < UNIT; j++)
      if (UNIT * u + j < cols) y[yoff + r * ystride + UNIT * u + j] = v[j >> 2][j & 3u];
  }
}
