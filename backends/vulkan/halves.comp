#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "common.glsl"
#include "reduce.glsl"
// Rows of f32 as f16, each times a power of two that brings its largest element below 2048, so
// that none overflows; scales has what takes it back. Rows are padded with zeros to whole pitches.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool VECTORS = false; // rows can be read 16 bytes at a time
layout(binding = 0, std430) readonly buffer BX { float x[]; };
layout(binding = 0, std430) readonly buffer BX4 { vec4 x4[]; };
layout(binding = 1, std430) writeonly buffer BY { uvec2 y[]; };
layout(binding = 2, std430) writeonly buffer BS { float scales[]; };
layout(push_constant) uniform Push { uint n, cols, inner, xoff, xstride, pitch; }; // pitch: in vectors of 4

vec4 four(uint at, uint i) {
  vec4 v;
  if (VECTORS) v = 4 * i < cols ? x4[(at >> 2) + i] : vec4(0);
  else [[unroll]] for (uint j = 0; j < 4; j++) v[j] = 4 * i + j < cols ? x[at + 4 * i + j] : 0.0;
  return v;
}

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  uint s = gl_WorkGroupID.x, outer = s / inner, at = xoff + outer * xstride + (s - outer * inner) * cols;
  float most = 0;
  for (uint i = t; i < pitch; i += T) {
    vec4 v = abs(four(at, i));
    most = max(most, max(max(v.x, v.y), max(v.z, v.w)));
  }
  uint e = clamp(floatBitsToUint(wgMax(most)) >> 23, 20u, 240u); // most < 2^(e-126)
  float up = uintBitsToFloat((264u - e) << 23), down = uintBitsToFloat((e - 10u) << 23); // 2^(137-e), 2^(e-137)
  if (t == 0) scales[s] = down;
  for (uint i = t; i < pitch; i += T) {
    vec4 v = four(at, i) * up;
    y[s * pitch + i] = uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw));
  }
}
