#version 450
#extension GL_GOOGLE_include_directive : require
#define STATUS 3
#include "common.glsl"
#include "status.glsl"
// Stores rows of a batch in a pool of pages: row slot[s] of it becomes x[s], nothing where slot[s] is -1. A workgroup
// works on one row; an invocation stores two elements that follow each other, so that narrow ones fill a word.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TYPE = F32;
layout(binding = 0, std430) readonly buffer BX { float x[]; };
layout(binding = 1, std430) readonly buffer BSlot { int slot[]; };
layout(binding = 2, std430) buffer BY { uint y[]; };
layout(push_constant) uniform Push {
  uint heads, dh, xoff, xstride, slotoff, yoff, limit, launch; // y's in elements of TYPE; limit: rows of the pool
};

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
  uint s = gl_WorkGroupID.y, n = heads * dh;
  int p = slot[slotoff + s];
  if (p == -1) return;
  if (p < 0 || p >= int(limit)) {
    if (gl_LocalInvocationID.x == 0) refuse(launch, s, p, limit);
    return;
  }
  uint x0 = xoff + s * xstride, y0 = yoff + uint(p) * (TYPE == Q8_0 ? headBytes(Q8_0, n) : n);
  if (TYPE == Q8_0) { // y's places are bytes
    for (uint b = gl_GlobalInvocationID.x; 32 * b < n; b += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
#define OF_ROW(j) x[x0 + 32 * b + (j)]
      PUT_BLOCK(y0 + 34 * b, OF_ROW)
    }
    return;
  }
  if (TYPE == F8E4M3) {
    for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) putPart(y0 + i, 8, f2f8(x[x0 + i]));
    return;
  }
  for (uint i = 2 * gl_GlobalInvocationID.x; i < n; i += 2 * gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    float a = x[x0 + i];
    if (i + 1 == n) { put(y0 + i, a); continue; }
    float b = x[x0 + i + 1];
    if (TYPE == F32 || ((y0 | n) & 1u) != 0) {
      put(y0 + i, a);
      put(y0 + i + 1, b);
    } else {
      y[(y0 + i) >> 1] = TYPE == F16 ? f2h(a) | f2h(b) << 16 : f2bf(a) | f2bf(b) << 16;
    }
  }
}
