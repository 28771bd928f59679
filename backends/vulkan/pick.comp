#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define STATUS 4
#include "common.glsl"
#include "status.glsl"
#define HAND 5
#include "handed.glsl"
// The k largest of rows as long as a vocabulary, in falling order, of equal ones the
// lower index first, in two steps: a workgroup finds those of a part of the row, then
// one those of all parts. Numbers are compared as integers in the same order; a NaN
// comes before all, so that who takes the first one sees it. Where HANDED, logits and pairs are read as soon as they
// are there (handed.glsl).
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint JOIN = 0; // 0: of the parts, 1: of what they found
layout(constant_id = 2) const bool HANDED = false;
layout(binding = 0, std430) readonly buffer BX { float x[]; };
layout(binding = 0, std430) coherent volatile buffer HX { uint xh[]; };
layout(binding = 1, std430) coherent buffer BS { uvec2 s[]; }; // pairs of order and index
layout(binding = 1, std430) coherent volatile buffer HS { uvec2 sh[]; };
layout(binding = 2, std430) writeonly buffer BP { float p[]; };
layout(binding = 3, std430) writeonly buffer BE { int e[]; };
layout(push_constant) uniform Push { uint cols, part, parts, k, inner, xoff, xstride, soff, poff, pstride, eoff, estride, launch, waits; };

shared uint found[256];

uint wgMax(uint v) {
  v = subgroupMax(v);
  if (gl_NumSubgroups == 1) return v;
  if (subgroupElect()) found[gl_SubgroupID] = v;
  barrier();
  uint m = found[0];
  for (uint i = 1; i < gl_NumSubgroups; i++) m = max(m, found[i]);
  barrier();
  return m;
}

const uint NAN = 0xffffffffu;

uint order(float v) {
  uint u = floatBitsToUint(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return NAN;
  if (u == 0x80000000u) u = 0; // zeros are equal
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

float number(uint o) {
  if (o == NAN) return uintBitsToFloat(0x7fc00000u);
  return uintBitsToFloat((o & 0x80000000u) != 0 ? o & 0x7fffffffu : ~o);
}

bool waiting = false;
uint looks = 0;

// FETCH reads up to 8 elements of an invocation, from number j on of those before to.
const uint UN = 8;
uvec2 v[UN];
void fetch(uint ax, uint as, uint j, uint to) {
  const uint T = gl_WorkGroupSize.x;
  bool again = true;
  while (again) {
    again = false;
    [[unroll]] for (uint n = 0; n < UN; n++) {
      const uint i = min(j + n * T, to - 1);
      if (JOIN == 1) v[n] = HANDED ? sh[as + i] : s[as + i];
      else v[n] = uvec2(HANDED ? xh[ax + i] : floatBitsToUint(x[ax + i]), i);
      again = again || !(there(v[n].x) && there(v[n].y));
    }
    again = again && waiting && looks < PATIENCE;
    if (again) looks++;
  }
}

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x, g = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
  uint outer = row / inner, sub = row - outer * inner;
  uint ax = xoff + outer * xstride + sub * cols, as = soff + row * parts * k;
  uint from = JOIN == 1 ? 0 : g * part, to = JOIN == 1 ? parts * k : min(from + part, cols);
  uint last = 0, place = 0; // what the turn before found; an order is never 0
  if (HANDED) waiting = waits != 0 && !there(vain);
  for (uint i = 0; i < k; i++) {
    uint best = 0, at = NAN;
    for (uint j = from + t; j < to; j += UN * T) {
      fetch(ax, as, j, to);
      [[unroll]] for (uint n = 0; n < UN; n++) {
        uint o = JOIN == 1 ? v[n].x : order(uintBitsToFloat(v[n].x)), m = v[n].y;
        bool left = j + n * T < to && (i == 0 || o < last || o == last && m > place);
        if (left && (o > best || o == best && m < at)) { best = o; at = m; }
      }
    }
    last = wgMax(best);
    place = ~wgMax(best == last ? ~at : 0);
    if (t == 0 && JOIN == 0) {
      // 0 where the part has fewer than k; of numbers beside the smallest ones one may count as its neighbour
      s[as + g * k + i] = uvec2(HANDED && !there(last) ? last + 1 : last, place);
    }
    if (t == 0 && JOIN == 1) {
      p[poff + outer * pstride + sub * k + i] = number(last);
      e[eoff + outer * estride + sub * k + i] = int(place);
    }
  }
  if (HANDED) tooLong(launch, looks);
}
