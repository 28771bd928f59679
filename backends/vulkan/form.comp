#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define FORM_AT 3
#include "common.glsl"
#include "reduce.glsl"
#include "apply.glsl"
#include "forms.glsl"
// Rows of f32 in a form that products want, padded with zeros to whole pitches: signed bytes with
// scales, or f16 or bf16, each row times a power of two so that none overflows. With OP the rows are first
// computed from x and y, and with STORE stored as z too. A workgroup takes one row, with DOTS a part of it.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool VECTORS = false; // rows can be read 16 bytes at a time
layout(constant_id = 2) const uint FORM = DOTS;
layout(constant_id = 3) const uint OP = COPY;
layout(constant_id = 4) const bool STORE = true; // z is read
layout(constant_id = 5) const bool LACKS = false; // y's last columns lack the sums in lacks (splitk.go); where rows are vectors
layout(binding = 0, std430) readonly buffer BX { float x[]; };
layout(binding = 0, std430) readonly buffer BX4 { vec4 x4[]; };
layout(binding = 1, std430) readonly buffer BY { float y[]; };
layout(binding = 1, std430) readonly buffer BY4 { vec4 y4[]; };
layout(binding = 2, std430) writeonly buffer BZ { float z[]; };
layout(binding = 2, std430) writeonly buffer BZ4 { vec4 z4[]; };
layout(binding = 5, std430) readonly buffer BL { vec4 lacks[]; };
layout(push_constant) uniform Push {
  uint cols, inner, xoff, xstride, yoff, ystride, zoff, zstride, pitch; // pitch: in groups of four
  uint lfirst, lcols; // of y's columns to which lacks belongs, in groups of four
};

uint ax, ay, az;

// gated is apply of the operators that OP can be.
float gated(float a, float b) {
  if (OP == SWIGLU) return a * sigmoid_(a) * b;
  return (OP == GEGLU_TANH ? gelu_tanh(a) : gelu_erf(a)) * b;
}

// four gives group i of the row.
vec4 four(uint i, bool store) {
  vec4 v = vec4(0);
  if (VECTORS) {
    if (4 * i < cols) {
      v = x4[(ax >> 2) + i];
      if (OP != COPY) {
        vec4 u = y4[(ay >> 2) + i];
        if (LACKS && i >= lfirst) u += lacks[gl_WorkGroupID.x * lcols + i - lfirst];
        v = vec4(gated(v.x, u.x), gated(v.y, u.y), gated(v.z, u.z), gated(v.w, u.w));
        if (STORE && store) z4[(az >> 2) + i] = v;
      }
    }
  } else {
    [[unroll]] for (uint j = 0; j < 4; j++) if (4 * i + j < cols) {
      v[j] = x[ax + 4 * i + j];
      if (OP != COPY) {
        v[j] = gated(v[j], y[ay + 4 * i + j]);
        if (STORE && store) z[az + 4 * i + j] = v[j];
      }
    }
  }
  return v;
}

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  uint s = gl_WorkGroupID.x, outer = s / inner, within = (s - outer * inner) * cols;
  ax = xoff + outer * xstride + within;
  ay = yoff + outer * ystride + within;
  az = zoff + outer * zstride + within;
  if (FORM == DOTS) {
    for (uint i = gl_WorkGroupID.y * T; i < pitch; i += gl_NumWorkGroups.y * T) putDots(four(i + t, true), s * pitch, i + t, pitch);
    return;
  }
  float most = 0;
  if (pitch <= 4 * T) { // a row is read once
    vec4 v[4];
    [[unroll]] for (uint j = 0; j < 4; j++) {
      v[j] = t + j * T < pitch ? four(t + j * T, true) : vec4(0);
      most = max(most, greatest(v[j]));
    }
    vec2 k = halving(wgMax(most));
    if (t == 0) scales_[s] = k.y;
    [[unroll]] for (uint j = 0; j < 4; j++)
      if (t + j * T < pitch) putHalves(v[j] * k.x, s, t + j * T, pitch, FORM == BFLOATS);
    return;
  }
  for (uint i = t; i < pitch; i += T) most = max(most, greatest(four(i, false)));
  vec2 k = halving(wgMax(most));
  if (t == 0) scales_[s] = k.y;
  for (uint i = t; i < pitch; i += T) putHalves(four(i, true) * k.x, s, i, pitch, FORM == BFLOATS);
}
