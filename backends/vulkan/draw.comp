#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "log.glsl"
// Choices by chance: y = x for a rate of 0, else rate x - ln(-ln(1 - u)), u by the row's key; minus infinity where a
// token is not allowed. An invocation takes four tokens, whose numbers come from one counter.
layout(local_size_x_id = 0) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer R { float rate[]; };
layout(binding = 2, std430) readonly buffer K { uint keys[]; };
layout(binding = 3, std430) readonly buffer A { uint allowed[]; };
layout(binding = 4, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint n, quads, cols, words, xoff, xstride, roff, koff, aoff, yoff, ystride; };

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, 2011).
uvec4 philox(uvec4 c, uvec2 k) {
  for (uint i = 0; i < 10; i++) {
    uint ha, la, hb, lb;
    umulExtended(c.x, 0xd2511f53u, ha, la);
    umulExtended(c.z, 0xcd9e8d57u, hb, lb);
    c = uvec4(hb ^ c.y ^ k.x, lb, ha ^ c.w ^ k.y, la);
    k += uvec2(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}

// -ln(1 - u) of a word: u is the word / 2^32 in 24 bits, not 0. By its series near zero, where 1 - u would lose it.
float exponential(uint word) {
  if (word >= 1u << 24) word &= ~0xffu;
  float u = float(max(word, 1u)) * 2.3283064365386963e-10;
  if (u > 0.03125) return -log_(1.0 - u);
  return fma(fma(fma(fma(0.2, u, 0.25), u, 1.0 / 3.0), u, 0.5) * u, u, u);
}

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint row = i / quads, from = 4 * (i - row * quads);
    uint bits = allowed[aoff + row * words + from / 32] >> (from & 31u);
    float by = rate[roff + row];
    uvec4 c = uvec4(0);
    if (by != 0) {
      uint k = koff + 4 * row;
      c = philox(uvec4(keys[k + 2], keys[k + 3], from / 4, 1), uvec2(keys[k], keys[k + 1]));
    }
    for (uint j = 0; j < 4 && from + j < cols; j++) {
      float z = x[xoff + row * xstride + from + j];
      if (by != 0) z = fma(by, z, -log_(exponential(c[j])));
      y[yoff + row * ystride + from + j] = (bits >> j & 1u) != 0 ? z : uintBitsToFloat(0xff800000u);
    }
  }
}
