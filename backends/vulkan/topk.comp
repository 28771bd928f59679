#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "common.glsl"
#include "reduce.glsl"
// The k largest of each row, in falling order, of equal ones the lower index first. A
// workgroup a row; each pass finds the largest of those that come after the one before.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SOFTMAX = 0; // 0 none, 1 before, 2 after the choice
layout(constant_id = 2) const uint GROUPS = 0;  // parts of a row of which KEEP are chosen from; 0: the row
layout(constant_id = 3) const uint KEEP = 0;
layout(constant_id = 4) const uint TOP2 = 0;    // a part is worth the sum of its two largest, else its largest
layout(binding = 0, std430) readonly buffer BX { float x[]; };
layout(binding = 1, std430) buffer BP { float p[]; };
layout(binding = 2, std430) writeonly buffer BE { int e[]; };
layout(push_constant) uniform Push { uint n, cols, inner, k, xoff, xstride, poff, pstride, eoff, estride; };

shared uint places[256];
shared float worth[256];
shared bool kept[256];

// keep chooses the parts of a row at ax: an invocation a part.
void keep(uint ax) {
  const uint t = gl_LocalInvocationID.x, size = cols / GROUPS;
  const float LOW = uintBitsToFloat(0xff800000u);
  if (t < GROUPS) {
    float a = LOW, b = LOW;
    for (uint j = 0; j < size; j++) {
      float v = x[ax + t * size + j];
      if (v > a) { b = a; a = v; } else b = max(b, v);
    }
    worth[t] = TOP2 != 0 ? a + b : a;
  }
  barrier();
  if (t < GROUPS) {
    uint before = 0;
    for (uint g = 0; g < GROUPS; g++)
      if (worth[g] > worth[t] || worth[g] == worth[t] && g < t) before++;
    kept[t] = before < KEEP;
  }
  barrier();
}

uint wgMin(uint v) {
  v = subgroupMin(v);
  if (gl_NumSubgroups == 1) return v;
  if (subgroupElect()) places[gl_SubgroupID] = v;
  barrier();
  uint s = places[0];
  for (uint i = 1; i < gl_NumSubgroups; i++) s = min(s, places[i]);
  barrier();
  return s;
}

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  const float LOW = uintBitsToFloat(0xff800000u);
  for (uint row = gl_WorkGroupID.x; row < n; row += gl_NumWorkGroups.x) {
    uint outer = row / inner, sub = row - outer * inner;
    uint ax = xoff + outer * xstride + sub * cols;
    uint ap = poff + outer * pstride + sub * k, ae = eoff + outer * estride + sub * k;
    if (GROUPS != 0) keep(ax);
    float last = 0, top = 0, total = 1;
    uint place = 0;
    float chosen = 0;
    for (uint i = 0; i < k; i++) {
      float best = LOW;
      uint at = 0xffffffffu;
      for (uint j = t; j < cols; j += T) {
        float v = x[ax + j];
        bool left = i == 0 || v < last || v == last && j > place;
        if (GROUPS != 0) left = left && kept[j / (cols / GROUPS)];
        if (left && (v > best || at == 0xffffffffu)) { best = v; at = j; }
      }
      float m = wgMax(best);
      place = wgMin(at != 0xffffffffu && best == m ? at : 0xffffffffu);
      last = m;
      if (i == 0) {
        top = m;
        if (SOFTMAX == 1) {
          if (GROUPS != 0) { // the largest may lie in a part that is not kept
            for (uint j = t; j < cols; j += T) top = max(top, x[ax + j]);
            top = wgMax(top);
          }
          float s = 0;
          for (uint j = t; j < cols; j += T) s += exp_(x[ax + j] - top);
          total = wgSum(s);
        }
      }
      float v = SOFTMAX == 0 ? m : exp_(m - top);
      chosen += v;
      if (t == 0) {
        p[ap + i] = SOFTMAX == 1 ? v / total : v;
        e[ae + i] = int(place);
      }
    }
    if (SOFTMAX == 2 && t == 0) {
      for (uint i = 0; i < k; i++) p[ap + i] /= chosen;
    }
  }
}
