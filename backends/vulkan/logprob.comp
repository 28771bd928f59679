#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "common.glsl"
#include "log.glsl"
#include "reduce.glsl"
// y = the logarithms of the softmax of a row at the places that tokens names, minus infinity where it names none: a
// workgroup a row.
layout(local_size_x_id = 0) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer N { uint tokens[]; };
layout(binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint cols, names, xoff, xstride, noff, yoff, ystride; };

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x, row = gl_WorkGroupID.x;
  const uint ax = xoff + row * xstride;
  float top = x[ax];
  for (uint i = t; i < cols; i += T) top = max(top, x[ax + i]);
  top = wgMax(top);
  float s = 0;
  for (uint i = t; i < cols; i += T) s += exp_(x[ax + i] - top);
  s = log_(wgSum(s));
  for (uint i = t; i < names; i += T) {
    uint v = tokens[noff + row * names + i];
    y[yoff + row * ystride + i] = v < cols ? x[ax + v] - top - s : uintBitsToFloat(0xff800000u);
  }
}
