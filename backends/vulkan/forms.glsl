// The forms that fast products want activations in (activation_layout.go), written four
// elements at a time. FORM_AT is the first of their two bindings.
#include "bfloats.glsl"
#ifndef FORM_AT
#define FORM_AT 6
#endif
#define FORM_AT2 FORM_AT + 1
const uint DOTS = 1, HALVES = 2, BFLOATS = 3;
layout(binding = FORM_AT, std430) writeonly buffer FormD { uint bytes_[]; };
layout(binding = FORM_AT, std430) writeonly buffer FormH { uvec2 halves_[]; };
layout(binding = FORM_AT2, std430) writeonly buffer FormDS { vec2 scales2_[]; };
layout(binding = FORM_AT2, std430) writeonly buffer FormHS { float scales_[]; };
shared float greatest_[1024];
shared int sum_[1024];

float greatest(vec4 v) {
  vec4 a = abs(v);
  return max(max(a.x, a.y), max(a.z, a.w));
}

// putDots stores group i of a row that starts at group at, of pitch groups, as signed bytes: eight groups
// that follow each other have a scale, the largest of their elements is 127. All
// invocations call it, each with the group behind its neighbour's.
void putDots(vec4 v, uint at, uint i, uint pitch) {
  const uint t = gl_LocalInvocationID.x;
  greatest_[t] = greatest(v);
  barrier();
  float m = 0;
  [[unroll]] for (uint j = 0; j < 8; j++) m = max(m, greatest_[(t & ~7u) + j]);
  ivec4 q = ivec4(roundEven(v * (m > 0 ? 127.0 / m : 0.0)));
  sum_[t] = q.x + q.y + q.z + q.w;
  barrier();
  if (i < pitch) {
    bytes_[at + i] = q.x & 255 | (q.y & 255) << 8 | (q.z & 255) << 16 | q.w << 24;
    if ((t & 7u) == 0) {
      int sum = 0;
      [[unroll]] for (uint j = 0; j < 8; j++) sum += sum_[t + j];
      scales2_[(at + i) >> 3] = vec2(m / 127.0, m / 127.0 * float(sum));
    }
  }
  barrier();
}

// halving gives the power of two that brings a row's largest element below 2048, and
// its inverse.
vec2 halving(float most) {
  uint e = clamp(floatBitsToUint(most) >> 23, 20u, 240u); // most < 2^(e-126)
  return uintBitsToFloat(uvec2((264u - e) << 23, (e - 10u) << 23)); // 2^(137-e), 2^(e-137)
}

// putHalves stores group i of a row, of pitch groups, as halves, or as bf16.
void putHalves(vec4 v, uint row, uint i, uint pitch, bool bfloats) {
  halves_[row * pitch + i] = bfloats ? packBFloats(v) : uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw));
}
