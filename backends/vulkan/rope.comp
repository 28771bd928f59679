#version 450
#extension GL_GOOGLE_include_directive : require
#define STATUS 4
#include "common.glsl"
#include "status.glsl"
#include "turn.glsl"
// Stores the step's rows, rotated where ROTATE: rope, push, rope_push. A workgroup
// works on one token; an invocation stores two elements that follow each other, so
// that narrow ones fill a word.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool ROTATE = true;
layout(constant_id = 2) const bool PAIR = false; // elements 2i and 2i+1 rotate together, else i and i + pairs
layout(constant_id = 3) const bool CACHE = false; // rows go to positions
layout(constant_id = 4) const uint TYPE = F32;
layout(constant_id = 5) const bool DIVIDED = false; // by factors that an earlier launch of the step computes
layout(binding = 0, std430) readonly buffer BX { float x[]; };
layout(binding = 1, std430) readonly buffer BPos { int pos[]; };
layout(binding = 2, std430) readonly buffer BF { uvec2 freqs[]; }; // low, high word of 2^64 f / 2 pi
layout(binding = 3, std430) buffer BY { uint y[]; };
layout(binding = 5, std430) readonly buffer BBy { float factors[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, dh, pairs;
  uint xoff, xstride, posoff, yoff, ystride; // y's in elements of TYPE
  uint limit;                                // positions that the cache holds
  float scale;                               // on cosine and sine
  uint launch, foff;
};

shared uint replaced;

// quotient gives f / by modulo whole turns, by long division by the 24 bits of by.
uvec2 quotient(uvec2 f, float by) {
  uint b = floatBitsToUint(by), e = max(b >> 23 & 255u, 1u);
  uint m = b & 0x7fffffu | ((b & 0x7f800000u) != 0 ? 0x800000u : 0u); // by is m 2^(e - 150)
  uint lo = 0, hi = 0, rest = 0;
  for (int i = 63; i >= int(e) - 150; i--) { // bits of f 2^(150 - e), from the highest
    uint bit = i >= 32 ? f.y >> (i - 32) & 1u : (i >= 0 ? f.x >> i & 1u : 0u);
    rest = rest << 1 | bit;
    hi = hi << 1 | lo >> 31;
    lo <<= 1;
    if (rest >= m) {
      rest -= m;
      lo |= 1u;
    }
  }
  if (b >> 31 == 0) return uvec2(lo, hi);
  return uvec2(~lo + 1, ~hi + (lo == 0 ? 1u : 0u));
}

float element(uint ax, uint e, uint position) {
  float v = x[ax + e];
  if (!ROTATE || e >= 2 * pairs) return v;
  uint i = PAIR ? e >> 1 : (e < pairs ? e : e - pairs);
  bool second = PAIR ? (e & 1u) == 1 : e >= pairs;
  float o = x[ax + (PAIR ? e ^ 1u : (second ? e - pairs : e + pairs))];
  vec2 cs = rotation(DIVIDED ? quotient(freqs[i], factors[foff + i]) : freqs[i], position) * scale;
  return second ? v * cs.x + o * cs.y : v * cs.x - o * cs.y;
}

#include "coded.glsl"
#include "put8.glsl"

void put(uint at, float v) {
  if (TYPE == F32) { y[at] = floatBitsToUint(v); return; }
  uint h = TYPE == F16 ? f2h(v) : f2bf(v), shift = (at & 1u) * 16, keep = 0xffff0000u >> shift;
  for (;;) { // the other half of the word may be another invocation's
    uint old = y[at >> 1];
    if (atomicCompSwap(y[at >> 1], old, old & keep | h << shift) == old) return;
  }
}

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  uint s = gl_WorkGroupID.y;
  int p = pos[posoff + s];
  if (p < 0 || CACHE && p >= int(limit)) {
    if (t == 0) refuse(launch, s, p, CACHE ? limit : 0x7fffffffu);
    return;
  }
  if (CACHE && tokens > 1) { // of equal positions the last row stands
    if (t == 0) replaced = 0;
    barrier();
    for (uint j = s + 1 + t; j < tokens; j += T)
      if (pos[posoff + j] == p) replaced = 1;
    barrier();
    if (replaced != 0) return;
  }
  uint n = heads * dh, y0 = yoff + (CACHE ? uint(p) : s) * ystride;
  if (TYPE == Q8_0) { // y's places are bytes
    for (uint b = gl_GlobalInvocationID.x; 32 * b < n; b += gl_NumWorkGroups.x * T) {
      uint h = 32 * b / dh, e = 32 * b - h * dh;
#define OF_ROW(j) element(xoff + s * xstride + h * dh, e + (j), uint(p))
      PUT_BLOCK(y0 + 34 * b, OF_ROW)
    }
    return;
  }
  if (TYPE == F8E4M3) {
    for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * T) {
      uint h = i / dh;
      putPart(y0 + i, 8, f2f8(element(xoff + s * xstride + h * dh, i - h * dh, uint(p))));
    }
    return;
  }
  for (uint k = gl_GlobalInvocationID.x; 2 * k < n; k += gl_NumWorkGroups.x * T) {
    uint i = 2 * k, h = i / dh, e = i - h * dh;
    float a = element(xoff + s * xstride + h * dh, e, uint(p));
    if (i + 1 == n) { put(y0 + i, a); continue; }
    if (++e == dh) { e = 0; h++; }
    float b = element(xoff + s * xstride + h * dh, e, uint(p));
    if (TYPE == F32 || ((y0 | ystride) & 1u) != 0) {
      put(y0 + i, a);
      put(y0 + i + 1, b);
    } else {
      y[(y0 + i) >> 1] = TYPE == F16 ? f2h(a) | f2h(b) << 16 : f2bf(a) | f2bf(b) << 16;
    }
  }
}
