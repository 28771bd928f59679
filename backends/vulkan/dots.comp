#version 450
#extension GL_EXT_control_flow_attributes : require
// Rows of f32 as signed bytes: blocks of 32 with a scale each, the largest of a block 127. scales
// has scale and scale times the sum of the bytes. Rows are padded with zeros to whole pitches.
// An invocation takes 4 elements, eight of them a block.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool VECTORS = false; // rows can be read 16 bytes at a time
layout(binding = 0, std430) readonly buffer BX { float x[]; };
layout(binding = 0, std430) readonly buffer BX4 { vec4 x4[]; };
layout(binding = 1, std430) writeonly buffer BY { uint y[]; };
layout(binding = 2, std430) writeonly buffer BS { vec2 scales[]; };
layout(push_constant) uniform Push { uint n, cols, inner, xoff, xstride, pitch; }; // pitch: in vectors of 4
shared float most[1024];
shared int sums[1024];

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  uint s = gl_WorkGroupID.x, outer = s / inner, at = xoff + outer * xstride + (s - outer * inner) * cols;
  for (uint i0 = gl_WorkGroupID.y * T; i0 < pitch; i0 += gl_NumWorkGroups.y * T) {
    uint i = i0 + t;
    vec4 v = vec4(0);
    if (VECTORS) { if (4 * i < cols) v = x4[(at >> 2) + i]; }
    else [[unroll]] for (uint j = 0; j < 4; j++) if (4 * i + j < cols) v[j] = x[at + 4 * i + j];
    vec4 a = abs(v);
    most[t] = max(max(a.x, a.y), max(a.z, a.w));
    barrier();
    float m = 0;
    [[unroll]] for (uint j = 0; j < 8; j++) m = max(m, most[(t & ~7u) + j]);
    ivec4 q = ivec4(roundEven(v * (m > 0 ? 127.0 / m : 0.0)));
    sums[t] = q.x + q.y + q.z + q.w;
    barrier();
    if (i < pitch) {
      y[s * pitch + i] = q.x & 255 | (q.y & 255) << 8 | (q.z & 255) << 16 | q.w << 24;
      if ((t & 7u) == 0) {
        int sum = 0;
        [[unroll]] for (uint j = 0; j < 8; j++) sum += sums[t + j];
        scales[(s * pitch + i) >> 3] = vec2(m / 127.0, m / 127.0 * float(sum));
      }
    }
    barrier();
  }
}
